"""A sampled function: the one kind of object that `argmax` knows.

An agent's own posterior draw f_t and a peer's message φ(x)ᵀω_n are both sampled functions. They can
be called for values and asked for gradients. Both are computed in the precision of the points:
float32 to screen many, float64 to refine a few.
"""

from __future__ import annotations

from typing import Protocol

from fedbo.model.kernel import Array


class SampledFunction(Protocol):
    """A deterministic function on the unit cube, drawn from somebody's belief.

    A function that is costly and has few maxima may have an attribute ``screened``: the number of
    points that are enough to find them.
    """

    length_scales: Array
    """Distance in each dimension over which the function changes noticeably, (D,)."""

    def __call__(self, X: Array) -> Array:
        """Return the values at the rows of X: (n, D) -> (n,)."""

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        """Return the values (n,) and gradients (n, D) at the rows of X."""


class Tabled:
    """An exact joint draw at the points of a discrete domain, known at these points only.

    Args:
        points: The points of the domain, (n, D).
        values: The values there, (n,).
        length_scales: As of any `SampledFunction`, (D,).
    """

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
