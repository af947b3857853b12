"""What an agent hands out by default: a summary of its belief, in 4 bits a number and counts.

======  =====================================================================  ============
symbol  meaning                                                                shape
======  =====================================================================  ============
B       leading directions of the features, orthonormal                        (M, k)
z       coordinates of the weights ω along them: Bᵀω                           (k,)
A       features of a trial of which only the cell is known, one row a cell    (c, M)
counts  how many trials are in each cell: 0, 1, 2, or 4 for 3 and more         (c,)
G       I − cov(z), given trials of which only the cells are known             (k, k)
g, Q    eigenvalues and eigenvectors of G: 0 in directions that the trials     (k,), (k, k)
        say nothing about, 1 in directions that they determine
ρ       ``NOISE``: size of the noise, in standard deviations of the belief     scalar
v       Bᵀ(ν + ρ (ω − ν)), where ω is a draw: the mean of z, with noise        (k,)
m, C    the summary: mean and covariance of z, given v                         (k,), (k, k)
Δ       ``scale``, the step of a message: its largest |m| / 7                  scalar
levels  m / Δ, rounded to whole numbers at random, −7 to 7                     (k,)
q       Δ² / 6, the variance of rounding                                       scalar
K       I − C: G² / ((1 − ρ²) G + ρ² I)                                        (k, k)
V       a factor of G: G = VᵀV, a row for each cell tried                      (r, k)
R       a factor of the receiver's I − C, with orthogonal rows: RᵀR            (r, k)
======  =====================================================================  ============

**The summary.** The exact covariance of a belief depends on nothing but the points of its trials,
and a peer can solve for them. So a summary has the covariance of trials of which only the cells are
known, and its mean has noise. Exact points still enter through v: its mean is that of the exact
belief, and its noise has the exact covariance.

A trial somewhere in a cell has the features φ̄ + e, where φ̄ is their mean over the cell. Its score
tells φ̄ᵀω with the noise σ² + E‖e‖², which is the same as telling aᵀω with the noise σ² for a =
φ̄ σ / √(σ² + E‖e‖²). These are the rows of A.

Along an eigenvector with eigenvalue g, the mean of z has the prior N(0, g), and the noise in v the
variance ρ² (1 − g). So the best guess of the mean, and of z itself, is g / (g + ρ² (1 − g)) times
v, and the message leaves z the variance 1 − g² / (g + ρ² (1 − g)).

**Rounding.** A number x of Δ is rounded up with the probability x − ⌊x⌋, and else down. So means of
many peers average to the right one. The error has the variance f (1 − f) Δ² if f is the fraction,
which is q on average.

**The receiver.** The covariance of a summary depends on nothing but public things and the counts.
So the counts are sent in its place, and a receiver computes G and K as the sender did. The means m
of summaries with this G have the covariance K. So the best guess of m, and of z itself, given m
plus an error of variance q, is K (K + q I)⁻¹ times that, and I − C becomes K (K + q I)⁻¹ K. This
also removes the errors in directions that the trials say nothing about.

Coarse counts take less room and reveal less. They also say less than a sender knows if it has many
trials in a cell. No harm was seen (docs/lab/sizes.md): an optimiser repeats places, and then many
trials in a cell tell less than they seem to.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbo.message.compact import BITS, COUNTED
from fedbo.model.features import Features
from fedbo.model.kernel import Array

#: ρ. With all of the noise of a draw, ρ = 1, few and young peers are of less use.
NOISE = 0.5

Counts = NDArray[np.integer]
Levels = NDArray[np.int8]
Scales = NDArray[np.float32]

_LEAST = 1e-9  # of q: a summary is held in float32, and K may have no inverse


def cell_features(features: Features, X: Array, cells: Counts, sigma2: float) -> Array:
    """Return A (c, M).

    Args:
        features: The feature map φ.
        X: Points all over the space, (n, D), with at least one in each cell.
        cells: The cell of each point, 0 to c − 1, (n,).
        sigma2: σ², the noise variance.
    """
    counts = np.bincount(cells)
    means = np.zeros((len(counts), features.M))
    np.add.at(means, cells, features(X))
    means /= counts[:, None]
    spread = features.signal_variance - np.einsum("ij,ij->i", means, means)  # E‖e‖²
    scaled: Array = means * np.sqrt(sigma2 / (sigma2 + np.maximum(spread, 0.0)))[:, None]
    return scaled


def factor_of(A: Array, counts: Counts, sigma2: float, B: Array) -> Array:
    """Return V (r, k) with G = VᵀV for the counts of one agent, a row for each cell tried."""
    tried = np.flatnonzero(counts)
    Phi = A[tried] * np.sqrt(counts[tried], dtype=np.float64)[:, None]
    L = np.linalg.cholesky(Phi @ Phi.T + sigma2 * np.eye(len(tried)))
    V: Array = np.linalg.solve(L, Phi @ B)
    return V


def summarise(nu: Array, omega: Array, G: Array, B: Array) -> tuple[Array, Array]:
    """Return m (k,) and C (k, k), from the mean of a belief and a draw of it, (M,)."""
    v = B.T @ (nu + NOISE * (omega - nu))
    g, Q = np.linalg.eigh(G)
    g = g.clip(0.0, 1.0)
    s = g / np.maximum(g + NOISE**2 * (1.0 - g), np.finfo(float).tiny)
    return Q @ (s * (Q.T @ v)), np.eye(len(G)) - (Q * (g * s)) @ Q.T


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

    >>> saturated(np.array([0, 1, 2, 3, 4, 50])).tolist()
    [0, 1, 2, 4, 4, 4]
    """
    return np.array(COUNTED, dtype=np.uint8)[np.minimum(counts, len(COUNTED) - 1)]


def belief(levels: Levels, scale: float, V: Array) -> tuple[Array, Array]:
    """Return what an inbox holds of one message: m (k,) and R (r, k), the longest rows first.

    G has no more directions than cells were tried, so a young agent's message takes a tenth of the
    time of computing with (k, k) matrices.
    """
    g, U = np.linalg.eigh(V @ V.T)
    g, U = g[::-1].clip(0.0, 1.0), U[:, ::-1]
    sizes = np.sqrt(np.maximum(g, _LEAST))
    Q = (U / np.where(g > _LEAST, sizes, np.inf)).T @ V  # the eigenvectors of G, (r, k)
    K = g * g / ((1.0 - NOISE**2) * g + NOISE**2)
    gain = K / (K + max(scale**2 / 6.0, _LEAST))
    return (gain * (Q @ (levels * scale))) @ Q, np.sqrt(gain * K)[:, None] * Q
