"""What is tuned: named parameters, and their place on the unit cube where policies live.

======  ===================================================================  ============
symbol  meaning                                                              shape
======  ===================================================================  ============
D       dimensions of the cube                                               scalar
x, X    a point of the cube, points of the cube                              (D,), (n, D)
======  ===================================================================  ============

A number has one dimension of the cube, a Categorical of two choices one (0 or 1), one of k > 2
choices k (one-hot). `fedbo.axis` says where exactly a value lies, and why it comes back exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Generic, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.space.axis import Array, Axis, Choices, Continuous, Levels, Value, number, to_builtin

Direction = Literal["maximize", "minimize"]
_N = TypeVar("_N", int, float)
_Real = TypeVar("_Real", np.float32, np.float64)

_CHUNK = 2**18  # distances held at a time while looking for nearest points


class _Parameter(
    msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True, forbid_unknown_fields=True
):
    pass


class _Range(_Parameter, Generic[_N], frozen=True, repr_omit_defaults=True):
    low: _N
    high: _N


class Float(_Range[float], frozen=True, kw_only=True, tag="float"):
    """A number from ``low`` to ``high``; on a log scale, or in steps from ``low``, if wished.

    >>> Float(1e-4, 10, log=True)
    Float(low=0.0001, high=10.0, log=True)
    >>> Float(0, 1, step=0.3)
    Traceback (most recent call last):
    ValueError: high is 1.0, which steps of 0.3 from 0.0 do not reach: the largest they reach is 0.9
    """

    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        _check_range(self, float)
        if self.step is not None and self.log:
            raise ValueError(f"step is {self.step} and log is True: leave one of them out")
        if self.step is not None and self.step < 8 * math.ulp(max(abs(self.low), abs(self.high))):
            raise ValueError(f"step is {self.step}, too small to tell neighbours apart")
        self.axis()

    def axis(self) -> Axis:
        """Its dimension of the cube."""
        if self.step is None:
            return Continuous(self.low, self.high, log=self.log)
        return Levels(self.low, self.high, self.step)


class Int(_Range[int], frozen=True, kw_only=True, tag="int"):
    """A whole number from ``low`` to ``high``; on a log scale, or in steps from ``low``, if wished.

    >>> Int(1, 9, step=2)
    Int(low=1, high=9, step=2)
    """

    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        _check_range(self, int)
        if self.step != 1 and self.log:
            raise ValueError(f"step is {self.step} and log is True: leave one of them out")
        self.axis()

    def axis(self) -> Axis:
        """Its dimension of the cube."""
        return Levels(self.low, self.high, self.step, log=self.log)


class Categorical(_Parameter, frozen=True, tag="categorical"):
    """One of two or more choices, each a str, an int, a float or a bool.

    >>> Categorical(["rbf", "linear"])
    Categorical(choices=('rbf', 'linear'))
    """

    choices: Sequence[Value]

    def __post_init__(self) -> None:
        if isinstance(self.choices, str) or not isinstance(self.choices, Sequence):
            raise ValueError(f"choices is {self.choices!r}, expected a list of choices")
        choices = tuple(map(to_builtin, self.choices))
        for choice in choices:
            if not isinstance(choice, str | bool) and math.isnan(number(choice, float)):
                raise ValueError(f"choice {choice!r} is not a str, a finite number or a bool")
        if len(choices) < 2 or len({*choices}) < len(choices):
            raise ValueError(f"choices is {choices!r}, expected two or more, no two of them equal")
        msgspec.structs.force_setattr(self, "choices", choices)

    def axis(self) -> Axis:
        """Its dimensions of the cube."""
        return Choices(self.choices)


Parameter = Float | Int | Categorical


def _check_range(given: Float | Int, kind: type[int] | type[float]) -> None:
    for field in ("low", "high", "step") if given.step is not None else ("low", "high"):
        value = number(getattr(given, field), kind)
        if math.isnan(value) or (kind is int and abs(value) >= 2**63):
            expected = (
                "an int of 64 bits" if kind is int else "a number, finite and at most 1e300 in size"
            )
            raise ValueError(f"{field} is {getattr(given, field)!r}, expected {expected}")
        msgspec.structs.force_setattr(given, field, value)
    if not isinstance(given.log, bool):
        raise ValueError(f"log is {given.log!r}, expected True or False")
    if not given.low < given.high:
        raise ValueError(f"low is {given.low} and high is {given.high}, expected low < high")
    if given.log and given.low <= 0:
        raise ValueError(f"low is {given.low}, expected more than 0 on a log scale")
    if given.step is not None and given.step <= 0:
        raise ValueError(f"step is {given.step}, expected more than 0")


class Space:
    """Named parameters, the direction of the score, and maybe a list of the only points allowed.

    ``names`` and ``parameters`` are in order; ``sign`` is -1 where scores are minimised;
    ``dimensions`` is D; ``free`` (D,) tells the continuous dimensions; ``points`` (n, D) are the
    listed points on the cube and ``listed`` their parameters, or both None. ``box`` is None: see
    `Part`. Whatever is wrong with
    a value is a ValueError that names the parameter.

    >>> space = Space({"C": Float(1e-4, 10, log=True), "depth": Int(1, 8)}, direction="minimize")
    >>> x = space.encode({"C": 0.1, "depth": 3})
    >>> x.round(4).tolist(), space.decode(x)
    ([0.6, 0.3125], {'C': 0.1, 'depth': 3})
    >>> space.encode({"C": 0.1, "depth": 9})
    Traceback (most recent call last):
    ValueError: parameter 'depth' is 9, expected an int: 1, 2, ... 8
    """

    box: tuple[Array, Array] | None = None

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
        self._axes: list[tuple[str, Axis, slice]] = []
        free: list[bool] = []
        for name, parameter in self.parameters.items():
            axis = parameter.axis()
            self._axes.append((name, axis, slice(len(free), len(free) + axis.size)))
            free += [isinstance(axis, Continuous)] * axis.size
        self.dimensions = len(free)
        self.free = np.array(free, dtype=np.bool_)
        self.free.setflags(write=False)
        self.listed: list[dict[str, Value]] | None = None
        self.points: Array | None = None
        if points is not None:
            self._list(points)

    def _list(self, points: Sequence[Mapping[str, Value]]) -> None:
        if len(points) == 0:
            raise ValueError("points is empty, expected one or more, or None for no list")
        rows: dict[bytes, int] = {}
        for i, point in enumerate(points):
            try:
                x = self._place(point)
            except ValueError as error:
                raise ValueError(f"points[{i}]: {error}") from None
            first = rows.setdefault(x.tobytes(), i)
            if first != i:
                raise ValueError(f"points[{i}] is {dict(point)}, which is points[{first}] again")
        self.listed = [self._as_listed(point) for point in points]
        self.points = np.frombuffer(b"".join(rows)).reshape(-1, self.dimensions)
        self._rows = frozenset(rows)

    def _as_listed(self, point: Mapping[str, Value]) -> dict[str, Value]:
        """The point in plain Python; only a continuous value can be finer than its place."""
        x = self._place(point).tolist()
        return {
            name: number(point[name], float) if isinstance(axis, Continuous) else axis.decode(x[at])
            for name, axis, at in self._axes
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.difference(other) is None

    def __hash__(self) -> int:
        return hash((*self.parameters.items(), self.direction))

    def __repr__(self) -> str:
        points = "" if self.listed is None else f", points={self.listed}"
        return f"Space({self.parameters}, direction={self.direction!r}{points})"

    def difference(self, other: Space) -> str | None:
        """A sentence that names the first difference, or None if there is none.

        >>> Space({"C": Float(0, 1)}).difference(Space({"C": Float(0, 2)}))
        "parameter 'C': high is 1.0 here and 2.0 there"
        """
        return next(_differences(self, other), None)

    def place_of(self, name: str) -> slice:
        """The dimensions of the cube that a parameter has; an error if there is none."""
        for known, _, at in self._axes:
            if known == name:
                return at
        raise ValueError(f"parameter {name!r} is not in the space, expected one of {self.names}")

    def encode(self, params: Mapping[str, Value]) -> Array:
        """The point x (D,) of the cube where ``params`` lie; on a listed domain, only if listed."""
        x = self._place(params)
        if self.points is not None and x.tobytes() not in self._rows:
            raise ValueError(
                f"{dict(params)} is none of the {len(self.points)} listed points; "
                f"the nearest is {self.decode(x)}"
            )
        return x

    def _place(self, params: Mapping[str, Value]) -> Array:
        if params.keys() != self.parameters.keys():
            missing = [name for name in self.names if name not in params]
            unknown = [name for name in params if name not in self.parameters]
            raise ValueError(
                f"parameters do not fit: missing {missing}, unknown {unknown}, "
                f"expected {[*self.names]}"
            )
        x: list[float] = []
        for name, axis, _ in self._axes:
            place = axis.encode(params[name])
            if place is None:
                raise ValueError(f"parameter {name!r} is {params[name]!r}, expected {axis.allowed}")
            x += place
        return np.array(x)

    def decode(self, x: ArrayLike) -> dict[str, Value]:
        """The parameters at x (D,); on a listed domain those of the nearest point, as listed."""
        point = np.asarray(x, dtype=np.float64)
        if point.shape != (self.dimensions,):
            raise ValueError(f"x has shape {point.shape}, expected ({self.dimensions},)")
        numbers = point.tolist()
        if not all(map(math.isfinite, numbers)):
            name = next(name for name, _, at in self._axes if not np.isfinite(point[at]).all())
            raise ValueError(f"x is {numbers}, not finite where parameter {name!r} lies")
        if self.points is not None and self.listed is not None:
            return dict(self.listed[_nearest(point[None], self.points)[0]])
        return {name: axis.decode(numbers[at]) for name, axis, at in self._axes}

    def snap(self, X: NDArray[_Real]) -> NDArray[_Real]:
        """The allowed points nearest to X (n, D), in its precision; X itself where all are."""
        if X.ndim != 2 or X.shape[1] != self.dimensions:
            raise ValueError(f"X has shape {X.shape}, expected (n, {self.dimensions})")
        if self.points is not None:
            return self.points[_nearest(X, self.points)].astype(X.dtype, copy=False)
        if self.free.all():
            return X
        snapped = X.copy()
        for _, axis, at in self._axes:
            if not self.free[at.start]:
                snapped[:, at] = axis.snap(X[:, at].astype(np.float64))
        return snapped

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """n allowed points, uniform on the cube or among the listed ones: (n, D)."""
        if self.points is not None:
            return self.points[rng.integers(len(self.points), size=n)]
        return self.snap(rng.random((n, self.dimensions)))


class Part:
    """The part of a space that lies in narrower ranges: where to look for the next query.

    ``parameters`` are the narrower ones, ``box`` the lower and upper corner of the part, (D,) each,
    on the cube of the whole space, where its points keep their places.

    >>> part = Part(Space({"C": Float(0, 1), "depth": Int(1, 8)}), {"C": Float(0.2, 0.4)})
    >>> part.spread(np.array([0.5, 0.5])).round(4).tolist()
    [0.3, 0.5625]
    """

    points = None

    def __init__(self, space: Space, parameters: Mapping[str, Parameter]) -> None:
        if space.points is not None:
            raise ValueError("a space with listed points has no narrower ranges: list fewer points")
        self.space, self.parameters = space, dict(parameters)
        self.dimensions, self.free = space.dimensions, space.free
        low, high = np.zeros(self.dimensions), np.ones(self.dimensions)
        for name, given in self.parameters.items():
            at = space.place_of(name)
            low[at], high[at] = _ends(space, name, given)
        self.box = low, high

    def snap(self, X: NDArray[_Real]) -> NDArray[_Real]:
        """The allowed points of the part that are nearest to X (n, D), in its precision."""
        low, high = self.box
        inside: NDArray[_Real] = np.clip(X, low.astype(X.dtype), high.astype(X.dtype))
        return self.space.snap(inside)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Draw n allowed points, uniform on the part: (n, D)."""
        low, high = self.box
        return self.snap(low + (high - low) * rng.random((n, self.dimensions)))

    def spread(self, x: Array) -> Array:
        """The point (D,) of the part that lies in it as x lies in the cube, moved to an allowed."""
        low, high = self.box
        point: Array = self.snap((low + (high - low) * x)[None])[0]
        return point


def _ends(space: Space, name: str, given: Parameter) -> tuple[float, float]:
    """Where the narrower range of a parameter begins and ends on the cube."""
    whole = space.parameters.get(name)
    alike = type(given) is type(whole) and not isinstance(given, Categorical)
    if (
        whole is None
        or not alike
        or any(getattr(given, field) != getattr(whole, field) for field in ("log", "step"))
    ):
        raise ValueError(f"parameter {name!r} is {given}, expected a narrower range of {whole}")
    assert isinstance(given, Float | Int)
    ends = [whole.axis().encode(value) for value in (given.low, given.high)]
    if ends[0] is None or ends[1] is None:
        raise ValueError(f"parameter {name!r} is {given}, which is not all inside {whole}")
    return ends[0][0], ends[1][0]


def _checked(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    if not isinstance(parameters, Mapping):
        raise TypeError(
            f"parameters is {parameters!r}, expected names and parameters: "
            '{"x": Float(0, 1)}; a list of allowed points is given as points=[...]'
        )
    if not parameters:
        raise ValueError("parameters is empty, expected one or more")
    for name, parameter in parameters.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"parameter name is {name!r}, expected a str that is not empty")
        if not isinstance(parameter, Float | Int | Categorical):
            raise ValueError(
                f"parameter {name!r} is {parameter!r}, expected a Float, an Int or a Categorical"
            )
    return dict(parameters)


def _nearest(X: NDArray[_Real], points: Array) -> NDArray[np.intp]:
    """For each of X the row of the nearest point; no more than _CHUNK distances at a time."""
    nearest = np.empty(len(X), dtype=np.intp)
    rows = max(_CHUNK // len(points), 1)
    for i in range(0, len(X), rows):
        # Differences first, then squares: a point is at distance 0 from itself and from no other.
        columns = zip(X[i : i + rows].T, points.T, strict=True)
        distances = sum((a[:, None] - b) ** 2 for a, b in columns)
        nearest[i : i + rows] = np.argmin(distances, axis=1)
    return nearest


def _differences(here: Space, there: Space) -> Iterator[str]:
    for name in (*here.names, *there.names):
        if (name in here.names) != (name in there.names):
            yield f"parameter {name!r} is only {'here' if name in here.names else 'there'}"
    if here.names != there.names:
        yield f"the parameters are in order {[*here.names]} here and {[*there.names]} there"
    for name in here.names:
        ours, theirs = here.parameters[name], there.parameters[name]
        if type(ours) is not type(theirs):
            yield f"parameter {name!r} is {ours} here and {theirs} there"
        for field in ours.__struct_fields__:
            a, b = repr(getattr(ours, field)), repr(getattr(theirs, field))  # 1 is not True
            if a != b:
                yield f"parameter {name!r}: {field} is {a} here and {b} there"
    if here.direction != there.direction:
        yield f"direction is {here.direction!r} here and {there.direction!r} there"
    pairs = zip_longest(here.listed or [], there.listed or [])
    for i, (mine, yours) in enumerate(pairs):
        if mine != yours:
            yield f"points[{i}] is {mine} here and {yours} there"
