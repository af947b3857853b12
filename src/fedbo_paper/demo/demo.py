"""Run one federation twice: every agent alone, and all agents together.

Ten agents tune an SVM, each to its own handwritten digits. *Alone* they use `TS`. *Together* they
use `FTS`, and each agent sends its message to all others before every iteration. An agent starts
from the same initial points in both modes. Both modes are repeated with new random numbers, but
with the same images. Standard errors are over these repeats.

=======  ===================================================
R        repeats                    ``Demo.repeats``
N        agents                     ``Demo.agents``
T        trials of each agent       ``Demo.trials``
mode     0 alone, 1 together        ``MODES``
scores   (R, 2, N, T), NaN where a trial is not done yet
=======  ===================================================
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
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
from fedbo_paper.harness import workers
from fedbo_paper.problems import digits

Mode = Literal["alone", "together"]
MODES: tuple[Mode, Mode] = ("alone", "together")
FEDERATED = FTS()  # the policy together
N_INITIAL = Settings().n_initial

Floats = NDArray[np.float64]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one repeat in one mode."""

    repeat: int
    mode: Mode
    table: Table


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a demo.

    Args:
        agents: Number of agents.
        trials: Trials of each agent, the initial points included.
        repeats: Number of repeats of both modes.
        seed: Seed of everything random: the agents' images and all queries.

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
        """The shape of all scores: (R, 2, N, T)."""
        return (self.repeats, len(MODES), self.agents, self.trials)


def play(demo: Demo, repeat: int, mode: Mode, scores: Floats | None = None) -> Table:
    """Run the federation once, and write each score to ``scores`` as soon as it is there.

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
    """An agent's objective that also writes its scores to ``row``."""

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
    """All scores in a temporary file that several processes share, to show progress.

    >>> with Board.create(Demo()) as board:
    ...     board.scores.shape, board.done
    ((10, 2, 10, 25), 0)
    """

    def __init__(self, scores: Floats, path: Path) -> None:
        self.scores = scores
        self.path = path

    @classmethod
    @contextmanager
    def create(cls, demo: Demo) -> Iterator[Board]:
        """Create an empty board; it is deleted at the end of the block."""
        with tempfile.TemporaryDirectory(prefix="fedbo-", ignore_cleanup_errors=True) as folder:
            path = Path(folder, "scores")
            np.full(demo.shape, np.nan).tofile(path)
            yield cls(_mapped(path, demo), path)

    @property
    def done(self) -> int:
        """The number of finished trials."""
        return int(np.count_nonzero(~np.isnan(self.scores)))

    def paired_best(self, trial: int) -> tuple[Floats, int]:
        """Compute the mean best score (2,) after so many trials, over repeats that got there.

        Returns:
            The means, and the number of repeats in which both modes have so many trials.
        """
        scores = np.array(self.scores[..., :trial])
        there = ~np.isnan(scores).any(axis=(1, 2, 3))
        if not there.any():
            return np.full(len(MODES), np.nan), 0
        return scores[there].max(axis=-1).mean(axis=(0, 2)), int(there.sum())


def play_all(demo: Demo, board: Board, jobs: int = 2) -> Iterator[Run]:
    """Run all repeats in both modes in ``jobs`` processes, and yield each run when it is done."""
    runs = [(repeat, mode) for repeat in range(demo.repeats) for mode in MODES]
    calls = [partial(_play_on_board, demo, repeat, mode, board.path) for repeat, mode in runs]
    for i, table in workers.run(calls, min(jobs, len(runs))):
        yield Run(repeat=runs[i][0], mode=runs[i][1], table=table)


def _play_on_board(demo: Demo, repeat: int, mode: Mode, path: Path) -> Table:
    return play(demo, repeat, mode, _mapped(path, demo))


def _mapped(path: Path, demo: Demo) -> Floats:
    return np.memmap(path, dtype=np.float64, mode="r+", shape=demo.shape)


class Outcome:
    """The results of all repeats that are finished in both modes.

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
        """All trials, with the columns ``repeat`` and ``mode`` in front."""
        return Table.join(
            [run.table for run in self.runs],
            repeat=[run.repeat for run in self.runs],
            mode=[run.mode for run in self.runs],
        )

    @cached_property
    def best(self) -> Floats:
        """The best score so far: (R, 2, N, T)."""
        return self._column("best").astype(np.float64)

    @cached_property
    def from_peers(self) -> NDArray[np.bool_]:
        """Whether a query came from a peer's message, in the mode *together*: (R, N, T)."""
        peer: NDArray[np.bool_] = self._column("source")[:, 1] == "peer"
        return peer

    def _column(self, name: str) -> NDArray[Any]:
        values = [
            [run.table.where(agent=agent)[name] for agent in self.demo.names] for run in self.runs
        ]
        return np.array(values).reshape(self.repeats, *self.demo.shape[1:])

    @property
    def curves(self) -> Floats:
        """The mean over agents of the best score so far: (R, 2, T)."""
        curves: Floats = self.best.mean(axis=2)
        return curves

    @property
    def lead(self) -> Floats:
        """The lead of *together* over *alone* in each repeat: (R, T)."""
        return self.curves[:, 1] - self.curves[:, 0]

    @property
    def catching_up(self) -> Floats:
        """The trials that each agent needed together to reach its final best score alone: (R, N).

        Infinite if it never reached that score.
        """
        reached = self.best[:, 1] >= self.best[:, 0, :, -1:]
        return np.where(reached.any(-1), 1.0 + reached.argmax(-1), np.inf)


def _within(what: str, value: int, low: int, high: int, why: str = "") -> None:
    if not low <= value <= high:
        raise ValueError(f"{what} is {value}, expected {low} to {high}{why}")
