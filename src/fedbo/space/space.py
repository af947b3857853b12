"""What is tuned: named parameters, the direction of the score, and a part with narrower ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.space.axis import Array, Value
from fedbo.space.cube import Cube, Listed
from fedbo.space.parameter import Categorical, Float, Int, Parameter

Direction = Literal["maximize", "minimize"]
_Real = TypeVar("_Real", np.float32, np.float64)


class Space:
    """Named parameters, the direction of the score, and optionally a list of the only points.

    An invalid value raises a ValueError that names the parameter.

    Args:
        parameters: The parameters by name. Their order matters.
        direction: ``"maximize"`` (default) or ``"minimize"`` the score.
        points: The only combinations of parameters that are allowed (default: all are).

    Attributes:
        names: The names of the parameters.
        sign: 1 if scores are maximised, -1 if they are minimised.
        dimensions: D, the dimensions of the unit cube.
        free: Which dimensions are continuous, (D,).
        box: The lower and the upper corner of the cube, (D,) each.
        points: The listed points on the cube, (n, D); None if there is no list.
        listed: The parameters of the listed points, or None.

    >>> space = Space({"C": Float(1e-4, 10, log=True), "depth": Int(1, 8)}, direction="minimize")
    >>> x = space.encode({"C": 0.1, "depth": 3})
    >>> x.round(4).tolist(), space.decode(x)
    ([0.6, 0.3125], {'C': 0.1, 'depth': 3})
    >>> space.encode({"C": 0.1, "depth": 9})
    Traceback (most recent call last):
    ValueError: parameter 'depth' is 9, expected an int: 1, 2, ... 8
    """

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
        cube = Cube(self.parameters) if points is None else Listed(self.parameters, points)
        self._cube = cube
        self.dimensions, self.free = cube.dimensions, cube.free
        self.points, self.listed = cube.points, cube.listed
        self.box: tuple[Array, Array] = np.zeros(self.dimensions), np.ones(self.dimensions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.difference(other) is None

    def __hash__(self) -> int:
        return hash((*self.parameters.items(), self.direction))

    def __repr__(self) -> str:
        points = "" if self.listed is None else f", points={self.listed}"
        return f"Space({self.parameters}, direction={self.direction!r}{points})"

    def difference(self, other: Space) -> str | None:
        """Return a sentence that names the first difference, or None if there is none.

        >>> Space({"C": Float(0, 1)}).difference(Space({"C": Float(0, 2)}))
        "parameter 'C': high is 1.0 here and 2.0 there"
        """
        return next(_differences(self, other), None)

    def place_of(self, name: str) -> slice:
        """Return the dimensions of the cube that belong to a parameter."""
        for known, _, at in self._cube.axes:
            if known == name:
                return at
        raise ValueError(f"parameter {name!r} is not in the space, expected one of {self.names}")

    def encode(self, params: Mapping[str, Value]) -> Array:
        """Return the point x (D,) of the cube where ``params`` lie.

        Raises:
            ValueError: A value is not allowed, or the space has a list without these parameters.
        """
        return self._cube.encode(params)

    def decode(self, x: ArrayLike) -> dict[str, Value]:
        """Return the allowed parameters nearest to x (D,)."""
        return self._cube.decode(x)

    def snap(self, X: NDArray[_Real]) -> NDArray[_Real]:
        """Return the allowed points nearest to X (n, D), in its precision."""
        return self._cube.snap(X)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return n random allowed points, (n, D)."""
        return self._cube.sample(rng, n)

    def design_point(self, i: int, rng: np.random.Generator) -> Array:
        """Return the i-th point (D,) of an initial design that fills the space, from 0.

        Args:
            i: Number of the point.
            rng: Scrambles the design; give a generator in the same state for each i.

        >>> space = Space({"x": Float(0, 1)})
        >>> points = [space.design_point(i, np.random.default_rng(0)) for i in (0, 1)]
        >>> (points[0] < 0.5).tolist(), (points[1] < 0.5).tolist()
        ([True], [False])
        """
        return self._cube.design_point(i, rng)


class Part:
    """The part of a space inside narrower ranges, to which queries are limited.

    Its points keep their places on the cube of the whole space.

    Args:
        space: The whole space, without listed points.
        parameters: Narrower ranges by parameter.

    Attributes:
        box: The lower and the upper corner of the part on the cube, (D,) each.

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
        for name, given in self.parameters.items():
            at = space.place_of(name)
            low[at], high[at] = _ends(space, name, given)
        self.box = low, high

    def __repr__(self) -> str:
        return f"Part({self.parameters} of {self.space})"

    def snap(self, X: NDArray[_Real]) -> NDArray[_Real]:
        """Return the allowed points of the part nearest to X (n, D), in its precision."""
        low, high = self.box
        inside: NDArray[_Real] = np.clip(X, low.astype(X.dtype), high.astype(X.dtype))
        return self.space.snap(inside)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return n random allowed points of the part, (n, D)."""
        return self._shrunk(self.space.sample(rng, n))

    def design_point(self, i: int, rng: np.random.Generator) -> Array:
        """Return the i-th point (D,) of an initial design that fills the part, from 0."""
        point: Array = self._shrunk(self.space.design_point(i, rng)[None])[0]
        return point

    def _shrunk(self, X: Array) -> Array:
        """Map points of the cube to the part."""
        low, high = self.box
        return self.snap(low + (high - low) * X)


def _ends(space: Space, name: str, given: Parameter) -> tuple[float, float]:
    """Return where the narrower range of a parameter begins and ends on the cube."""
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
