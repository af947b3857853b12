"""Where policies compete: tasks that share one space, each of them in turn the target.

`Listed` has a table of all scores; `Trained` computes each score by real training. Both have

``space``, ``tasks``          what is searched, and how many tasks there are
``score(task, params)``       the score, in the space's direction
``initial(task, seed)``       the common first points, which depend on these two alone
``instead(x, tried)``         the params to query where somebody asked for x
``limits(task, found)``       (best, other): what counts as a regret of 0 and of 1
``digest``                    names all of this in files
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo import files
from fedbo_paper.contests.screen import Call, refuse, say, work

Array = np.ndarray
Params = dict[str, Any]

INITIAL = 3  # common points that every run starts with


def _rng(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


class Listed:
    """A table: Y (tasks, n) are scores, higher is better, of the configurations X (n, D)."""

    normalise = True

    def __init__(self, X: Array, Y: Array, name: str = "table") -> None:
        self.name = name
        self.Y = Y
        self.tasks = len(Y)
        names = [f"x{d}" for d in range(X.shape[1])]
        points = [dict(zip(names, row, strict=True)) for row in X.tolist()]
        self.space = fedbo.Space({key: fedbo.Float(0.0, 1.0) for key in names}, points=points)
        self.X: Array = self.space.points
        self._rows = {tuple(point.values()): row for row, point in enumerate(points)}

    @cached_property
    def digest(self) -> str:
        content = np.ascontiguousarray(self.X).tobytes() + np.ascontiguousarray(self.Y).tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    def row(self, params: Params) -> int:
        return self._rows[tuple(params.values())]

    def params(self, row: int) -> Params:
        return dict(self.space.listed[row])

    def score(self, task: int, params: Params) -> float:
        return float(self.Y[task, self.row(params)])

    def initial(self, task: int, seed: int) -> list[Params]:
        n = len(self.X)
        rows = _rng(seed, task).choice(n, min(INITIAL, n), replace=False)
        return [self.params(int(row)) for row in rows]

    def random(self, rng: np.random.Generator, tried: Sequence[Params]) -> Params:
        left = self._left(tried)
        return self.params(int(left[rng.integers(len(left))]))

    def instead(self, x: Array, tried: Sequence[Params]) -> Params:
        """The nearest configuration not yet queried."""
        left = self._left(tried)
        return self.params(int(left[((self.X[left] - x) ** 2).sum(axis=1).argmin()]))

    def _left(self, tried: Sequence[Params]) -> Array:
        left = np.setdiff1d(np.arange(len(self.X)), [self.row(params) for params in tried])
        return left if len(left) else np.arange(len(self.X))

    def limits(self, task: int, found: float) -> tuple[float, float]:
        """The best and the worst score of the table."""
        return float(self.Y[task].max()), float(self.Y[task].min())


def read_table(path: Path) -> Listed:
    """The table of a file with arrays ``accuracy`` (tasks, n) and ``config`` (n, D)."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in ("accuracy", "config") if name not in arrays.files]
            if missing:
                raise refuse(
                    f"{path} has arrays {', '.join(arrays.files)}, expected also "
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
    finite = np.isfinite(Y).all(axis=0) & np.isfinite(config).all(axis=1)
    if not finite.all():
        say(f"{np.count_nonzero(~finite)} configurations have values that are not finite: left out")
        Y, config = Y[:, finite], config[finite]
    if len(config) <= INITIAL:
        raise refuse(
            f"{path} has {len(config)} finite configurations, expected more than {INITIAL}"
        )
    low, high = config.min(axis=0), config.max(axis=0)
    X = (config - low) / np.where(high > low, high - low, 1.0)
    _, first = np.unique(X.round(9), axis=0, return_index=True)
    if len(first) < len(X):
        say(f"{len(X) - len(first)} of {len(X)} configurations are there twice; the first counts.")
    keep = np.sort(first)
    flat = np.ptp(Y[:, keep], axis=1) == 0
    if flat.any():
        say(f"tasks {np.flatnonzero(flat).tolist()} score the same everywhere: left out")
    if np.count_nonzero(~flat) < 2:
        raise refuse(f"{path} has {np.count_nonzero(~flat)} tasks with something to tune, not 2")
    return Listed(X[keep], Y[~flat][:, keep], path.stem)


class Trained:
    """Tasks of a problem of the paper, each score by real training.

    The best score of a task is the best that is known: of a survey of its box, and of any run. A
    regret of 1 is what a random point is worth (the median of the survey), or with ``normalise``
    False a whole unit of the score.
    """

    def __init__(self, problem: Any, folder: Path | None = None, *, normalise: bool = True) -> None:
        self.normalise = normalise
        self.problem = problem
        self.folder = folder
        self.name = f"{type(problem).__name__.lower()}-{problem.box}"
        tasks = problem.open(folder)  # kept by the process, so that this can be sent to others
        self.space: fedbo.Space = tasks.space
        self.tasks: int = tasks.agents
        self.survey: Array | None = None

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(repr(self.problem).encode()).hexdigest()[:16]

    def score(self, task: int, params: Params) -> float:
        return float(self.problem.open(self.folder).objective(task, 0)(params))

    def initial(self, task: int, seed: int) -> list[Params]:
        points = self.space.sample(_rng(seed, task), INITIAL)
        return [self.space.decode(x) for x in points]

    def random(self, rng: np.random.Generator, tried: Sequence[Params]) -> Params:
        return self.space.decode(self.space.sample(rng, 1)[0])

    def instead(self, x: Array, tried: Sequence[Params]) -> Params:
        return self.space.decode(x)

    def look_around(self, X: Array, cache: Path, jobs: int) -> None:
        """Score X (n, D) on every task, once for all: the survey (tasks, n)."""
        key = hashlib.sha256(X.tobytes()).hexdigest()[:8]
        path = cache / f"survey-{self.name}-{self.digest}-{key}.npy"
        if path.exists():
            self.survey = np.load(path)
            return
        calls: list[Call] = [(_scores, (self, task, X), len(X)) for task in range(self.tasks)]
        scores = dict(work(f"survey {self.name}", calls, jobs))
        self.survey = np.array([scores[task] for task in range(self.tasks)])
        cache.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part.npy")
        np.save(beside, self.survey)
        beside.replace(path)

    def limits(self, task: int, found: float) -> tuple[float, float]:
        """The best score known, and what a random point is worth or a whole unit less."""
        assert self.survey is not None, "look_around comes first"
        sign = self.space.sign
        best = sign * max(sign * found, float((sign * self.survey[task]).max()))
        return best, float(np.median(self.survey[task])) if self.normalise else best - sign


def _scores(ground: Trained, task: int, X: Array) -> tuple[int, list[float]]:
    return task, [ground.score(task, ground.space.decode(x)) for x in X]


def grid(per_side: int, D: int) -> Array:
    """All points (per_side ** D, D) of an even grid on the cube, its sides included."""
    side = np.linspace(0.0, 1.0, per_side)
    return np.stack(np.meshgrid(*[side] * D, indexing="ij"), axis=-1).reshape(-1, D)


def remembered(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def remember(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, data)
