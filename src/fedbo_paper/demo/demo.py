"""One federation run twice: every agent alone, and all of them together.

Ten agents tune an SVM, each to its own handwritten digits. *Alone* they follow `TS`; *together*
they follow `FTS`, and before every iteration each hands out its message to all others. Either way
an agent starts from the same initial points. Both are repeated with new random numbers, while the
images stay where they are; standard errors are over these repeats.

=======  ===================================================
R        repeats                    ``Demo.repeats``
N        agents                     ``Demo.agents``
T        trials of each agent       ``Demo.trials``
mode     0 alone, 1 together        ``MODES``
scores   (R, 2, N, T), NaN where a trial is not done yet
=======  ===================================================
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.federation import Federation
from fedbo.policy import FTS, TS
from fedbo.simulate import Party, simulate
from fedbo.space.axis import Value
from fedbo.table import Table
from fedbo_paper.problems import digits

Mode = Literal["alone", "together"]
MODES: tuple[Mode, Mode] = ("alone", "together")
FEDERATED = FTS()  # the policy together
N_INITIAL = Settings().n_initial

Floats = NDArray[np.float64]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What `simulate` made of one repeat in one mode."""

    repeat: int
    mode: Mode
    table: Table


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """What is run. ``seed`` decides everything random: who has which images, and every query.

    >>> Demo(agents=1)
    Traceback (most recent call last):
    ValueError: agents is 1, expected 2 to 24
    """

    agents: int = 10
    trials: int = 25
    repeats: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        _within("agents", self.agents, 2, digits.MOST)
        _within("trials", self.trials, N_INITIAL + 1, 1000, f": {N_INITIAL} are initial points")
        _within("repeats", self.repeats, 1, 1000)
        _within("seed", self.seed, 0, 2**32 - 1)

    @property
    def names(self) -> list[str]:
        return [f"agent {n}" for n in range(1, self.agents + 1)]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of all scores: (R, 2, N, T)."""
        return (self.repeats, len(MODES), self.agents, self.trials)


def play(demo: Demo, repeat: int, mode: Mode, scores: Floats | None = None) -> Table:
    """One run of the federation; scores are put into ``scores`` as they come.

    >>> table = play(Demo(agents=2, trials=5), 0, "together")
    >>> table.height, set(table["source"].tolist()) <= {"initial", "own", "peer"}
    (10, True)
    """
    board = np.empty(demo.shape) if scores is None else scores
    federation = Federation(digits.SPACE)
    policy = TS() if mode == "alone" else FEDERATED
    seeds = np.random.SeedSequence((demo.seed, repeat)).generate_state(demo.agents, np.uint64)
    parties = [
        Party(
            agent=Agent(federation, policy, name=name, seed=int(seed)),
            objective=_Watched(images, row),
        )
        for name, seed, images, row in zip(
            demo.names,
            seeds,
            digits.deal(demo.agents, demo.seed),
            board[repeat, MODES.index(mode)],
            strict=True,
        )
    ]
    return simulate(parties, demo.trials - N_INITIAL, every=None if mode == "alone" else 1)


class _Watched:
    """An agent's objective, whose scores can be watched in ``row`` while they come."""

    def __init__(self, images: digits.Images, row: Floats) -> None:
        self.images = images
        self.row = row
        self.trials = 0

    def __call__(self, params: dict[str, Value]) -> float:
        score = self.images(params)
        self.row[self.trials] = score
        self.trials += 1
        return score


class Board:
    """All scores in a file, so that the processes that make them can be watched by another.

    >>> with Board.open(Demo()) as board:
    ...     board.scores.shape, board.done
    ((10, 2, 10, 25), 0)
    """

    def __init__(self, scores: Floats, path: Path) -> None:
        self.scores = scores
        self.path = path

    @classmethod
    @contextmanager
    def open(cls, demo: Demo) -> Iterator[Board]:
        with tempfile.TemporaryDirectory(prefix="fedbo-", ignore_cleanup_errors=True) as folder:
            path = Path(folder, "scores")
            np.full(demo.shape, np.nan).tofile(path)
            yield cls(_mapped(path, demo), path)

    @property
    def done(self) -> int:
        """How many trials are done."""
        return int(np.count_nonzero(~np.isnan(self.scores)))

    def paired_best(self, trial: int) -> tuple[Floats, int]:
        """Mean best score after so many trials, (2,), over the repeats in which both got there."""
        scores = np.array(self.scores[..., :trial])
        there = ~np.isnan(scores).any(axis=(1, 2, 3))
        if not there.any():
            return np.full(len(MODES), np.nan), 0
        return scores[there].max(axis=-1).mean(axis=(0, 2)), int(there.sum())


def play_all(demo: Demo, board: Board, jobs: int = 2) -> Iterator[Run]:
    """All runs, in as many processes as ``jobs``, each handed over when it is done."""
    from joblib import Parallel, delayed

    runs = [(repeat, mode) for repeat in range(demo.repeats) for mode in MODES]
    parallel = Parallel(n_jobs=min(jobs, len(runs)), return_as="generator_unordered")
    yield from parallel(delayed(_play_apart)(demo, *run, board.path, os.getpid()) for run in runs)


def _play_apart(demo: Demo, repeat: int, mode: Mode, path: Path, first: int) -> Run:
    """`play` in a process of its own, where Ctrl-C is left to the first process."""
    if os.getpid() != first:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    table = play(demo, repeat, mode, _mapped(path, demo))
    return Run(repeat=repeat, mode=mode, table=table)


def _mapped(path: Path, demo: Demo) -> Floats:
    return np.memmap(path, dtype=np.float64, mode="r+", shape=demo.shape)


class Outcome:
    """What came of the repeats that were finished in both modes.

    >>> demo = Demo(agents=2, trials=4, repeats=1)
    >>> runs = [Run(repeat=0, mode=mode, table=play(demo, 0, mode)) for mode in MODES]
    >>> Outcome(demo, runs).best.shape
    (1, 2, 2, 4)
    """

    def __init__(self, demo: Demo, runs: Sequence[Run]) -> None:
        self.demo = demo
        finished = {(run.repeat, run.mode): run for run in runs}
        repeats = [r for r in range(demo.repeats) if all((r, mode) in finished for mode in MODES)]
        self.repeats = len(repeats)
        self.runs = [finished[r, mode] for r in repeats for mode in MODES]

    @property
    def table(self) -> Table:
        """Every trial, behind the columns ``repeat`` and ``mode``."""
        return Table.join(
            [run.table for run in self.runs],
            repeat=[run.repeat for run in self.runs],
            mode=[run.mode for run in self.runs],
        )

    @cached_property
    def best(self) -> Floats:
        """Best score so far: (R, 2, N, T)."""
        return self._column("best").astype(np.float64)

    @cached_property
    def from_peers(self) -> NDArray[np.bool_]:
        """Whether a query together was a peer's: (R, N, T)."""
        peer: NDArray[np.bool_] = self._column("source")[:, 1] == "peer"
        return peer

    def _column(self, name: str) -> NDArray[Any]:
        values = [
            [run.table.where(agent=agent)[name] for agent in self.demo.names] for run in self.runs
        ]
        return np.array(values).reshape(self.repeats, *self.demo.shape[1:])

    @property
    def curves(self) -> Floats:
        """Mean over agents of the best score so far: (R, 2, T)."""
        curves: Floats = self.best.mean(axis=2)
        return curves

    @property
    def lead(self) -> Floats:
        """How far together is ahead of alone in each repeat: (R, T)."""
        return self.curves[:, 1] - self.curves[:, 0]

    @property
    def catching_up(self) -> Floats:
        """After how many trials an agent together had its final best score alone: (R, N).

        Infinite where it never had.
        """
        reached = self.best[:, 1] >= self.best[:, 0, :, -1:]
        return np.where(reached.any(-1), 1.0 + reached.argmax(-1), np.inf)


def _within(what: str, value: int, low: int, high: int, why: str = "") -> None:
    if not low <= value <= high:
        raise ValueError(f"{what} is {value}, expected {low} to {high}{why}")
