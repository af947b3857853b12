"""Random Fourier features φ, shared by all agents of a federation (appendix A), and their basis.

=======  ====================================================  ========
symbol   meaning                                               shape
=======  ====================================================  ========
M        number of features                                    scalar
s        frequencies, drawn from the kernel's p(s)             (M, D)
b        phases, uniform on [0, 2π)                            (M,)
c(x)     cos(s x + b)                                          (M,)
φ(x)     σ₀ c(x) / ‖c(x)‖, so that ‖φ(x)‖² = σ₀²               (M,)
ω        feature weights; a sampled function is φ(x)ᵀω         (M,)
=======  ====================================================  ========

The paper's factor √(2/M) cancels in the normalisation. Gradients include that of ‖c(x)‖.

A function that smooth features can express varies along few directions. The leading ones are the
basis: with it, a belief takes 40 numbers instead of M.

=======  ====================================================================  ========
symbol   meaning                                                               shape
=======  ====================================================================  ========
φ̃(x)     φ(x) minus its mean over the space                                    (M,)
B        eigenvectors of the covariance of φ(x) over the space, largest        (M, k)
         eigenvalues first
lam      their eigenvalues                                                     (k,)
ψ(x)     Bᵀφ̃(x), the coordinates of a point: φ̃(x)ᵀω ≈ ψ(x)ᵀz                    (k,)
z        Bᵀω, the coordinates of the weights ω; if ω ~ N(0, I), so is z        (k,)
=======  ====================================================================  ========

What lies outside of the leading directions changes hardly any value, and a constant is dropped,
because it does not say where a function is large.
"""

from __future__ import annotations

import copy
import hashlib
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from fedbo.message.signed import BASIS_BYTES, MOST_COORDINATES
from fedbo.model.kernel import Array, Twins, kernel_named

POINTS = 1024  #: of the space, over which the features are averaged
SPREAD = 256  #: of these points at most, at which a function is looked at

_LEAST = 1e-6  # of the largest eigenvalue; below, directions are rounding errors
_ZERO = 1e-12  # an eigenvalue of features that do not vary
_PROBES = 4  # entries of each direction that the digest covers
_FINENESS = 4.0  # steps in 1/√M, the size of an entry; kernels of OpenBLAS differed by 3e-10
_BLOCK = 4096  # rows processed at a time: (4096, M) stays in the cache


class Features:
    """The feature map φ, the same on every machine for the same arguments.

    NumPy keeps the raw stream of a bit generator fixed, but not ``standard_normal``. So the normals
    are computed from raw bits, and rounded to float32 because the last bits depend on the machine.

    Args:
        dimensions: D, the dimensions of the unit cube.
        M: Number of features.
        kernel: ``"se"`` or ``"matern52"``.
        length_scales: One for all dimensions, or (D,), in units of the cube.
        seed: Seed of the frequencies and phases.
        signal_variance: σ₀².

    >>> phi = Features(2, 50, length_scales=0.3, seed=7)
    >>> Phi = phi(np.array([[0.1, 0.2], [0.9, 0.4]]))
    >>> Phi.shape, np.round((Phi**2).sum(axis=1), 12).tolist()
    ((2, 50), [1.0, 1.0])
    """

    def __init__(
        self,
        dimensions: int,
        M: int,
        *,
        kernel: str = "se",
        length_scales: ArrayLike = 0.3,
        seed: int = 0,
        signal_variance: float = 1.0,
    ) -> None:
        uniforms = _uniforms(seed, M * (dimensions + 2)).reshape(M, dimensions + 2)
        normals = _float32(ndtri(uniforms[:, :dimensions]))
        base = kernel_named(kernel).frequencies(normals, uniforms[:, dimensions])
        self.M, self.kernel, self.signal_variance = M, kernel, signal_variance
        self.length_scales = np.empty(dimensions)
        self.length_scales[:] = length_scales
        self.s = _float32(base) / self.length_scales
        self.b = _float32(2.0 * np.pi * uniforms[:, dimensions + 1])
        self.waves = Twins(self.s, self.b)

    def __call__(self, X: Array) -> Array:
        """Return φ at the rows of X: (n, D) -> (n, M)."""
        C = np.cos(self._angles(X))
        C *= np.sqrt(self.signal_variance) / np.sqrt(np.einsum("ij,ij->i", C, C))[:, None]
        return C

    def function(self, omega: ArrayLike) -> FeatureFunction:
        """Return the sampled function φ(x)ᵀω."""
        return FeatureFunction(self, np.asarray(omega, dtype=np.float64))

    def tangent(self, X: Array) -> Tangent:
        """Return φ at the rows of X, with its derivative there."""
        return Tangent(self, X)

    def beside(self, own: int) -> Features:
        """Return the same features of points that have so many more coordinates, ignored by φ."""
        if not own:
            return self
        features = copy.copy(self)
        features.s = np.pad(self.s, ((0, 0), (0, own)))
        features.length_scales = np.pad(self.length_scales, (0, own), constant_values=np.inf)
        features.waves = Twins(features.s, features.b)
        return features

    def _angles(self, X: Array) -> Array:
        s, b = self.waves.like(X)
        angles: Array = X @ s.T
        angles += b
        return angles


class FeatureFunction:
    """The function φ(x)ᵀω: a peer's message, or a draw from a posterior over ω."""

    def __init__(self, features: Features, omega: Array) -> None:
        self.features, self.omega = features, omega
        self.length_scales = features.length_scales

    def __call__(self, X: Array) -> Array:
        omega = self.omega.astype(X.dtype)
        values = np.empty(len(X), dtype=X.dtype)
        for i in range(0, len(X), _BLOCK):
            C = self.features._angles(X[i : i + _BLOCK])
            np.cos(C, out=C)
            values[i : i + _BLOCK] = (C @ omega) / np.sqrt(np.einsum("ij,ij->i", C, C))
        values *= np.sqrt(self.features.signal_variance)
        return values

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        omega = self.omega.astype(X.dtype)
        s, _ = self.features.waves.like(X)
        angles = self.features._angles(X)
        C, S = np.cos(angles), np.sin(angles)
        norm2 = np.einsum("ij,ij->i", C, C)[:, None]
        scale = math.sqrt(self.features.signal_variance) / np.sqrt(norm2)  # keeps float32
        value = (C @ omega)[:, None]
        # d/dx (cᵀω / ‖c‖) = [Jᵀω − (cᵀω) Jᵀc / ‖c‖²] / ‖c‖ with J = −sin(sx + b) s
        slope = (value / norm2) * C - omega
        slope *= S
        return (value * scale)[:, 0], (slope @ s) * scale


class Tangent:
    """φ at points, and gradients of functions of φ with respect to the points."""

    def __init__(self, features: Features, X: Array) -> None:
        angles = features._angles(X)
        C = np.cos(angles)
        self._s, _ = features.waves.like(X)
        self._variance = features.signal_variance
        scale = np.sqrt(self._variance / np.einsum("ij,ij->i", C, C))
        self._scale = scale.astype(X.dtype)[:, None]
        self._slope = np.sin(angles, out=angles)
        self.Phi = C * self._scale

    def gradient(self, A: Array) -> Array:
        """Return dg/dx (n, D) from A = dg/dφ (n, M); g may differ between rows."""
        # dφ/dx = ‖φ‖/‖c‖ (I − φφᵀ/‖φ‖²) dc/dx, dc/dx = −sin(sx + b) s
        along = np.einsum("ij,ij->i", A, self.Phi)[:, None] / self._variance
        B = along * self.Phi
        B -= A
        B *= self._slope
        gradient: Array = (B @ self._s) * self._scale
        return gradient


class Basis:
    """The k leading directions of features over a space, the same for all agents of a federation.

    The points that it is made from are the same everywhere, and the order and the signs of the
    directions are fixed. Messages whose numbers refer to the directions carry their ``digest``, so
    that machines that compute different directions refuse each other's messages.

    Args:
        features: The feature map φ.
        points: Points (n, D) all over the space.

    >>> basis = Basis(Features(1, 50, seed=1), np.linspace(0, 1, 100)[:, None])
    >>> basis.vectors.shape[0], len(basis) < 20, basis.coordinates(np.array([[0.5]])).shape[0]
    (50, True, 1)
    """

    def __init__(self, features: Features, points: Array) -> None:
        self.features = features
        Phi = features(points)
        self.mean: Array = Phi.mean(axis=0)
        Phi -= self.mean
        n, M = Phi.shape
        lam, B = np.linalg.eigh((Phi.T @ Phi if n >= M else Phi @ Phi.T) / n)
        kept = np.flatnonzero(lam > max(_LEAST * lam[-1], _ZERO))[::-1][:MOST_COORDINATES]
        B = B[:, kept] if n >= M else Phi.T @ (B[:, kept] / np.sqrt(n * lam[kept]))
        if not len(kept):  # the features do not vary, as in a space with a single point
            kept, B = np.array([0]), np.eye(M, 1)
        largest = np.abs(B).argmax(axis=0)
        self.vectors: Array = B * np.sign(B[largest, np.arange(len(kept))])
        self.lam: Array = np.maximum(lam[kept], 0.0)
        step = -(-n // SPREAD)
        self.points: Array = points[::step]  #: all over the space, (s, D)
        self.psi: Array = Phi[::step] @ self.vectors  #: ψ at these points, (s, k)

    def __len__(self) -> int:
        return len(self.lam)

    def beside(self, own: int) -> Basis:
        """Return the same basis for points that have so many more coordinates, ignored by ψ."""
        basis = copy.copy(self)
        basis.features = self.features.beside(own)
        return basis

    def coordinates(self, X: Array) -> Array:
        """Return ψ (n, k) at the rows of X (n, D)."""
        return (self.features(X) - self.mean) @ self.vectors

    def size(self, z: Array) -> Array:
        """Return the standard deviation (n,) of the functions ψᵀz over the space."""
        return np.sqrt((z * z) @ self.lam)

    def height(self, z: Array) -> Array:
        """Return how far the functions ψᵀz rise above their means over the space, (n,)."""
        highest: Array = (z @ self.psi.T).max(axis=1)
        return highest

    @property
    def digest(self) -> bytes:
        """4 bytes that identify the directions, up to rounding errors of a machine."""
        M = len(self.vectors)
        probes = self.vectors[:: max(1, M // _PROBES)] * (_FINENESS * np.sqrt(M))
        probes = np.rint(probes).astype("<i2")
        return hashlib.sha256(bytes([len(self)]) + probes.tobytes()).digest()[:BASIS_BYTES]


def _uniforms(seed: int, n: int) -> Array:
    raw = np.random.PCG64(seed).random_raw(n)
    return (np.asarray(raw >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53


def _float32(values: NDArray[np.floating]) -> Array:
    return values.astype(np.float32).astype(np.float64)
