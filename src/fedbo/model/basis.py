"""The leading directions of the shared features: a belief in 40 numbers instead of M.

======  =====================================================================  ============
symbol  meaning                                                                shape
======  =====================================================================  ============
φ̃(x)    φ(x) minus its mean over the space                                     (M,)
B       eigenvectors of the covariance of φ(x) over the space, largest         (M, k)
        eigenvalues first
lam     their eigenvalues                                                      (k,)
ψ(x)    Bᵀφ̃(x), the coordinates of a point: φ̃(x)ᵀω ≈ ψ(x)ᵀz                     (k,)
z       Bᵀω, the coordinates of the weights ω; if ω ~ N(0, I), so is z         (k,)
======  =====================================================================  ============

A function that smooth features can express varies along few directions. What lies outside of the
leading ones changes hardly any value, and a constant is dropped, because it does not say where a
function is large.

All agents of a federation must have the same basis. The points of the space that it is made from
are the same everywhere, and the order and the signs of the directions are fixed. ``digest`` is part
of the federation's fingerprint, so that agents with different directions refuse each other.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedbo.model.features import Features
from fedbo.model.kernel import Array

MOST = 40  #: directions: a mean and a covariance of so many take 3.4 kB
POINTS = 1024  #: of the space, over which the features are averaged
SPREAD = 256  #: of these points at most, at which a function is looked at

_LEAST = 1e-6  # of the largest eigenvalue; below, directions are rounding errors
_ZERO = 1e-12  # an eigenvalue of features that do not vary
_PROBES = 4  # entries of each direction that the digest covers
_FINENESS = 4.0  # steps in 1/√M, the size of an entry; kernels of OpenBLAS differed by 3e-10


class Basis:
    """The k leading directions of features over a space.

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
        kept = np.flatnonzero(lam > max(_LEAST * lam[-1], _ZERO))[::-1][:MOST]
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

    def coordinates(self, X: Array) -> Array:
        """Return ψ (n, k) at the rows of X (n, D)."""
        return (self.features(X) - self.mean) @ self.vectors

    def size(self, z: Array) -> Array:
        """Return the standard deviation (n,) of the functions ψᵀz over the space.

        Args:
            z: Coordinates of functions, (n, k).
        """
        return np.sqrt((z * z) @ self.lam)

    def height(self, z: Array) -> Array:
        """Return how far the functions ψᵀz rise above their means over the space, (n,).

        Args:
            z: Coordinates of functions, (n, k).
        """
        highest: Array = (z @ self.psi.T).max(axis=1)
        return highest

    @property
    def digest(self) -> str:
        """Identify the directions, up to rounding errors of a machine."""
        M = len(self.vectors)
        probes = self.vectors[:: max(1, M // _PROBES)] * (_FINENESS * np.sqrt(M))
        probes = np.rint(probes).astype("<i2")
        return hashlib.sha256(bytes([len(self)]) + probes.tobytes()).hexdigest()[:16]
