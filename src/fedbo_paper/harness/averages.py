"""Means and their standard errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    """Mean over the first axis and its standard error, NaN if there is one value only.

    >>> mean, error = mean_and_error(np.array([1.0, 3.0]))
    >>> float(mean), float(error)
    (2.0, 1.0)
    """
    if len(values) < 2:
        return values.mean(axis=0), np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
