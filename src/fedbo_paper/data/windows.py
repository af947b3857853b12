"""Moments of irregular readings in windows of time.

=======  ===============================================================================
t        times of readings, ascending (r,)
v        their values (r, c): one column a channel
k        which window a reading falls into, ascending (r,)
w        the windows that have readings, ascending (m,)
moments  (m, 3, c): mean, variance, kurtosis of each channel in each window
=======  ===============================================================================

Variance is the mean squared deviation (divisor n). Kurtosis is Fisher's, m₄ / m₂² − 3 without a
correction for small n, so a normal distribution has 0. A channel that is constant in a window gets
kurtosis 0.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Windows(msgspec.Struct, frozen=True, eq=False):
    """The windows of one sensor: numbers w (m,), counts of readings (m,), moments, last values."""

    w: Ints
    counts: Ints
    moments: Floats
    last: Floats


def moments(k: Ints, v: Floats) -> Windows:
    """Compute the moments of the readings v in each window k.

    >>> windows = moments(np.array([4, 4, 7]), np.array([[1.0], [3.0], [5.0]]))
    >>> windows.w.tolist(), windows.counts.tolist(), windows.moments[..., 0].tolist()
    ([4, 7], [2, 1], [[2.0, 1.0, -2.0], [5.0, 0.0, 0.0]])
    """
    starts = np.flatnonzero(np.diff(k, prepend=k[:1] - 1))
    counts = np.diff(starts, append=len(k))
    n = counts[:, None]
    # First subtract the first reading of the window, then the mean: so a large offset costs no
    # digits, and a constant channel has deviations of exactly 0.
    first = v[starts]
    deviations = v - np.repeat(first, counts, axis=0)
    offset = np.add.reduceat(deviations, starts) / n
    deviations -= np.repeat(offset, counts, axis=0)
    squares = deviations**2
    m2 = np.add.reduceat(squares, starts) / n
    m4 = np.add.reduceat(squares**2, starts) / n
    varies = m2**2 > 0
    kurtosis = np.where(varies, m4 / np.where(varies, m2**2, 1.0) - 3.0, 0.0)
    return Windows(
        w=k[starts],
        counts=counts,
        moments=np.stack([first + offset, m2, kurtosis], axis=1),
        last=v[starts + counts - 1],
    )


def carried(windows: Windows, w: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    """Compute moments in the windows w for a sensor that reports only changes.

    In a window without a reading, the sensor has its last value.

    Returns:
        The moments (m, 3, c), and which of the windows have a value at all (m,).

    >>> sensor = moments(np.array([2, 2]), np.array([[1.0], [3.0]]))
    >>> values, there = carried(sensor, np.array([1, 2, 3]))
    >>> values[there, :, 0].tolist(), there.tolist()
    ([[2.0, 1.0, -2.0], [3.0, 0.0, 0.0]], [False, True, True])
    """
    i = np.searchsorted(windows.w, w, side="right") - 1
    silent = np.zeros_like(windows.moments)
    silent[:, 0] = windows.last
    heard = windows.w[i] == w
    return np.where(heard[:, None, None], windows.moments[i], silent[i]), i >= 0
