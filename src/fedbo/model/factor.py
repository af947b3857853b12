"""Triangular and low-rank factors of covariance matrices."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpstrf

from fedbo.model.kernel import Array


def cholesky(K: Array, noise_variance: float) -> Array:
    """Return the lower Cholesky factor of K + σ²I, with the least jitter that makes it exist."""
    A = K + noise_variance * np.eye(len(K))
    jitter = 0.0
    while True:
        L, info = dpotrf(A + jitter * np.eye(len(K)), lower=1, clean=1) if len(K) else (A, 0)
        if info == 0 and np.isfinite(L).all():
            return np.asarray(L)
        jitter = 10.0 * jitter if jitter else 1e-12 * float(np.mean(np.diag(A)))
        if not np.isfinite(jitter) or jitter > float(np.mean(np.diag(A))):
            raise np.linalg.LinAlgError("the kernel matrix has entries that are not finite numbers")


def semidefinite_factor(K: Array) -> Array:
    """Return F (n, r) with F Fᵀ = K up to rounding, by pivoted Cholesky; r << n if k is smooth."""
    factor, pivots, rank, _ = dpstrf(K, lower=1, tol=1e-12 * float(np.max(np.diag(K))))
    F = np.zeros((len(K), rank))
    F[pivots - 1] = np.tril(factor)[:, :rank]
    return F
