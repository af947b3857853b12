"""A sampled function: the one kind of object that `argmax` knows.

An agent's own posterior draw f_t and a peer's message φ(x)ᵀω_n become the same thing here: call it
for values, ask it for gradients. Both are computed in the precision of the points that are given:
float32 to screen many, float64 to refine a few.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class SampledFunction(Protocol):
    """A deterministic function on the unit cube, drawn from somebody's belief.

    One that is costly and has few maxima may say that ``screened`` points are enough to find them.
    """

    length_scales: Array
    """How far one has to move in each dimension to see something new, (D,)."""

    def __call__(self, X: Array) -> Array:
        """Values at the rows of X: (n, D) -> (n,)."""

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        """Values (n,) and gradients (n, D) at the rows of X."""


class Tabled:
    """A function known at the points of a discrete domain only: an exact joint draw there."""

    def __init__(self, points: Array, values: Array, length_scales: Array) -> None:
        self.points = points
        self.values = values
        self.length_scales = length_scales

    def __call__(self, X: Array) -> Array:
        if X is not self.points:
            raise ValueError("a draw on a discrete domain has values at that domain's points only")
        return self.values

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        raise ValueError("a draw on a discrete domain has no gradient")
