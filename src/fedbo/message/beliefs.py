"""The beliefs an agent holds: an inbox whose peers handed out (ν, σ²Σ⁻¹) instead of one draw ω.

=========  ==================================================================  ============
symbol     meaning                                                             shape
=========  ==================================================================  ============
nu         ν_n, mean of the feature weights of peer n                          (N, M)
C          σ²Σ_n⁻¹ = I − R_nᵀR_n, their covariance                             (M, M)
R          what peer n's t_n observations took from the prior's covariance I:  (N, r, M)
           orthogonal rows, min(t_n, M) of them at most, the rest is zero
lam        squared lengths of the rows of R_n: the eigenvalues of I − C        (r,)
incumbent  best standard score of peer n, NaN if it was not handed out         (N,)
omega      one draw from N(ν_n, C), so that FTS can run on beliefs             (N, M)
draws      S of them, for the ranking loss of RGPE                             (N, S, M)
=========  ==================================================================  ============

Σ = ΦᵀΦ + σ²I, so σ²Σ⁻¹ is the identity but for the span of the t_n observed features. The
variance of peer n's function is ‖φ(x)‖² − ‖R_n φ(x)‖², one matrix product for all peers and points,
and C = A² with A = I − R_nᵀ diag(1 / (1 + √(1 − lam))) R_n, so a draw costs as little. All of this
is done once, when a message arrives, in float32, in which it came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.message import Belief, Kind, Message, MessageRefused
from fedbo.message.columns import ROWS
from fedbo.message.inbox import Inbox

Single = NDArray[np.float32]
Entropy = int | Sequence[int] | None

#: Eigenvalues of I − C up to this are rounding: C comes in float32.
LEAST_EIGENVALUE = 1e-6
_BELIEF = 3  # the stream of an agent's random numbers that its peers' beliefs are drawn with
_OMEGA, _DRAWS = 0, 1
_STEP = 8  # ranks are stored in multiples of this, so that R rarely has to be widened


class BeliefInbox(Inbox):
    """Messages of beliefs, one per peer; what an `Inbox` does, it does with a draw of each.

    The draws of a message are fixed by ``entropy``, its sender and its sequence number, and by
    nothing else: not by the order in which messages arrive.

    >>> from fedbo.message import Fingerprint
    >>> inbox = BeliefInbox(2, entropy=7)
    >>> inbox.put(Message.of_belief([1.0, 2.0], [[1.0, 0.0], [0.0, 0.25]], sender="site-a",
    ...     fingerprint=Fingerprint(bytes(16)), epoch=0, sequence=1, t_n=1))
    True
    >>> inbox.nu.tolist(), inbox.covariance(0).round(6).tolist()
    ([[1.0, 2.0]], [[1.0, 0.0], [0.0, 0.25]])
    >>> inbox.draws(100).shape
    (1, 100, 2)
    """

    def __init__(self, M: int, entropy: Entropy = 0) -> None:
        super().__init__(M)
        self.entropy = entropy
        self._nu = np.zeros((0, M), dtype=np.float32)
        self._R = np.zeros((0, 0, M), dtype=np.float32)
        self._incumbents = np.zeros(0)
        self._draws = np.zeros((0, 0, M), dtype=np.float32)

    @property
    def nbytes(self) -> int:
        columns = (self._nu, self._R, self._incumbents, self._draws)
        return super().nbytes + sum(column.nbytes for column in columns)

    @property
    def nu(self) -> Single:
        """(N, M) means of the weights."""
        return self._nu[: len(self)]

    @property
    def R(self) -> Single:
        """(N, r, M) what the covariances lack of the identity: C_n = I − R_nᵀR_n."""
        return self._R[: len(self)]

    @property
    def incumbents(self) -> NDArray[np.float64]:
        """(N,) best standard scores; NaN where the peer did not hand it out."""
        return self._incumbents[: len(self)]

    def covariance(self, row: int) -> NDArray[np.float64]:
        """(M, M) C_n, the covariance of the weights in this row."""
        self._place(row)
        R = self._R[row].astype(np.float64)
        C: NDArray[np.float64] = np.eye(self.M) - R.T @ R
        return C

    def draws(self, samples: int) -> Single:
        """(N, samples, M) draws of each peer's weights, the same at every call.

        Who asks for them first pays for the messages that are here; from then on they are made
        when a message arrives.
        """
        if samples > self._draws.shape[1]:
            self._draws = np.zeros((len(self._nu), samples, self.M), dtype=np.float32)
            for row in range(len(self)):
                self._keep_draws(row)
        return self._draws[: len(self), :samples]

    def extend(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("an inbox of beliefs takes no omegas: put the messages one by one")

    def state(self) -> dict[str, Any]:
        beliefs = {"nu": self.nu, "R": self.R, "incumbents": self.incumbents}
        return {**super().state(), **beliefs, "entropy": self.entropy}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        inbox = super().restore(state)
        inbox.entropy = state["entropy"]
        inbox._nu, inbox._R, inbox._incumbents = (
            np.array(state[name]) for name in ("nu", "R", "incumbents")
        )
        inbox._draws = np.zeros((len(inbox._nu), 0, inbox.M), dtype=np.float32)
        return inbox

    def _require(self, message: Message) -> None:
        if message.kind == "weights" or message.M != self.M:
            raise MessageRefused(
                f"message of {message.sender!r} is of kind {message.kind!r} with M = {message.M}; "
                f"this inbox holds beliefs with M = {self.M}"
            )
        if not (np.isfinite(message.nu).all() and np.isfinite(message.covariance).all()):
            raise MessageRefused(f"message of {message.sender!r} holds NaN or infinity")

    def _take(self, row: int, message: Message) -> Single:
        R = _reduction_of(message)
        self._make_room(row + 1, len(R))
        self._nu[row] = message.nu
        self._R[row] = 0.0
        self._R[row, : len(R)] = R
        self._incumbents[row] = np.nan if message.incumbent is None else message.incumbent
        key = (message.sender, message.sequence)
        self._draws[row] = self._sample(row, *key, _DRAWS, self._draws.shape[1])
        omega: Single = self._sample(row, *key, _OMEGA, 1)[0]
        return omega

    def _make_room(self, rows: int, rank: int) -> None:
        if rank > self._R.shape[1]:
            wider = -(-rank // _STEP) * _STEP
            self._R = _enlarged(self._R, (len(self._R), wider, self.M))
        if rows > len(self._nu):
            n = max(rows, 2 * len(self._nu), _STEP)
            for name in ("_nu", "_R", "_incumbents", "_draws"):
                column = getattr(self, name)
                setattr(self, name, _enlarged(column, (n, *column.shape[1:])))

    def _keep_draws(self, row: int) -> None:
        sequence = int(self._chunks[row // ROWS].sequence_at[row % ROWS])
        if sequence >= 0:
            samples = self._draws.shape[1]
            self._draws[row] = self._sample(row, self.sender(row), sequence, _DRAWS, samples)

    def _sample(self, row: int, sender: str, sequence: int, purpose: int, n: int) -> Single:
        """(n, M) draws of ω ~ N(ν, C) by C's square root; the first of more are the same."""
        name = int.from_bytes(hashlib.sha256(sender.encode()).digest()[:8], "big")
        key = (_BELIEF, purpose, name, sequence)
        rng = np.random.default_rng(np.random.SeedSequence(self.entropy, spawn_key=key))
        R = self._R[row].astype(np.float64)
        R = R[R.any(axis=1)]  # without padding, which depends on who else is here
        lam = np.einsum("rm,rm->r", R, R)
        Z = rng.standard_normal((n, self.M))
        Z -= ((Z @ R.T) / (1.0 + np.sqrt(np.maximum(1.0 - lam, 0.0)))) @ R
        Z += self._nu[row]
        return Z.astype(np.float32)


def inbox_for(kind: Kind, M: int, entropy: Entropy) -> Inbox:
    """An empty inbox for messages of this kind.

    >>> inbox_for("belief+incumbent", 100, entropy=0)
    BeliefInbox(0 messages of M = 100, 0 left to draw)
    """
    return Inbox(M) if kind == "weights" else BeliefInbox(M, entropy)


def _reduction_of(message: Message) -> NDArray[np.float64]:
    assert isinstance(message.body, Belief)
    return _cached_reduction(message.body.covariance, message.M)


@lru_cache(maxsize=256)
def _cached_reduction(triangle: bytes, M: int) -> NDArray[np.float64]:
    """`reduction` of a packed covariance; in one process many agents receive the same message."""
    square = np.zeros((M, M))
    rows, columns = np.tril_indices(M)
    square[rows, columns] = square[columns, rows] = np.frombuffer(triangle, dtype="<f4")
    return reduction(square)


def reduction(covariance: ArrayLike) -> NDArray[np.float64]:
    """R (r, M) with orthogonal rows, the longest first, and C = I − RᵀR.

    No belief leaves less than 0 of the prior's variance anywhere, or more than all: what lies
    outside is clipped.

    >>> reduction([[1.0, 0.0], [0.0, 0.75]]).round(6).tolist()
    [[0.0, 0.5]]
    """
    C = np.asarray(covariance, dtype=np.float64)
    lam, Q = np.linalg.eigh(np.eye(len(C)) - C)
    kept = lam > LEAST_EIGENVALUE
    R: NDArray[np.float64] = (Q[:, kept] * np.sqrt(np.minimum(lam[kept], 1.0))).T[::-1]
    return R


def _enlarged(column: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    larger = np.zeros(shape, dtype=column.dtype)
    larger[tuple(slice(n) for n in column.shape)] = column
    return larger
