"""The means of many summaries at once: what `summary.summarise` does, for n agents in one go.

=======  =====================================================================  ============
symbol   meaning                                                                shape
=======  =====================================================================  ============
n, t     number of agents, number of trials of each                             scalars
X, z     points and standard scores of the trials                               (n, t, D), (n, t)
Φ        features of these points                                               (n, t, M)
B        leading directions of the features, orthonormal                        (M, k)
P        ΦB                                                                     (n, t, k)
K        ΦΦᵀ + σ²I                                                              (n, t, t)
w, e     standard normal numbers: a draw of the prior, and noise of the scores  (n, M), (n, t)
ρ        ``NOISE``: size of the noise, in standard deviations of the belief     scalar
v        Bᵀ(ν + ρ (ω − ν)), where ω is a draw of the belief                     (n, k)
A        features of a trial of which only the cell is known, one row a cell    (c, M)
u        how many trials a trial counts for: a cell with 5 may count as 4       (n, t)
Φ̄, P̄     √u A in the cells of the trials, and Φ̄B                                (n, t, M), (n, t, k)
m        the mean of each summary                                               (n, k)
h        means of the beliefs at the trials: Φν                                 (n, t)
=======  =====================================================================  ============

A belief after t trials differs from the prior N(0, I) in at most t directions. So nothing here is
larger than t × t, where `summary` needs M × M and k × k:

- ν = ΦᵀK⁻¹z, and by Matheron's rule ω − ν = w − ΦᵀK⁻¹(Φw + σe). Both have the same factor, so that
  v = PᵀK⁻¹(z − ρ(Φw + σe)) + ρBᵀw takes one solution.
- h = ΦΦᵀK⁻¹z = z − σ²K⁻¹z.
- G = P̄ᵀ(Φ̄Φ̄ᵀ + σ²I)⁻¹P̄. A summary multiplies v by G(ρ²I + (1 − ρ²)G)⁻¹, which is
  P̄ᵀ(ρ²(Φ̄Φ̄ᵀ + σ²I) + (1 − ρ²)P̄P̄ᵀ)⁻¹P̄: products of rows of A, which are computed once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbo.model.features import Features
from fedbo.model.kernel import Array, Twins
from fedbo.model.summary import NOISE


class Summaries:
    """Computes the means of summaries, of any number of agents with equally many trials.

    Args:
        features: The feature map φ.
        B: The leading directions, (M, k).
        A: What `summary.cell_features` returns, (c, M).
        sigma2: σ², the noise variance.

    >>> phi = Features(1, 30, seed=1)
    >>> summaries = Summaries(phi, np.eye(30, 5), phi(np.array([[0.25], [0.75]])), 0.1)
    >>> X, z = np.array([[[0.2], [0.7]]] * 3), np.array([[1.0, -1.0]] * 3)
    >>> cells, u, rng = np.array([[0, 1]] * 3), np.ones((3, 2)), np.random.default_rng(0)
    >>> m, h = summaries.means(X, z, cells, u, *summaries.noise(3, 2, rng))
    >>> m.shape, h.shape
    ((3, 5), (3, 2))
    """

    def __init__(self, features: Features, B: Array, A: Array, sigma2: float) -> None:
        self._features, self._B, self._sigma2 = features, B, sigma2
        self._directions = Twins(B)
        self._AB = A @ B
        self._table = NOISE**2 * (A @ A.T) + (1.0 - NOISE**2) * (self._AB @ self._AB.T)

    def noise(self, n: int, t: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw w and e."""
        return rng.standard_normal((n, self._features.M)), rng.standard_normal((n, t))

    def means(
        self, X: Array, z: Array, cells: NDArray[np.intp], u: Array, w: Array, e: Array
    ) -> tuple[Array, Array]:
        """Return m and h.

        Args:
            X: The points of the trials, (n, t, D). Features have their precision: float32 takes
                half the time of float64, and is enough for noise variances from 1e-4.
            z: Their standard scores, (n, t).
            cells: The cells of the points, (n, t).
            u: What each trial counts for in its cell, (n, t).
            w: Standard normal numbers, (n, M).
            e: Standard normal numbers, (n, t).
        """
        n, t, D = X.shape
        Phi = self._features(X.reshape(n * t, D)).reshape(n, t, -1)
        P = (Phi @ self._directions.like(X)[0]).astype(np.float64)
        K = (Phi @ Phi.transpose(0, 2, 1)).astype(np.float64) + self._sigma2 * np.eye(t)
        said = np.einsum("ntm,nm->nt", Phi, w) + np.sqrt(self._sigma2) * e
        alpha = np.linalg.solve(K, np.stack([z - NOISE * said, z], axis=2))
        v = (P.transpose(0, 2, 1) @ alpha[:, :, :1])[:, :, 0] + NOISE * (w @ self._B)
        h: Array = z - self._sigma2 * alpha[:, :, 1]

        root = np.sqrt(u)[:, :, None]
        known = root * self._AB[cells]  # P̄
        T = root * self._table[cells[:, :, None], cells[:, None, :]] * root.transpose(0, 2, 1)
        T += NOISE**2 * self._sigma2 * np.eye(t)
        beta = np.linalg.solve(T, known @ v[:, :, None])
        m: Array = (known.transpose(0, 2, 1) @ beta)[:, :, 0]
        return m, h
