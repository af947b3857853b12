"""Compact messages: the mean of a summary in 4 bits a number, and counts for its covariance.

======  =====================================================================  ============
symbol  meaning                                                                shape
======  =====================================================================  ============
N, c    number of messages, number of public cells                             scalars
m       the means of N summaries (`fedbo.model.summary`)                       (N, k)
Δ       ``scale``, the step of a message: its largest |m| / 7                   (N,)
levels  m / Δ, rounded to whole numbers at random, −7 to 7                     (N, k)
counts  how many trials are in each cell: 0, 1, 2, or 4 for 3 and more         (N, c)
G       what `summary.known_of` makes of the counts of one message             (k, k)
ρ       the noise of a summary, `summary.NOISE`                                scalar
K       I − C of a summary with this G: G² / ((1 − ρ²) G + ρ² I)               (k, k)
q       Δ² / 6, the variance of rounding                                       (N,)
V       a factor of G of one message: G = VᵀV, a row for each cell tried       (r, k)
R       a factor of I − C with orthogonal rows: I − C = RᵀR                    (r, k)
======  =====================================================================  ============

A number x of Δ is rounded up with the probability x − ⌊x⌋, and else down. So the levels have the
mean m / Δ, and means of many peers average to the right one. The error has the variance f (1 − f)
Δ² if f is the fraction, which is q on average.

The covariance of a summary depends on nothing but public things and the counts. So the counts are
sent in its place, and a receiver computes G and K as the sender did. The means m of summaries with
this G have the covariance K. So the best guess of m, and of z itself, given m plus an error of
variance q, is K (K + q I)⁻¹ times that, and I − C becomes K (K + q I)⁻¹ K. This also removes the
errors in directions that the trials say nothing about.

Coarse counts take less room and reveal less. They also say less than a sender knows if it has many
trials in a cell. No harm was seen (`docs/transfer.md`): an optimiser repeats places, and then many
trials in a cell tell less than they seem to.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbo.message.compact import BITS, COUNTED
from fedbo.model.kernel import Array
from fedbo.model.summary import NOISE, Counts

Levels = NDArray[np.int8]
Scales = NDArray[np.float32]

_LEAST = 1e-9  # of q: a summary is held in float32, and K may have no inverse


def quantise(m: Array, rng: np.random.Generator) -> tuple[Levels, Scales]:
    """Round means at random; return the levels (N, k) and the scales (N,).

    The largest number of each mean becomes the largest level. If all numbers of a mean are 0, or
    too small for float32, its levels and its scale are 0.

    Args:
        m: Means of summaries, (N, k).
        rng: Decides what is rounded up.

    >>> levels, scales = quantise(np.array([[0.5, 1.0, -2.0]]), np.random.default_rng(0))
    >>> levels.tolist(), (7 * scales).round(3).tolist()
    ([[2, 3, -7]], [2.0])
    """
    largest = 2 ** (BITS - 1) - 1
    exact = np.abs(m).max(axis=1) / largest
    with np.errstate(over="ignore"):  # what is too large becomes inf, which a message refuses
        scales = exact.astype(np.float32)
    scales = np.where(scales > exact, np.nextafter(scales, np.float32(0.0)), scales)
    scales[scales < np.finfo(np.float32).tiny] = 0.0
    steps = np.where(scales > 0.0, scales, np.inf).astype(np.float64)[:, None]
    x = (m / steps).clip(-largest, largest)
    return np.floor(x + rng.random(m.shape)).astype(np.int8), scales


def saturated(counts: Counts) -> NDArray[np.uint8]:
    """Return counts as a receiver takes them: 0, 1, 2, or 4 for 3 and more.

    Args:
        counts: How many trials are in each cell, of any shape.

    >>> saturated(np.array([0, 1, 2, 3, 4, 50])).tolist()
    [0, 1, 2, 4, 4, 4]
    """
    return np.array(COUNTED, dtype=np.uint8)[np.minimum(counts, len(COUNTED) - 1)]


def belief(levels: Levels, scale: float, V: Array) -> tuple[Array, Array]:
    """Return what an inbox holds of one message: m (k,) and R (r, k), the longest rows first.

    G has no more directions than cells were tried, so a young agent's message takes a tenth of the
    time of computing with (k, k) matrices.

    Args:
        levels: The levels of the message, (k,).
        scale: Its scale Δ.
        V: A factor of G, (r, k).
    """
    g, U = np.linalg.eigh(V @ V.T)
    g, U = g[::-1].clip(0.0, 1.0), U[:, ::-1]
    sizes = np.sqrt(np.maximum(g, _LEAST))
    Q = (U / np.where(g > _LEAST, sizes, np.inf)).T @ V  # the eigenvectors of G, (r, k)
    K = g * g / ((1.0 - NOISE**2) * g + NOISE**2)
    gain = K / (K + max(scale**2 / 6.0, _LEAST))
    return (gain * (Q @ (levels * scale))) @ Q, np.sqrt(gain * K)[:, None] * Q
