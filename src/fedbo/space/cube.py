"""The unit cube, where policies live, and the listed points of it on a discrete domain.

======  ===================================================================  ============
symbol  meaning                                                              shape
======  ===================================================================  ============
D       dimensions of the cube                                               scalar
x, X    a point of the cube, points of the cube                              (D,), (n, D)
======  ===================================================================  ============

A number takes one dimension, a choice between two values one (0 or 1), and a choice between k > 2
values k (one-hot). `fedbo.space.axis` defines where exactly a value lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.space.axis import Array, Axis, Continuous, Value, number
from fedbo.space.parameter import Parameter

_Real = TypeVar("_Real", np.float32, np.float64)

_CHUNK = 2**18  # distances computed at a time when looking for nearest points


class Cube:
    """The place of every combination of parameters on the unit cube.

    Args:
        parameters: The parameters by name.

    Attributes:
        dimensions: D.
        free: Which dimensions are continuous, (D,).
        points: The only points allowed, (n, D); None if there is no list.
        listed: Their parameters, or None.
    """

    points: Array | None = None
    listed: list[dict[str, Value]] | None = None

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = parameters
        self.axes: list[tuple[str, Axis, slice]] = []
        free: list[bool] = []
        for name, parameter in parameters.items():
            axis = parameter.axis()
            self.axes.append((name, axis, slice(len(free), len(free) + axis.size)))
            free += [isinstance(axis, Continuous)] * axis.size
        self.dimensions = len(free)
        self.free = np.array(free, dtype=np.bool_)
        self.free.setflags(write=False)

    def encode(self, params: Mapping[str, Value]) -> Array:
        """Return the point x (D,) where ``params`` lie."""
        if params.keys() != self.parameters.keys():
            missing = [name for name in self.parameters if name not in params]
            unknown = [name for name in params if name not in self.parameters]
            raise ValueError(
                f"parameters do not fit: missing {missing}, unknown {unknown}, "
                f"expected {[*self.parameters]}"
            )
        x: list[float] = []
        for name, axis, _ in self.axes:
            place = axis.encode(params[name])
            if place is None:
                raise ValueError(f"parameter {name!r} is {params[name]!r}, expected {axis.allowed}")
            x += place
        return np.array(x)

    def decode(self, x: ArrayLike) -> dict[str, Value]:
        """Return the parameters whose point is nearest to x (D,)."""
        numbers = self._checked_point(x).tolist()
        return {name: axis.decode(numbers[at]) for name, axis, at in self.axes}

    def snap(self, X: NDArray[_Real]) -> NDArray[_Real]:
        """Return the allowed points nearest to X (n, D), in its precision."""
        self._check_points(X)
        if self.free.all():
            return X
        snapped = X.copy()
        for _, axis, at in self.axes:
            if not self.free[at.start]:
                snapped[:, at] = axis.snap(X[:, at].astype(np.float64))
        return snapped

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return n random points, (n, D)."""
        return self.snap(rng.random((n, self.dimensions)))

    def design_point(self, i: int, rng: np.random.Generator) -> Array:
        """Return the i-th point (D,) of a scrambled Sobol sequence, counted from 0."""
        point: Array = self.snap(_sobol(self.dimensions, i, rng)[None])[0]
        return point

    def _checked_point(self, x: ArrayLike) -> Array:
        point = np.asarray(x, dtype=np.float64)
        if point.shape != (self.dimensions,):
            raise ValueError(f"x has shape {point.shape}, expected ({self.dimensions},)")
        if not all(map(math.isfinite, point.tolist())):
            name = next(name for name, _, at in self.axes if not np.isfinite(point[at]).all())
            raise ValueError(f"x is {point.tolist()}, not finite where parameter {name!r} lies")
        return point

    def _check_points(self, X: NDArray[_Real]) -> None:
        if X.ndim != 2 or X.shape[1] != self.dimensions:
            raise ValueError(f"X has shape {X.shape}, expected (n, {self.dimensions})")


class Listed(Cube):
    """A discrete domain: the listed points of the cube, and no others.

    Args:
        parameters: The parameters by name.
        points: The parameters of each allowed point.
    """

    points: Array
    listed: list[dict[str, Value]]

    def __init__(
        self, parameters: Mapping[str, Parameter], points: Sequence[Mapping[str, Value]]
    ) -> None:
        super().__init__(parameters)
        if len(points) == 0:
            raise ValueError("points is empty, expected one or more, or None for no list")
        rows: dict[bytes, int] = {}
        for i, point in enumerate(points):
            try:
                x = super().encode(point)
            except ValueError as error:
                raise ValueError(f"points[{i}]: {error}") from None
            first = rows.setdefault(x.tobytes(), i)
            if first != i:
                raise ValueError(f"points[{i}] is {dict(point)}, the same as points[{first}]")
        self.points = np.frombuffer(b"".join(rows)).reshape(-1, self.dimensions)
        self.listed = [self._builtin(*pair) for pair in zip(points, self.points, strict=True)]
        self._rows = frozenset(rows)

    def _builtin(self, point: Mapping[str, Value], x: Array) -> dict[str, Value]:
        """Return the point in Python's types; a continuous value may be finer than its place."""
        place = x.tolist()
        return {
            name: number(point[name], float)
            if isinstance(axis, Continuous)
            else axis.decode(place[at])
            for name, axis, at in self.axes
        }

    def encode(self, params: Mapping[str, Value]) -> Array:
        """Return the point x (D,) where ``params`` lie; they must be listed."""
        x = super().encode(params)
        if x.tobytes() not in self._rows:
            raise ValueError(
                f"{dict(params)} is none of the {len(self.points)} listed points; "
                f"the nearest is {self.decode(x)}"
            )
        return x

    def decode(self, x: ArrayLike) -> dict[str, Value]:
        """Return the parameters of the listed point nearest to x (D,)."""
        return dict(self.listed[_nearest(self._checked_point(x)[None], self.points)[0]])

    def snap(self, X: NDArray[_Real]) -> NDArray[_Real]:
        """Return the listed points nearest to X (n, D), in its precision."""
        self._check_points(X)
        return self.points[_nearest(X, self.points)].astype(X.dtype, copy=False)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return n random listed points, (n, D)."""
        return self.points[rng.integers(len(self.points), size=n)]

    def design_point(self, i: int, rng: np.random.Generator) -> Array:
        """Return the listed point that the i-th element of a 1-D Sobol sequence picks, (D,).

        Points spread over the cube would be no use, because the list may leave most of it empty.
        """
        point: Array = self.points[int(_sobol(1, i, rng)[0] * len(self.points))]
        return point


def _sobol(dimensions: int, i: int, rng: np.random.Generator) -> Array:
    """Return the i-th point of a scrambled Sobol sequence, (dimensions,)."""
    from scipy.stats.qmc import Sobol  # slow to import, so only where it is used

    point: Array = Sobol(dimensions, rng=rng).random_base2(max(2, i.bit_length()))[i]
    return point


def _nearest(X: NDArray[_Real], points: Array) -> NDArray[np.intp]:
    """Return, for each row of X, the row of the nearest point."""
    nearest = np.empty(len(X), dtype=np.intp)
    rows = max(_CHUNK // len(points), 1)
    for i in range(0, len(X), rows):
        # Differences first, then squares: a point has distance 0 to itself and to no other.
        columns = zip(X[i : i + rows].T, points.T, strict=True)
        distances = sum((a[:, None] - b) ** 2 for a, b in columns)
        nearest[i : i + rows] = np.argmin(distances, axis=1)
    return nearest
