"""Stationary kernels: their values, slopes and spectral densities.

========  =================================================  =========
symbol    meaning                                            shape
========  =================================================  =========
l         length scales (``length_scales``)                  (D,)
r2        squared distance after division by l               any
k(r2)     correlation at that distance, k(0) = 1             any
slope     dk / d(r2)                                         any
s         a frequency drawn from the spectral density p(s)   (D,)
========  =================================================  =========

Bochner's theorem (section 2): k(x - x') is the expectation of cos(s'(x - x')) over s ~ p(s).
For SE p(s) is normal with standard deviation 1/l (appendix A); for Matérn-5/2 it is Student's
t with 5 degrees of freedom.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

Array = NDArray[np.float64]

_SQRT5 = float(np.sqrt(5.0))


class Kernel(Protocol):
    """A stationary correlation function of the scaled squared distance."""

    name: str

    def value(self, r2: Array) -> Array:
        """Return k(r2), in the precision of ``r2``."""

    def value_and_slope(self, r2: Array) -> tuple[Array, Array]:
        """Return k(r2) and dk/d(r2)."""

    def frequencies(self, normals: Array, uniforms: Array) -> Array:
        """Return draws (M, D) from the spectral density at unit length scale.

        The random numbers are arguments, so that the shared features can use a stream that never
        changes.

        Args:
            normals: Standard normal numbers, (M, D).
            uniforms: Uniform numbers in (0, 1), (M,).
        """


class SE:
    """The squared exponential kernel, k = exp(-r2 / 2).

    >>> float(SE().value(np.array(0.0)))
    1.0
    """

    name = "se"

    def value(self, r2: Array) -> Array:
        return np.exp(-0.5 * r2)

    def value_and_slope(self, r2: Array) -> tuple[Array, Array]:
        k = np.exp(-0.5 * r2)
        return k, -0.5 * k

    def frequencies(self, normals: Array, uniforms: Array) -> Array:
        return normals


class Matern52:
    """The Matérn kernel with smoothness 5/2, k = (1 + a + a²/3) exp(-a), a = √(5 r2).

    >>> float(Matern52().value(np.array(0.0)))
    1.0
    """

    name = "matern52"

    def value(self, r2: Array) -> Array:
        a = _SQRT5 * np.sqrt(r2)
        return (1.0 + a + a * a / 3.0) * np.exp(-a)

    def value_and_slope(self, r2: Array) -> tuple[Array, Array]:
        a = _SQRT5 * np.sqrt(r2)
        e = np.exp(-a)
        return (1.0 + a + a * a / 3.0) * e, (-5.0 / 6.0) * (1.0 + a) * e

    def frequencies(self, normals: Array, uniforms: Array) -> Array:
        chi2 = np.asarray(chdtri(5.0, uniforms), dtype=np.float64)
        return np.asarray(normals * np.sqrt(5.0 / chi2)[:, None])


KERNELS: dict[str, Kernel] = {"se": SE(), "matern52": Matern52()}


def kernel_named(name: str) -> Kernel:
    """Return the kernel with this name.

    >>> kernel_named("matern52").name
    'matern52'
    """
    if name not in KERNELS:
        raise ValueError(f"kernel is {name!r}, expected one of {', '.join(map(repr, KERNELS))}")
    return KERNELS[name]


def squared_distances(X: Array, Z: Array, length_scales: Array) -> Array:
    """Return r2 between the rows of X (n, D) and Z (m, D), in their precision: (n, m).

    >>> squared_distances(np.array([[0.0]]), np.array([[0.5]]), np.array([0.25])).tolist()
    [[4.0]]
    """
    A = X / length_scales.astype(X.dtype)
    B = Z / length_scales.astype(X.dtype)
    r2 = A @ B.T
    r2 *= -2.0
    r2 += np.einsum("ij,ij->i", A, A)[:, None]
    r2 += np.einsum("ij,ij->i", B, B)
    return np.maximum(r2, 0.0, out=r2)
