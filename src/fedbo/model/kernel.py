"""Stationary kernels, and what all models compute with: factors, precisions, BLAS on one thread.

========  =================================================  =========
symbol    meaning                                            shape
========  =================================================  =========
l         length scales (``length_scales``)                  (D,)
r2        squared distance after division by l               any
k(r2)     correlation at that distance, k(0) = 1             any
slope     dk / d(r2)                                         any
s         a frequency drawn from the spectral density p(s)   (D,)
========  =================================================  =========

Bochner's theorem (section 2): k(x − x') is the mean of cos(sᵀ(x − x')) over s ~ p(s). For SE, p(s)
is normal with deviation 1/l (appendix A); for Matérn-5/2, Student's t with 5 degrees of freedom.

Functions compute in the precision of their points: float32 to screen many, float64 to refine a few.
Type hints say float64 for both.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsm, strsm
from scipy.linalg.lapack import dpotrf, dpstrf
from scipy.special import chdtri
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from fedbo.files import Lock

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]

_SQRT5 = float(np.sqrt(5.0))


class SE:
    """The squared exponential kernel, k = exp(−r2 / 2)."""

    name = "se"

    def value(self, r2: Array) -> Array:
        """Return k(r2), in the precision of ``r2``."""
        return np.exp(-0.5 * r2)

    def value_and_slope(self, r2: Array) -> tuple[Array, Array]:
        """Return k(r2) and dk/d(r2)."""
        k = np.exp(-0.5 * r2)
        return k, -0.5 * k

    def frequencies(self, normals: Array, uniforms: Array) -> Array:
        """Return draws (M, D) from p(s) with l = 1, from normal (M, D) and uniform numbers (M,)."""
        return normals


class Matern52:
    """The Matérn kernel with smoothness 5/2, k = (1 + a + a²/3) exp(−a), a = √(5 r2)."""

    name = "matern52"

    def value(self, r2: Array) -> Array:
        a = np.sqrt(r2)
        a *= _SQRT5
        e = np.exp(-a)
        k = a * a  # in place from here: a fresh array for each operation would take twice as long
        k /= 3.0
        a += 1.0
        k += a
        k *= e
        return k

    def value_and_slope(self, r2: Array) -> tuple[Array, Array]:
        a = np.sqrt(r2)
        a *= _SQRT5
        e = np.exp(-a)
        k = a * a
        k /= 3.0
        a += 1.0
        k += a
        k *= e
        e *= a
        e *= -5.0 / 6.0
        return k, e

    def frequencies(self, normals: Array, uniforms: Array) -> Array:
        chi2 = np.asarray(chdtri(5.0, uniforms), dtype=np.float64)
        return np.asarray(normals * np.sqrt(5.0 / chi2)[:, None])


Kernel = SE | Matern52
KERNELS: dict[str, Kernel] = {"se": SE(), "matern52": Matern52()}


def kernel_named(name: str) -> Kernel:
    """Return the kernel with this name."""
    if name not in KERNELS:
        raise ValueError(f"kernel is {name!r}, expected one of {', '.join(map(repr, KERNELS))}")
    return KERNELS[name]


def squared_distances(X: Array, Z: Array, length_scales: Array) -> Array:
    """Return r2 between the rows of X (n, D) and Z (m, D), in their precision: (n, m)."""
    A = X / length_scales.astype(X.dtype)
    B = Z / length_scales.astype(X.dtype)
    r2 = A @ B.T
    r2 *= -2.0
    r2 += np.einsum("ij,ij->i", A, A)[:, None]
    r2 += np.einsum("ij,ij->i", B, B)
    return np.maximum(r2, 0.0, out=r2)


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


def solve_lower(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """Return L⁻¹B, or L⁻ᵀB, for a lower triangular L (t, t), in the precision of B.

    Args:
        L: The matrix, in the precision of B.
        B: The right sides, (t, n). It is overwritten if it is stored by rows; then BLAS, which
            thinks in columns, solves from the right, which takes little more than half the time.
        transposed: Whether to solve with Lᵀ.
    """
    if not len(L):
        return B
    solver: Any = strsm if B.dtype == np.float32 else dtrsm
    trans = int(not transposed)
    solved: Array = solver(1.0, L, B.T, side=1, lower=1, trans_a=trans, overwrite_b=1).T
    return solved


def semidefinite_factor(K: Array) -> Array:
    """Return F (n, r) with F Fᵀ = K up to rounding, by pivoted Cholesky; r << n if k is smooth."""
    factor, pivots, rank, _ = dpstrf(K, lower=1, tol=1e-12 * float(np.max(np.diag(K))))
    F = np.zeros((len(K), rank))
    F[pivots - 1] = np.tril(factor)[:, :rank]
    return F


def single(values: Array) -> Array:
    return values.astype(np.float32, copy=False)


class Twins:
    """Arrays in float32 and float64; each version is made when it is first needed.

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


def one_thread() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread; it restores the caller's setting.

    An agent's matrices are small: on a busy machine, two threads are many times slower than one.
    """
    return _OneThread()


class _OneThread(AbstractContextManager[None]):
    # The number of threads belongs to the whole process. If two agents compute in two threads, the
    # second finds the limit of the first: it must not restore that as the caller's setting.
    _lock = Lock()
    _inside = 0  # contexts, in all threads
    _setting: Any = None  # the caller's, when the first of them was entered

    def __enter__(self) -> None:
        with _OneThread._lock:
            self._limit = _controller().limit(limits=1, user_api="blas")
            if _OneThread._inside:
                self._limit._original_info = _OneThread._setting
            else:
                _OneThread._setting = self._limit._original_info
            _OneThread._inside += 1
        self._limit.__enter__()

    def __exit__(self, *_: object) -> None:
        self._limit.__exit__(None, None, None)
        with _OneThread._lock:
            _OneThread._inside -= 1


@cache
def _controller() -> ThreadpoolController:  # it takes milliseconds to find the loaded libraries
    return ThreadpoolController()
