"""The part of a space to which queries are limited."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedbo.space.axis import Array, Axis, Real
from fedbo.space.parameter import Categorical, Parameter
from fedbo.space.space import Space


class Part:
    """The part of a space inside narrower ranges, to which queries are limited.

    Its points keep their places on the cube of the whole space.

    Args:
        space: The whole space, without listed points.
        parameters: Narrower ranges by parameter.

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
        for name, given in self.parameters.items():
            if name not in space.axes:
                raise ValueError(f"parameter {name!r} is not in the space, only {space.names}")
            axis, at = space.axes[name]
            low[at], high[at] = _ends(name, given, space.parameters[name], axis)
        self.box = low, high

    def __repr__(self) -> str:
        return f"Part({self.parameters} of {self.space})"

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


def _ends(name: str, given: Parameter, whole: Parameter, axis: Axis) -> tuple[float, float]:
    """Return where the narrower range of a parameter begins and ends on the cube."""
    if (
        isinstance(given, Categorical)
        or isinstance(whole, Categorical)
        or type(given) is not type(whole)
        or (given.log, given.step) != (whole.log, whole.step)
    ):
        raise ValueError(f"parameter {name!r} is {given}, expected a narrower range of {whole}")
    low, high = axis.encode(given.low), axis.encode(given.high)
    if low is None or high is None:
        raise ValueError(f"parameter {name!r} is {given}, which is not all inside {whole}")
    return low[0], high[0]
