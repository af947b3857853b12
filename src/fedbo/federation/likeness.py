"""Who is like whom: messages compared as the functions that they stand for.

=======  =======================================================================  =========
symbol   meaning                                                                  shape
=======  =======================================================================  =========
N, M     number of messages, number of shared features                            scalars
omega    weights of a message; for a belief its mean nu; for a compact message     (M,)
         their leading coordinates
φ        the shared features; a message stands for the function φ(x)ᵀω            (M,)
C        covariance of φ(x) over the space: Q diag(λ) Qᵀ (`fedbo.model.basis`)     (M, M)
L        Q diag(√λ) for the d largest eigenvalues λ, times any constant           (M, d)
u        ωᵀL / ‖ωᵀL‖, the direction of a message; a message of zeros has none     (d,)
=======  =======================================================================  =========

Two functions are alike if they are large at the same points. Their correlation over the space is
ω₁ᵀCω₂ / √(ω₁ᵀCω₁ · ω₂ᵀCω₂), which is u₁ᵀu₂: a constant that is added to a function, or a factor,
changes nothing, because nobody's queries depend on it. The d directions with the largest variance
are enough, so that comparing a message with 100,000 others takes a millisecond.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.federation.federation import Federation

Single = NDArray[np.float32]

_MOST_DIRECTIONS = 32
_KEPT = 0.999  # the share of the variance that is enough


class Likeness:
    """Compares messages of one federation.

    Args:
        federation: The federation, in the epoch of the messages.

    >>> from fedbo.space import Float
    >>> likeness = Likeness(Federation({"x": Float(0, 1)}, features=20, kind="weights"))
    >>> up, down = likeness.directions([[1.0] * 20, [-2.0] * 20])
    >>> round(float(up @ down), 3)
    -1.0
    """

    def __init__(self, federation: Federation) -> None:
        basis = federation.basis
        share = np.cumsum(basis.lam) / max(float(basis.lam.sum()), 1e-300)
        d = min(int(np.searchsorted(share, _KEPT)) + 1, _MOST_DIRECTIONS, len(basis))
        vectors = np.eye(len(basis)) if federation.is_compact else basis.vectors
        deviations = np.sqrt(basis.lam[:d] / max(float(basis.lam[0]), 1e-300))
        self._L: Single = (vectors[:, :d] * deviations).astype(np.float32)

    @property
    def d(self) -> int:
        """Number of dimensions of a direction."""
        return int(self._L.shape[1])

    def directions(self, omegas: ArrayLike) -> Single:
        """Return u (N, d) for the weights (N, M) of messages."""
        rows = np.asarray(omegas, dtype=np.float32)
        largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        U = (rows / np.where(largest > 0, largest, 1.0)) @ self._L  # no square can overflow
        norms = np.sqrt(np.einsum("nd,nd->n", U, U))[:, None]
        return np.asarray(U / np.where(norms > 0, norms, 1.0), dtype=np.float32)
