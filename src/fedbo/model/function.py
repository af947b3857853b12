"""Sampled functions: an agent's posterior draw f_t, or a peer's message φ(x)ᵀω_n.

They compute in the precision of the points: float32 to screen many, float64 to refine a few. Type
hints say float64 for both.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import msgspec
import numpy as np

from fedbo.model.kernel import Array


class SampledFunction(Protocol):
    """A deterministic function on the unit cube, drawn from somebody's belief.

    A function may say how `argmax` looks for its maximum, by one or two attributes: ``screened``,
    the largest number of points that are spread over the whole space, and ``search``, a `Search`.
    """

    length_scales: Array  # distance over which the function changes noticeably, (D,)

    def __call__(self, X: Array) -> Array:
        """Return the values at the rows of X: (n, D) -> (n,)."""

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        """Return the values (n,) and gradients (n, D) at the rows of X."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """How `argmax` looks for a maximum in a space without listed points.

    Args:
        around: Points screened around each of ``near``; 0 means these points themselves.
        starts: Number of points to climb from.
        gain: A climb ends where it expects less gain than this.
        hope: A climb ends if the best one is ahead by this many times its expected gain.
    """

    around: int = 0
    starts: int = 20
    gain: float = 1e-5
    hope: float = 4.0


class Tabled:
    """An exact joint draw at the points of a discrete domain.

    Args:
        points: The points, (n, D).
        values: The values there, (n,).
        length_scales: Those of the belief, (D,).
    """

    def __init__(self, points: Array, values: Array, length_scales: Array) -> None:
        self.points, self.values, self.length_scales = points, values, length_scales

    def __call__(self, X: Array) -> Array:
        if X is not self.points:
            raise ValueError("a draw on a discrete domain has values at that domain's points only")
        return self.values

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        raise ValueError("a draw on a discrete domain has no gradient")


def single(values: Array) -> Array:
    return values.astype(np.float32, copy=False)


class Twins:
    """Arrays in float32 and float64; each version is made when it is first needed.

    Args:
        arrays: The arrays, in either precision.

    >>> a, b = Twins(np.ones(2), np.zeros(3)).like(np.empty((5, 1), dtype=np.float32))
    >>> a.dtype, b.dtype
    (dtype('float32'), dtype('float32'))
    """

    def __init__(self, *arrays: Array) -> None:
        self._arrays = arrays

    def like(self, X: Array) -> tuple[Array, ...]:
        """Return the arrays in the precision of X."""
        return self.single if X.dtype == np.float32 else self.double

    @cached_property
    def single(self) -> tuple[Array, ...]:
        return tuple(map(single, self._arrays))

    @cached_property
    def double(self) -> tuple[Array, ...]:
        return tuple(array.astype(np.float64, copy=False) for array in self._arrays)
