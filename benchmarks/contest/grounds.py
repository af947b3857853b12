"""Grounds: sets of tasks that share one search space. Policies compete on a ground.

`Listed` has a table of all scores: from a file (`read_table`), or invented (`synthetic`). On a
`Boxed` ground any point of the box can be evaluated, and each score is computed by real training;
`Trained` is one with a problem of the paper. All have

``space``, ``tasks``          the search space, and the number of tasks
``score(task, params)``       the score, in the space's direction
``initial(task, seed)``       the initial points of every run on this task with this seed
``random(rng, tried)``        a random configuration
``nearest(x, tried)``         the configuration to evaluate if a sampler asks for the point x
``limits(task, best)``        the scores that count as a regret of 0 and of 1
``digest``                    a digest of all data
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

import fedbo
from fedbo.model.features import Features
from fedbo.space.axis import Value
from fedbo_paper.data import DATA_SETS, find
from fedbo_paper.harness.intervals import Floats
from fedbo_paper.problems.problems import Box, Har, Landmine

from .stored import array_digest, stored
from .terminal import refuse, say, work

Params = dict[str, Value]

INITIAL = 3  # points in the design of every run
SVM_TABLE = "tst_svm_50x288.npz"
SIDE = 25  # points of the survey of landmine fields, along each parameter
SURVEY = 8  # 2^8 points of the survey of HAR
WAVES = 2000  # features of a synthetic function, enough to be close to a draw from the GP
OWN = 0.3  # size of g_n beside f, in the synthetic family "similar"


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
        names = [f"x{d:02}" for d in range(X.shape[1])]  # in alphabetical order, as a space has it
        self._points: list[Params] = [dict(zip(names, row, strict=True)) for row in X.tolist()]
        self.space = fedbo.Space({key: fedbo.Float(0.0, 1.0) for key in names}, points=self._points)
        self._rows = {tuple(point.values()): row for row, point in enumerate(self._points)}
        self.digest = array_digest([X, Y])

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

    def limits(self, task: int, best: float) -> tuple[float, float]:
        """Return the best and the worst score of the task."""
        return float(self.Y[task].max()), float(self.Y[task].min())


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

    def limits(self, task: int, best: float) -> tuple[float, float]:
        """Return the best score of all runs, and a score one unit worse."""
        return best, best - self.space.sign


class Trained(Boxed):
    """A ground made of a problem of the paper; each score is computed by real training.

    A regret of 0 is the best known score of a task: the best of its survey and of all runs. A
    regret of 1 is the median score of the survey or, if ``normalise`` is False, a loss of 1.

    Args:
        problem: The problem.
        survey: Points (n, D) of the unit cube that are scored on every task before the contest.
        cache: Folder where these scores are stored.
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
        digest = array_digest(array for agent in samples for array in (agent.X, agent.y))
        name = f"{kind}-{problem.box}"
        super().__init__(tasks.space, tasks.agents, name, digest, normalise=normalise)
        self._scores: dict[tuple[int | Value, ...], float] = {}
        calls = [partial(self._surveyed, task, survey, cache) for task in range(self.tasks)]
        self.survey = np.array(work(f"survey {self.name}", calls, jobs))

    def _surveyed(self, task: int, X: Floats, cache: Path) -> list[float]:
        def scores() -> list[float]:
            return [self.score(task, self.space.decode(x)) for x in X]

        details = (self.digest, repr(self.problem), task, array_digest([X]))
        return stored(cache, f"survey-{self.name}-{task}", len(X), scores, *details)

    def score(self, task: int, params: Params) -> float:
        key = (task, *params.values())
        if key not in self._scores:  # newcomers with the same release begin at the same points
            objective = self.problem.tasks().objective(task, 0)  # each process keeps the data
            self._scores[key] = float(objective(params))
        return self._scores[key]

    def limits(self, task: int, best: float) -> tuple[float, float]:
        """Return the best known score, and the median of the survey or a score one unit worse."""
        sign = self.space.sign
        best = sign * max(sign * best, float((sign * self.survey[task]).max()))
        return best, float(np.median(self.survey[task])) if self.normalise else best - sign


Ground = Listed | Boxed


# The grounds of contests


def landmine(box: Box, cache: Path, jobs: int) -> Trained:
    """Create the landmine fields, surveyed on a grid of a box."""
    return Trained(Landmine(box=box), grid(SIDE, 2), cache, jobs)


def landmine_grid(box: Box, cache: Path, jobs: int) -> Listed:
    """Create a table of the landmine fields on that grid."""
    return Listed(grid(SIDE, 2), landmine(box, cache, jobs).survey, f"landmine {box}")


def har(box: Box, cache: Path, jobs: int) -> Trained:
    """Create the people of UCI HAR, surveyed at Sobol points. Their regret is not normalised."""
    from scipy.stats.qmc import Sobol

    points = Sobol(3, rng=np.random.default_rng(0)).random_base2(SURVEY)
    return Trained(Har(box=box), points, cache, jobs, normalise=False)


def grid(per_side: int, D: int) -> Floats:
    """List all points (per_side ** D, D) of an even grid on the unit cube, borders included."""
    side = np.linspace(0.0, 1.0, per_side)
    return np.stack(np.meshgrid(*[side] * D, indexing="ij"), axis=-1).reshape(-1, D)


def synthetic(
    D: int, seed: int = 0, *, unrelated: bool = False, tasks: int = 16, points: int = 500
) -> Listed:
    """Invent a table of tasks: f + 0.3 g_n for task n or, if they are unrelated, g_n.

    f and g_n are random functions of a GP. Its kernel differs from seed to seed: SE or Matérn 5/2,
    with a length scale for each dimension of 0.2 to 1 times √D/2, but at least 0.1.

    Args:
        D: Number of dimensions.
        seed: Seed of everything random. The configurations depend on D and the seed only.
        unrelated: Whether tasks have nothing in common (default False).
        tasks: Number of tasks.
        points: Number of configurations, a scrambled Sobol sequence.

    >>> ground = synthetic(2, tasks=5)
    >>> ground.X.shape, ground.Y.shape, bool(np.corrcoef(ground.Y).min() > 0.5)
    ((500, 2), (5, 500), True)
    """
    from scipy.stats.qmc import Sobol  # slow to import

    bits = (points - 1).bit_length()
    X = Sobol(D, rng=np.random.default_rng([seed, D])).random_base2(bits)[:points]
    rng = np.random.default_rng([seed, D, 4 if unrelated else 0])
    scales = np.maximum(rng.uniform(0.2, 1.0, D) * np.sqrt(D) / 2, 0.1)
    kernel = str(rng.choice(["se", "matern52"]))
    phi = Features(D, WAVES, kernel=kernel, length_scales=scales, seed=int(rng.integers(2**31)))

    def draw() -> Floats:
        return np.asarray(phi.function(rng.standard_normal(WAVES))(X))

    f, size = (np.zeros(points), 1.0) if unrelated else (draw(), OWN)
    Y = np.array([f + size * draw() for _ in range(tasks)])
    return Listed(X, Y, f"synthetic D = {D}, {seed}")


def svm_table(path: Path | None = None) -> Listed:
    """Read the SVM table, from the data folder by default."""
    return read_table(path or find("tst_svm", [SVM_TABLE]))


def read_table(path: Path) -> Listed:
    """Read a table from a file with the arrays ``accuracy`` (tasks, n) and ``config`` (n, D).

    The columns of ``config`` are scaled to [0, 1]. Configurations that are not finite or that
    repeat another one are left out, and so are tasks on which all scores are equal.
    """
    Y, config = _read_arrays(path)
    finite = np.isfinite(Y).all(axis=0) & np.isfinite(config).all(axis=1)
    Y, config = Y[:, finite], config[finite]
    if len(config) <= INITIAL:
        raise refuse(
            f"{path} has {len(config)} finite configurations, expected more than {INITIAL}"
        )
    low, high = config.min(axis=0), config.max(axis=0)
    X = (config - low) / np.where(high > low, high - low, 1.0)
    _, first = np.unique(X.round(9), axis=0, return_index=True)
    rows = np.sort(first)
    if len(rows) < len(finite):
        say(
            f"Left out {len(finite) - len(rows)} of {len(finite)} configurations: they are not "
            "finite or repeat earlier ones."
        )
    flat = np.ptp(Y[:, rows], axis=1) == 0
    if flat.any():
        say(f"Left out tasks {np.flatnonzero(flat).tolist()}: all their scores are equal.")
    if np.count_nonzero(~flat) < 2:
        raise refuse(
            f"{path} has {np.count_nonzero(~flat)} tasks whose scores differ, expected 2 or more"
        )
    return Listed(X[rows], Y[~flat][:, rows], path.stem)


def _read_arrays(path: Path) -> tuple[Floats, Floats]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            Y, config = (np.asarray(arrays[name], dtype=float) for name in ("accuracy", "config"))
    except (OSError, ValueError, KeyError) as error:
        raise refuse(
            f"cannot read {path}: {error}; expected an .npz file with accuracy (tasks x "
            "configurations) and config (configurations x D)"
        ) from None
    if Y.ndim != 2 or config.ndim != 2 or Y.shape[1] != len(config) or not Y.size:
        raise refuse(
            f"{path} has accuracy of shape {Y.shape} and config of shape {config.shape}, expected "
            "(tasks, n) and (n, D)"
        )
    return Y, config
