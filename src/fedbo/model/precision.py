"""Constants of a function in both precisions: float32 to screen many points, float64 to refine few.

Type hints speak of float64 throughout, because precision is only a matter of speed.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fedbo.model.kernel import Array


def single(values: Array) -> Array:
    """Return the values in float32."""
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
        """Return the arrays in the precision of ``X``."""
        return self.single if X.dtype == np.float32 else self.double

    @cached_property
    def single(self) -> tuple[Array, ...]:
        """The arrays in float32."""
        return tuple(map(single, self._arrays))

    @cached_property
    def double(self) -> tuple[Array, ...]:
        """The arrays in float64."""
        return tuple(array.astype(np.float64, copy=False) for array in self._arrays)
