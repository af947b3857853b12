"""Who is like whom: messages compared as the functions that they stand for.

=======  =======================================================================  =========
symbol   meaning                                                                  shape
=======  =======================================================================  =========
N, M     number of messages, number of shared features                            scalars
omega    weights of a message; for a belief its mean nu; for a summary and a       (M,)
         compact message, their leading coordinates
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

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.federation import Federation
from fedbo.message import Message

Single = NDArray[np.float32]

_MOST_DIRECTIONS = 32
_KEPT = 0.999  # the share of the variance that is enough
#: How many agents a map shows.
MOST_ON_MAP = 200


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
        vectors = np.eye(len(basis)) if federation.is_summarised else basis.vectors
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


def weights(content: bytes) -> Single:
    """Return ω, or ν, of an encoded message that was checked when it arrived.

    Args:
        content: What `Message.encode` returned.
    """
    fields = msgspec.msgpack.decode(content)
    if fields[0] == 2:  # an envelope with a signature
        fields = msgspec.msgpack.decode(fields[2])
    if fields[6][0] == "compact":
        return Message.decode(content).nu
    return np.frombuffer(fields[6][1], dtype="<f4").astype(np.float32, copy=False)


def layout(U: Single) -> NDArray[np.float64]:
    """Return a place in the plane (N, 2) for each message, such that those that are alike are near.

    This is classical multidimensional scaling of the distances ‖uᵢ − uⱼ‖. The coordinates are at
    most 1.

    Args:
        U: (N, d) directions of at most a few hundred messages.
    """
    centred = np.asarray(U, dtype=np.float64)
    centred = centred - centred.mean(axis=0, keepdims=True) if len(centred) else centred
    places = np.zeros((len(centred), 2))
    if len(centred) > 1:
        left, singular, _ = np.linalg.svd(centred, full_matrices=False)
        k = min(2, len(singular))
        places[:, :k] = left[:, :k] * singular[:k]
        signs = np.sign(places[np.abs(places).argmax(axis=0), [0, 1]])  # the same at every call
        places *= np.where(signs == 0, 1.0, signs)
        places /= max(float(np.abs(places).max()), 1e-12)
    return places
