"""A summary of a belief: what an agent knows, and roughly where it has been.

======  =====================================================================  ============
symbol  meaning                                                                shape
======  =====================================================================  ============
B       leading directions of the features, orthonormal                        (M, k)
z       coordinates of the weights ω along them: Bᵀω                           (k,)
A       features of a trial of which only the cell is known, one row a cell    (c, M)
counts  how many trials are in each cell                                       (c,)
G       I − cov(z), given trials of which only the cells are known             (k, k)
g, Q    eigenvalues and eigenvectors of G: 0 in directions that the trials     (k,), (k, k)
        say nothing about, 1 in directions that they determine
ρ       ``NOISE``: size of the noise, in standard deviations of the belief     scalar
v       Bᵀ(ν + ρ (ω − ν)), where ω is a draw: the mean of z, with noise        (k,)
m, C    the summary: mean and covariance of z, given v                         (k,), (k, k)
======  =====================================================================  ============

The exact covariance of a belief depends on nothing but the points of its trials, and a peer can
solve for them. So a summary has the covariance of trials of which only the cells are known, and its
mean has noise. Exact points still enter through v: its mean is that of the exact belief, and its
noise has the exact covariance.

A trial somewhere in a cell has the features φ̄ + e, where φ̄ is their mean over the cell. Its score
tells φ̄ᵀω with the noise σ² + E‖e‖², which is the same as telling aᵀω with the noise σ² for a =
φ̄ σ / √(σ² + E‖e‖²). These are the rows of A.

Along an eigenvector with eigenvalue g, the mean of z has the prior N(0, g), and the noise in v the
variance ρ² (1 − g). So the best guess of the mean, and of z itself, is g / (g + ρ² (1 − g)) times
v, and the message leaves z the variance 1 − g² / (g + ρ² (1 − g)).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbo.model.features import Features
from fedbo.model.kernel import Array
from fedbo.model.linear import Posterior

#: ρ. With all of the noise of a draw, ρ = 1, few and young peers are of less use.
NOISE = 0.5

Counts = NDArray[np.integer]


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


def known_of(A: Array, counts: Counts, sigma2: float, B: Array) -> Array:
    """Return G (k, k), or (N, k, k) for the counts of N agents.

    Args:
        A: The features of cells, (c, M).
        counts: How many trials are in each cell, (c,) or (N, c).
        sigma2: σ², the noise variance.
        B: The leading directions, (M, k).
    """
    tried = np.flatnonzero(counts.any(axis=tuple(range(counts.ndim - 1))))
    A, root = A[tried], np.sqrt(counts[..., tried], dtype=np.float64)[..., None]
    noise = sigma2 * np.eye(len(tried))
    L = np.linalg.cholesky(root * (A @ A.T) * root.swapaxes(-1, -2) + noise)
    V = np.linalg.solve(L, root * (A @ B))
    G: Array = V.swapaxes(-1, -2) @ V
    return G


def factor_of(A: Array, counts: Counts, sigma2: float, B: Array) -> Array:
    """Return V (r, k) with G = VᵀV for the counts of one agent, a row for each cell tried.

    Args:
        A: The features of cells, (c, M).
        counts: How many trials are in each cell, (c,).
        sigma2: σ², the noise variance.
        B: The leading directions, (M, k).
    """
    tried = np.flatnonzero(counts)
    Phi = A[tried] * np.sqrt(counts[tried], dtype=np.float64)[:, None]
    L = np.linalg.cholesky(Phi @ Phi.T + sigma2 * np.eye(len(tried)))
    V: Array = np.linalg.solve(L, Phi @ B)
    return V


def summarise(
    belief: Posterior, G: Array, B: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return m (k,) and C (k, k).

    Args:
        belief: What the agent believes.
        G: What `known_of` returns for its trials, (k, k).
        B: The leading directions, (M, k).
        rng: Draws the noise.
    """
    v = B.T @ (belief.nu + NOISE * (belief.draw(rng) - belief.nu))
    g, Q = np.linalg.eigh(G)
    g = g.clip(0.0, 1.0)
    s = g / np.maximum(g + NOISE**2 * (1.0 - g), np.finfo(float).tiny)
    return Q @ (s * (Q.T @ v)), np.eye(len(G)) - (Q * (g * s)) @ Q.T
