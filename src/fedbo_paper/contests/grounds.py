"""Grounds: sets of tasks that share one search space. Policies compete on a ground.

`Listed` has a table of all scores. On a `Boxed` ground any point of the box can be evaluated, and
each score is computed by real training; `Trained` is one with a problem of the paper. All have

``space``, ``tasks``          the search space, and the number of tasks
``score(task, params)``       the score, in the space's direction
``initial(task, seed)``       the initial points of every run on this task with this seed
``random(rng, tried)``        a random configuration
``nearest(x, tried)``         the configuration to evaluate if a sampler asks for the point x
``limits(task, found)``       the scores that count as a regret of 0 and of 1
``digest``                    a digest of all data
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np

import fedbo
from fedbo.space.axis import Value
from fedbo_paper.contests.kept import array_digest, kept
from fedbo_paper.contests.screen import refuse, say, work
from fedbo_paper.data import DATA_SETS
from fedbo_paper.harness.intervals import Floats
from fedbo_paper.problems.problems import Har, Landmine

Params = dict[str, Value]

INITIAL = 3  # points in the design of every run


class Listed:
    """A ground whose scores are all in a table.

    Args:
        X: Configurations (n, D) on the unit cube.
        Y: Scores (tasks, n), higher is better.
        name: Name of the ground in messages and files.
    """

    normalise = True

    def __init__(self, X: Floats, Y: Floats, name: str = "table") -> None:
        self.name = name
        self.X = X
        self.Y = Y
        self.tasks = len(Y)
        names = [f"x{d}" for d in range(X.shape[1])]
        self._points: list[Params] = [dict(zip(names, row, strict=True)) for row in X.tolist()]
        self.space = fedbo.Space({key: fedbo.Float(0.0, 1.0) for key in names}, points=self._points)
        self._rows = {tuple(point.values()): row for row, point in enumerate(self._points)}

    @cached_property
    def digest(self) -> str:
        return array_digest([self.X, self.Y])

    def row(self, params: Params) -> int:
        """Find the row of a configuration."""
        return self._rows[tuple(params.values())]

    def params(self, row: int) -> Params:
        """Return the configuration of a row."""
        return dict(self._points[row])

    def score(self, task: int, params: Params) -> float:
        return float(self.Y[task, self.row(params)])

    def initial(self, task: int, seed: int) -> list[Params]:
        n = len(self.X)
        rows = np.random.default_rng((seed, task)).choice(n, min(INITIAL, n), replace=False)
        return [self.params(int(row)) for row in rows]

    def random(self, rng: np.random.Generator, tried: Sequence[Params]) -> Params:
        left = self._left(tried)
        return self.params(left[rng.integers(len(left))])

    def nearest(self, x: Floats, tried: Sequence[Params]) -> Params:
        """Return the configuration nearest to x among those that were not tried."""
        left = self._left(tried)
        return self.params(left[((self.X[left] - x) ** 2).sum(axis=1).argmin()])

    def _left(self, tried: Sequence[Params]) -> list[int]:
        """List the rows that were not tried; all rows if every row was."""
        rows = {self.row(params) for params in tried}
        return [row for row in range(len(self.X)) if row not in rows] or [*range(len(self.X))]

    def limits(self, task: int, found: float) -> tuple[float, float]:
        """Return the best and the worst score of the task."""
        return float(self.Y[task].max()), float(self.Y[task].min())


def read_table(path: Path) -> Listed:
    """Read a table from a file with the arrays ``accuracy`` (tasks, n) and ``config`` (n, D).

    The columns of ``config`` are scaled to [0, 1]. Configurations that are not finite or that
    repeat another one are left out, and so are tasks on which all scores are equal.
    """
    Y, config = _read_arrays(path)
    finite = np.isfinite(Y).all(axis=0) & np.isfinite(config).all(axis=1)
    if not finite.all():
        say(f"Left out {np.count_nonzero(~finite)} configurations with values that are not finite.")
        Y, config = Y[:, finite], config[finite]
    if len(config) <= INITIAL:
        raise refuse(
            f"{path} has {len(config)} finite configurations, expected more than {INITIAL}"
        )
    low, high = config.min(axis=0), config.max(axis=0)
    X = (config - low) / np.where(high > low, high - low, 1.0)
    _, first = np.unique(X.round(9), axis=0, return_index=True)
    if len(first) < len(X):
        say(f"Left out {len(X) - len(first)} of {len(X)} configurations: they repeat earlier ones.")
    keep = np.sort(first)
    flat = np.ptp(Y[:, keep], axis=1) == 0
    if flat.any():
        say(f"Left out tasks {np.flatnonzero(flat).tolist()}: all their scores are equal.")
    if np.count_nonzero(~flat) < 2:
        raise refuse(
            f"{path} has {np.count_nonzero(~flat)} tasks whose scores differ, expected 2 or more"
        )
    return Listed(X[keep], Y[~flat][:, keep], path.stem)


def _read_arrays(path: Path) -> tuple[Floats, Floats]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in ("accuracy", "config") if name not in arrays.files]
            if missing:
                raise refuse(
                    f"{path} has the arrays {', '.join(arrays.files)}, expected also "
                    f"{' and '.join(missing)}: scores (tasks x configurations) and configurations "
                    "(configurations x D)"
                )
            Y, config = (np.asarray(arrays[name], dtype=float) for name in ("accuracy", "config"))
    except (OSError, ValueError) as error:
        raise refuse(f"cannot read {path}: {error}; expected an .npz file") from None
    if Y.ndim != 2 or config.ndim != 2 or Y.shape[1] != len(config) or not Y.size:
        raise refuse(
            f"{path} has accuracy of shape {Y.shape} and config of shape {config.shape}, expected "
            "(tasks, n) and (n, D)"
        )
    return Y, config


class Boxed(ABC):
    """A ground where any point of the box can be evaluated; subclasses compute the scores.

    Args:
        space: The search space.
        tasks: Number of tasks.
        name: Name of the ground in messages and files.
        digest: A digest of all data.
        normalise: Whether regrets are normalised.
    """

    def __init__(
        self, space: fedbo.Space, tasks: int, name: str, digest: str, *, normalise: bool = False
    ) -> None:
        self.space = space
        self.tasks = tasks
        self.name = name
        self.digest = digest
        self.normalise = normalise

    @abstractmethod
    def score(self, task: int, params: Params) -> float:
        """Return the score of a task, in the space's direction."""

    def initial(self, task: int, seed: int) -> list[Params]:
        points = self.space.sample(np.random.default_rng((seed, task)), INITIAL)
        return [self.space.decode(x) for x in points]

    def random(self, rng: np.random.Generator, tried: Sequence[Params]) -> Params:
        return self.space.decode(self.space.sample(rng, 1)[0])

    def nearest(self, x: Floats, tried: Sequence[Params]) -> Params:
        return self.space.decode(x)

    def limits(self, task: int, found: float) -> tuple[float, float]:
        """Return the best score that was found, and a score one unit worse."""
        return found, found - self.space.sign


class Trained(Boxed):
    """A ground made of a problem of the paper; each score is computed by real training.

    A regret of 0 is the best known score of a task: the best of its survey and of all runs. A
    regret of 1 is the median score of the survey or, if ``normalise`` is False, a loss of 1.

    Args:
        problem: The problem.
        survey: Points (n, D) of the unit cube that are scored on every task before the contest.
        cache: Folder where these scores are kept.
        jobs: Number of processes.
        normalise: Whether to normalise regrets by the median.
    """

    def __init__(
        self,
        problem: Landmine | Har,
        survey: Floats,
        cache: Path,
        jobs: int,
        *,
        normalise: bool = True,
    ) -> None:
        self.problem = problem
        kind = type(problem).__name__.lower()
        tasks = problem.tasks()
        samples = DATA_SETS[kind].load(None)
        digest = array_digest(array for each in samples for array in (each.X, each.y))
        name = f"{kind}-{problem.box}"
        super().__init__(tasks.space, tasks.agents, name, digest, normalise=normalise)
        self._known: dict[tuple[int | Value, ...], float] = {}
        calls = [partial(self._surveyed, task, survey, cache) for task in range(self.tasks)]
        self.survey = np.array(work(f"survey {self.name}", calls, jobs))

    def _surveyed(self, task: int, X: Floats, cache: Path) -> list[float]:
        def scores() -> list[float]:
            return [self.score(task, self.space.decode(x)) for x in X]

        details = (self.digest, repr(self.problem), task, array_digest([X]))
        return kept(cache, f"survey-{self.name}-{task}", len(X), scores, *details)

    def score(self, task: int, params: Params) -> float:
        key = (task, *params.values())
        if key not in self._known:  # newcomers with the same release begin at the same points
            objective = self.problem.tasks().objective(task, 0)  # each process keeps the data
            self._known[key] = float(objective(params))
        return self._known[key]

    def limits(self, task: int, found: float) -> tuple[float, float]:
        """Return the best known score, and the median of the survey or a score one unit worse."""
        sign = self.space.sign
        best = sign * max(sign * found, float((sign * self.survey[task]).max()))
        return best, float(np.median(self.survey[task])) if self.normalise else best - sign


Ground = Listed | Boxed


def grid(per_side: int, D: int) -> Floats:
    """List all points (per_side ** D, D) of an even grid on the unit cube, borders included."""
    side = np.linspace(0.0, 1.0, per_side)
    return np.stack(np.meshgrid(*[side] * D, indexing="ij"), axis=-1).reshape(-1, D)
