"""Scores as an agent's models see them, and the way back to the user's units.

======  =============================================================  ======
symbol  meaning                                                        shape
======  =============================================================  ======
y       scores told so far, to be maximised, in the user's units       (t,)
z       the same scores in standard units: mean 0, deviation 1         (t,)
======  =============================================================  ======

`Standardised` compresses low scores, because one very bad score would make all others look equal.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedbo.model.kernel import Array

_FAR = 30.0  # robust deviations below the median: a lower score may be an outlier
_RARE = 0.05  # largest share of the scores that can be outliers


class Scores(Protocol):
    """A transformation that was fitted to the scores y."""

    @property
    def z(self) -> Array:
        """The scores in standard units, (t,)."""

    def unwarp(self, z: Array) -> Array:
        """Return standard scores in the user's units."""


class Standardised:
    """Scores with mean 0 and standard deviation 1, low ones compressed; all 0 if all are equal.

    A score z standard deviations below the mean becomes −log(1 − z). The order of the scores is
    kept, and neither their unit nor their origin matters.

    Args:
        y: Scores (t,), to be maximised.

    >>> Standardised(np.array([-100.0, 0.0, 1.0, 2.0])).z.round(2).tolist()
    [-1.73, 0.53, 0.58, 0.63]
    >>> Standardised(np.array([1.0, 3.0])).unwarp(np.array([-1.0, 0.0, 1.0])).tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, y: Array) -> None:
        self.y = y
        self.z = standardised(y) if len(y) else y

    def unwarp(self, z: Array) -> Array:
        """Return standard scores in the user's units.

        Between known scores it interpolates. Beyond the lowest and the highest one it continues the
        line from the median score to that end.
        """
        order = np.argsort(self.z)
        zs, ys = self.z[order], self.y[order]
        y = np.interp(z, zs, ys)
        middle = len(zs) // 2
        for end, beyond in ((-1, z > zs[-1]), (0, z < zs[0])):
            if zs[end] != zs[middle]:
                slope = (ys[end] - ys[middle]) / (zs[end] - zs[middle])
                y = np.where(beyond, ys[end] + slope * (z - zs[end]), y)
        return y


class Raw:
    """Scores without any change: the standard units are the user's."""

    def __init__(self, y: Array) -> None:
        self.z = y

    def unwarp(self, z: Array) -> Array:
        return z


def standardised(y: Array) -> Array:
    """Return the z of `Standardised` for the scores of one agent, (t,), or of many, (n, t).

    Args:
        y: Scores, to be maximised; at least one of each agent.

    >>> standardised(np.array([[1.0, 3.0], [5.0, 5.0]])).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    z = _unit(_without_outliers(y))
    return _unit(np.where(z < 0.0, -np.log1p(np.maximum(-z, 0.0)), z))


def _without_outliers(y: Array) -> Array:
    """Move outliers, a few scores far below the median, closer to it, and keep their order.

    Many low scores are no outliers: after convergence, all early scores lie far below the median.
    """
    largest = np.abs(y).max(axis=-1, keepdims=True)
    y = np.where(largest > 1e150, y / np.maximum(largest, 1.0), y)  # differences stay finite
    median = _median(y)
    far = _FAR * 1.4826 * _median(np.abs(y - median))
    outliers = np.count_nonzero(y < median - far, axis=-1, keepdims=True)
    moved = (outliers > 0) & (outliers <= max(1.0, _RARE * y.shape[-1])) & (far > 0.0)
    if not moved.any():
        return y
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # where far is 0 or tiny
        depth = np.maximum((median - y) / far, 1.0)
    return np.where(moved & (depth > 1.0), median - far * (2.0 - 1.0 / depth), y)


def _median(y: Array) -> Array:
    """Return the median; for a few numbers, `np.median` takes ten times as long."""
    ordered, t = np.sort(y, axis=-1), y.shape[-1]
    middle: Array = 0.5 * (ordered[..., (t - 1) // 2, None] + ordered[..., t // 2, None])
    return middle


def _unit(y: Array) -> Array:
    largest = np.abs(y).max(axis=-1, keepdims=True)
    y = y / np.where(largest > 0.0, largest, 1.0)  # squares of very large scores stay finite
    deviation = y - y.mean(axis=-1, keepdims=True)
    scale = deviation.std(axis=-1, keepdims=True)
    return np.where(scale > 1e-12, deviation / np.maximum(scale, 1e-12), 0.0)
