"""What is tuned: named parameters on the unit cube, the direction of the score, listed points.

======  ===================================================================  ============
symbol  meaning                                                              shape
======  ===================================================================  ============
D       dimensions of the cube                                               scalar
x, X    a point of the cube, points of the cube                              (D,), (n, D)
======  ===================================================================  ============

A number takes one dimension, a choice between two values one (0 or 1), and a choice between k > 2
values k (one-hot). `fedbo.space.axis` defines where exactly a value lies.

The points that a tip may name are a lattice. A continuous parameter has 16 evenly spaced places on
it, both ends included. Choices are on it as they are, and so are levels, unless there are more than
256 of them: then the lattice has the 16 nearest to those places. If the space lists its points,
these are the lattice. A point of it has a number, half a byte for each continuous parameter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.space.axis import (
    Array,
    Axis,
    Categorical,
    Continuous,
    Float,
    Int,
    Parameter,
    Real,
    Value,
    is_unicode,
    number,
    rank,
)

Direction = Literal["maximize", "minimize"]

MOST_DIMENSIONS = 1000  # of the cube, far beyond what a model can learn
MOST_LISTED = 10**7  # coordinates of all listed points together: 80 MB

_CHUNK = 2**18  # distances computed at a time when looking for nearest points


class Space:
    """Named parameters, the direction of the score, and optionally a list of the only points.

    An invalid value raises a ValueError that names the parameter.

    Args:
        parameters: The parameters by name. The dimensions of the cube are in their order; a
            `fedbo.Federation` sorts them first, see `canonical`.
        direction: ``"maximize"`` (default) or ``"minimize"`` the score.
        points: The only combinations of parameters that are allowed (default: all are).

    Attributes:
        sign: 1 if scores are maximised, -1 if they are minimised.
        dimensions: D, the dimensions of the unit cube.
        free: Which dimensions are continuous, (D,).
        box: The lower and the upper corner of the cube, (D,) each.

    >>> space = Space({"C": Float(1e-4, 10, log=True), "depth": Int(1, 8)}, direction="minimize")
    >>> x = space.encode({"C": 0.1, "depth": 3})
    >>> x.round(4).tolist(), space.decode(x)
    ([0.6, 0.3125], {'C': 0.1, 'depth': 3})
    >>> space.encode({"C": 0.1, "depth": 9})
    Traceback (most recent call last):
    ValueError: parameter 'depth' is 9, expected an int: 1, 2, ... 8
    """

    points: Array | None = None  # the listed points on the cube, (n, D)
    listed: list[dict[str, Value]] | None = None  # their parameters

    def __new__(cls, *_: Any, points: object = None, **__: Any) -> Space:
        return super().__new__(cls if points is None else _Listed)

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        *,
        direction: Direction = "maximize",
        points: Sequence[Mapping[str, Value]] | None = None,
    ) -> None:
        if direction not in ("maximize", "minimize"):
            raise ValueError(f"direction is {direction!r}, expected 'maximize' or 'minimize'")
        self.parameters = _checked(parameters)
        self.names = tuple(self.parameters)
        self.direction: Direction = direction
        self.sign = 1 if direction == "maximize" else -1
        self.axes: dict[str, tuple[Axis, slice]] = {}
        free: list[bool] = []
        for name, parameter in self.parameters.items():
            axis = parameter.axis()
            if len(free) + axis.size > MOST_DIMENSIONS:
                raise ValueError(
                    f"with parameter {name!r} the cube has {len(free) + axis.size} dimensions, "
                    f"expected at most {MOST_DIMENSIONS}; each choice of a Categorical is one"
                )
            self.axes[name] = axis, slice(len(free), len(free) + axis.size)
            free += [isinstance(axis, Continuous)] * axis.size
        self.dimensions = len(free)
        self.free = np.array(free, dtype=np.bool_)
        self.free.setflags(write=False)
        self.box: tuple[Array, Array] = np.zeros(self.dimensions), np.ones(self.dimensions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and repr(self) == repr(other)  # 1 is not True

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        points = "" if self.listed is None else f", points={self.listed}"
        return f"Space({self.parameters}, direction={self.direction!r}{points})"

    def canonical(self) -> Space:
        """Return the same space with its parameters sorted by name, and their choices sorted too.

        Names are sorted by their code points; choices are None, then bools, numbers by size, and
        strings. Listed points keep their order.

        >>> Space({"b": Float(0, 1), "a": Categorical(["y", "x"])}).canonical()
        Space({'a': Categorical(choices=('x', 'y')), 'b': Float(...)}, direction='maximize')
        """
        parameters: dict[str, Parameter] = {}
        for name in sorted(self.names):
            parameter = self.parameters[name]
            if isinstance(parameter, Categorical):
                parameter = Categorical(sorted(parameter.choices, key=rank))
            parameters[name] = parameter
        if repr(parameters) == repr(self.parameters):  # in this order; 1 is not True
            return self
        return Space(parameters, direction=self.direction, points=self.listed)

    def encode(self, params: Mapping[str, Value]) -> Array:
        """Return the point x (D,) of the cube where ``params`` lie.

        Args:
            params: A value for each parameter, by name.

        Raises:
            ValueError: A value is not allowed, or the space has a list without these parameters.
        """
        if params.keys() != self.parameters.keys():
            missing = [name for name in self.parameters if name not in params]
            unknown = [name for name in params if name not in self.parameters]
            wrong = f"missing {missing}, unknown {unknown}"
            raise ValueError(f"parameters do not fit: {wrong}, expected {[*self.parameters]}")
        x: list[float] = []
        for name, (axis, _) in self.axes.items():
            place = axis.encode(params[name])
            if place is None:
                raise ValueError(f"parameter {name!r} is {params[name]!r}, expected {axis.allowed}")
            x += place
        return np.array(x)

    def decode(self, x: ArrayLike) -> dict[str, Value]:
        """Return the allowed parameters nearest to x (D,).

        Args:
            x: A point of the cube, (D,); finite numbers.
        """
        numbers = self._checked_point(x).tolist()
        return {name: axis.decode(numbers[at]) for name, (axis, at) in self.axes.items()}

    def snap(self, X: NDArray[Real]) -> NDArray[Real]:
        """Return the allowed points nearest to X (n, D), in its precision."""
        self._check_points(X)
        if self.free.all():
            return X
        snapped = X.copy()
        for axis, at in self.axes.values():
            if not self.free[at.start]:
                snapped[:, at] = axis.snap(X[:, at].astype(np.float64))
        return snapped

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return n random allowed points, (n, D)."""
        return self.snap(rng.random((n, self.dimensions)))

    def cover(self, n: int) -> Array:
        """Return up to n allowed points (m, D) all over the space, the same on every machine.

        >>> Space({"x": Float(0, 1)}).cover(3).round(3).tolist()
        [[0.5], [0.118], [0.736]]
        """
        # The additive recurrence of the generalised golden ratio g, with g^(D+1) = g + 1.
        D, g = self.dimensions, 2.0
        for _ in range(64):
            g = (1.0 + g) ** (1.0 / (D + 1))
        steps = np.outer(np.arange(n), g ** -np.arange(1.0, D + 1))
        points = self.snap(((0.5 + steps) % 1.0).round(9))  # the last bits depend on the machine
        _, first = np.unique(points, axis=0, return_index=True)
        return points[np.sort(first)]

    def design_point(self, i: int, rng: np.random.Generator) -> Array:
        """Return point i = 0, 1, ... of an initial design that fills the space, (D,).

        Args:
            i: Number of the point.
            rng: Scrambles the design; give a generator in the same state for each i.

        >>> Space({"x": Float(0, 1)}).design_point(0, np.random.default_rng(7)).round(2)
        array([0.65])
        """
        return self.snap(_sobol(self.dimensions, i, rng)).ravel()

    def _checked_point(self, x: ArrayLike) -> Array:
        point = np.asarray(x, dtype=np.float64)
        if point.shape != (self.dimensions,):
            raise ValueError(f"x has shape {point.shape}, expected ({self.dimensions},)")
        if not np.isfinite(point).all():
            raise ValueError(f"x is {point.tolist()}, expected finite numbers")
        return point

    def _check_points(self, X: NDArray[Real]) -> None:
        if X.ndim != 2 or X.shape[1] != self.dimensions:
            raise ValueError(f"X has shape {X.shape}, expected (n, {self.dimensions})")


class _Listed(Space):
    """What `Space` builds if it is given ``points``: these are allowed, and no others."""

    points: Array
    listed: list[dict[str, Value]]

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        *,
        direction: Direction = "maximize",
        points: Sequence[Mapping[str, Value]],
    ) -> None:
        super().__init__(parameters, direction=direction)
        if len(points) == 0:
            raise ValueError("points is empty, expected one or more, or None for no list")
        if len(points) * self.dimensions > MOST_LISTED:
            raise ValueError(
                f"there are {len(points)} points of {self.dimensions} dimensions each, expected at "
                f"most {MOST_LISTED // self.dimensions} such points"
            )
        rows: dict[bytes, int] = {}
        for i, point in enumerate(points):
            try:
                x = super().encode(point)
            except ValueError as error:
                raise ValueError(f"points[{i}]: {error}") from None
            first = rows.setdefault(x.tobytes(), i)
            if first != i:
                raise ValueError(f"points[{i}] is {dict(point)}, the same as points[{first}]")
        self._rows = frozenset(rows)
        self.points = np.frombuffer(b"".join(rows)).reshape(-1, self.dimensions)
        self.listed = []
        for point, place in zip(points, self.points.tolist(), strict=True):
            params = {}
            for name, (axis, at) in self.axes.items():
                exact = isinstance(axis, Continuous)  # the list may have more digits than the place
                params[name] = number(point[name], float) if exact else axis.decode(place[at])
            self.listed.append(params)

    def encode(self, params: Mapping[str, Value]) -> Array:
        x = super().encode(params)
        if x.tobytes() not in self._rows:
            listed = f"none of the {len(self.points)} listed points"
            raise ValueError(f"{dict(params)} is {listed}; the nearest is {self.decode(x)}")
        return x

    def decode(self, x: ArrayLike) -> dict[str, Value]:
        return dict(self.listed[nearest(self._checked_point(x)[None], self.points)[0]])

    def snap(self, X: NDArray[Real]) -> NDArray[Real]:
        self._check_points(X)
        return self.points[nearest(X, self.points)].astype(X.dtype, copy=False)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        return self.points[rng.integers(len(self.points), size=n)]

    def cover(self, n: int) -> Array:
        if len(self.points) <= n:
            return self.points
        # NumPy keeps the raw stream of a bit generator fixed, on every machine and in every version
        order = np.argsort(np.random.PCG64(0).random_raw(len(self.points)), kind="stable")
        return self.points[np.sort(order[:n])]

    def design_point(self, i: int, rng: np.random.Generator) -> Array:
        # A design that fills the cube is no use, because the list may leave most of it empty.
        return self.points[int(_sobol(1, i, rng).item() * len(self.points)), :]


def extended(space: Space, own: Mapping[str, Parameter]) -> Space:
    """Return a space with more parameters; their coordinates come after those of ``space``."""
    if space.points is not None:
        raise ValueError(
            f"a space with listed points cannot have own parameters ({[*own]}): list points that "
            "have them, or leave out the list"
        )
    if known := [name for name in own if name in space.parameters]:
        raise ValueError(f"{known} are parameters of the space already: leave them out of own")
    return Space({**space.parameters, **own}, direction=space.direction)


class Part:
    """The part of a space inside narrower ranges, to which queries are limited.

    Its points keep their places on the cube of the whole space, which lists no points.

    >>> from fedbo.space import Float, Int
    >>> part = Part(Space({"C": Float(0, 1), "depth": Int(1, 8)}), {"C": Float(0.2, 0.4)})
    >>> part.snap(np.array([[0.1, 0.5], [0.3, 0.5]])).round(4).tolist()
    [[0.2, 0.5625], [0.3, 0.5625]]
    """

    points = None

    def __init__(self, space: Space, parameters: Mapping[str, Parameter]) -> None:
        if space.points is not None:
            raise ValueError("a space with listed points has no narrower ranges: list fewer points")
        self.space, self.parameters = space, dict(parameters)
        self.dimensions, self.free = space.dimensions, space.free
        low, high = np.zeros(self.dimensions), np.ones(self.dimensions)
        for name, narrow in self.parameters.items():
            if name not in space.axes:
                raise ValueError(f"parameter {name!r} is not in the space, only {space.names}")
            axis, at = space.axes[name]
            low[at], high[at] = _ends(name, narrow, space.parameters[name], axis)
        self.box = low, high

    def snap(self, X: NDArray[Real]) -> NDArray[Real]:
        """Return the allowed points of the part nearest to X (n, D), in its precision."""
        low, high = self.box
        inside: NDArray[Real] = np.clip(X, low.astype(X.dtype), high.astype(X.dtype))
        return self.space.snap(inside)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return n random allowed points of the part, (n, D)."""
        return self._shrunk(self.space.sample(rng, n))

    def design_point(self, i: int, rng: np.random.Generator) -> Array:
        """Return point i = 0, 1, ... of an initial design that fills the part, (D,)."""
        return self._shrunk(self.space.design_point(i, rng)[None]).ravel()

    def _shrunk(self, X: Array) -> Array:
        low, high = self.box
        return self.snap(low + (high - low) * X)


def _ends(name: str, narrow: Parameter, whole: Parameter, axis: Axis) -> tuple[float, float]:
    """Return where the narrower range of a parameter begins and ends on the cube."""
    if (
        isinstance(narrow, Categorical)
        or isinstance(whole, Categorical)
        or type(narrow) is not type(whole)
        or (narrow.log, narrow.step) != (whole.log, whole.step)
    ):
        raise ValueError(f"parameter {name!r} is {narrow}, expected a narrower range of {whole}")
    low, high = axis.encode(narrow.low), axis.encode(narrow.high)
    if low is None or high is None:
        raise ValueError(f"parameter {name!r} is {narrow}, which is not all inside {whole}")
    return low[0], high[0]


class Lattice:
    """The points of a space that a tip may name.

    >>> from fedbo.space import Categorical, Float
    >>> lattice = Lattice(Space({"kind": Categorical(["a", "b", "c"]), "x": Float(0, 1)}))
    >>> data = lattice.pack(np.array([0.0, 1.0, 0.0, 0.72]))
    >>> data.hex(), lattice.unpack(data).round(3).tolist()
    ('1b', [0.0, 1.0, 0.0, 0.733])
    >>> lattice.unpack(bytes([255])) is None
    True
    """

    def __init__(self, space: Space) -> None:
        if space.points is not None:
            self._places = [(slice(0, space.dimensions), space.points)]
        else:
            self._places = [(at, axis.lattice()) for axis, at in space.axes.values()]
        self._dimensions = space.dimensions
        self.size = math.prod(len(places) for _, places in self._places)
        #: Bytes of the number of a point.
        self.nbytes = max(1, -(-(self.size - 1).bit_length() // 8))

    def pack(self, x: Array) -> bytes:
        """Return the number of the point nearest to x (D,), as bytes."""
        number = 0
        for at, places in self._places:
            number = number * len(places) + int(nearest(x[None, at], places)[0])
        return number.to_bytes(self.nbytes)

    def unpack(self, data: bytes) -> Array | None:
        """Return the point (D,) with the number in these bytes, or None if there is none."""
        if len(data) != self.nbytes or (number := int.from_bytes(data)) >= self.size:
            return None
        x = np.empty(self._dimensions)
        for at, places in reversed(self._places):
            number, k = divmod(number, len(places))
            x[at] = places[k]
        return x


def _sobol(dimensions: int, i: int, rng: np.random.Generator) -> Array:  # (1, dimensions)
    from scipy.stats.qmc import Sobol  # slow to import, so only where it is used

    return Sobol(dimensions, rng=rng).random_base2(max(2, i.bit_length()))[i : i + 1]


def nearest(X: NDArray[Real], points: Array) -> NDArray[np.intp]:
    """Return the row (n,) of the point (m, D) that is nearest to each row of X (n, D).

    If several are, it is the first of them, on every machine.
    """
    indices = np.empty(len(X), dtype=np.intp)
    rows = max(_CHUNK // len(points), 1)
    for i in range(0, len(X), rows):
        # Differences first, then squares: a point has distance 0 to itself and to no other.
        columns = zip(X[i : i + rows].T, points.T, strict=True)
        distances = sum((a[:, None] - b) ** 2 for a, b in columns)
        indices[i : i + rows] = np.argmin(distances, axis=1)
    return indices


def _checked(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    if not isinstance(parameters, Mapping) or not parameters:
        example = '{"x": Float(0, 1)}'
        raise ValueError(f"parameters is {parameters!r}, expected parameters by name: {example}")
    for name, parameter in parameters.items():
        if not isinstance(name, str) or not name or not is_unicode(name):
            raise ValueError(f"parameter name is {name!r}, expected text that a file can hold")
        if not isinstance(parameter, Float | Int | Categorical):
            raise ValueError(
                f"parameter {name!r} is {parameter!r}, expected a Float, an Int or a Categorical"
            )
    return dict(parameters)
