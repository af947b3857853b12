"""The beliefs that an agent holds if peers hand out (ν, σ²Σ⁻¹) instead of one draw ω.

A compact message is held as a belief about the leading coordinates of the weights, and M is then
the number of these coordinates: `fedbo.Federation.belief` computes its ν and R.

==========  ==================================================================  ============
symbol      meaning                                                             shape
==========  ==================================================================  ============
nu          ν_n, mean of the feature weights of peer n                          (N, M)
C           σ²Σ_n⁻¹ = I − R_nᵀR_n, their covariance                             (M, M)
R           how much the t_n observations of peer n reduced the prior's         (N, r, M)
            covariance I: at most min(t_n, M) orthogonal rows, padded with 0
lam         squared lengths of the rows of R_n: the eigenvalues of I − C        (r,)
incumbents  best standardised score of each peer; NaN with compact messages     (N,)
omega       one draw from N(ν_n, C), so that FTS can run on beliefs             (N, M)
draws       S such draws, for the ranking loss of RGPE                          (N, S, M)
==========  ==================================================================  ============

Σ = ΦᵀΦ + σ²I, so σ²Σ⁻¹ equals the identity outside the span of the t_n observed features. The
variance of peer n's function is ‖φ(x)‖² − ‖R_n φ(x)‖², one matrix product for all peers and points.
C = A² with A = I − R_nᵀ diag(1 / (1 + √(1 − lam))) R_n, so a draw is cheap too. R is computed once,
when a message arrives, and held in float32, the precision of messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.message.inbox import Belief, Held, Inbox, Single, enlarged
from fedbo.message.message import Kind, Message

Entropy = int | Sequence[int] | None

#: Eigenvalues of I − C up to this are rounding errors, because C travels in float32.
LEAST_EIGENVALUE = 1e-6

_BELIEF = 3  # the random stream of an agent for the draws of its peers' beliefs
_OMEGA, _DRAWS = 0, 1
_STEP = 8  # the rank of R grows in multiples of this, so that it rarely has to be widened
_SAVED = ("nu", "R", "incumbents")


class BeliefInbox(Inbox):
    """Messages of beliefs, one for each peer. As an `Inbox`, it holds one draw ω of each belief.

    The draws of a message depend on ``entropy``, its sender and its sequence number, and not on
    the order in which messages arrive.

    Args:
        M: Number of shared features.
        entropy: Seed of the draws, as for `numpy.random.SeedSequence`; default 0.
        D: Dimensions of the space; 0 (default) if no peer recommends a point.

    Example:
        >>> header = dict(fingerprint=bytes(16), sender="site-a", sequence=1, t_n=1)
        >>> inbox = BeliefInbox(2)
        >>> inbox.put(Message.of_belief([1.0, 2.0], [[1.0, 0.0], [0.0, 0.25]], 0.8, **header))
        True
        >>> inbox.nu.tolist(), inbox.draws(100).shape
        ([[1.0, 2.0]], (1, 100, 2))
    """

    def __init__(self, M: int, entropy: Entropy = 0, D: int = 0) -> None:
        super().__init__(M, D)
        self.entropy = entropy
        self._columns |= {
            "nu": np.zeros((0, M), dtype=np.float32),
            "R": np.zeros((0, 0, M), dtype=np.float32),
            "incumbents": np.zeros(0),
            "draws": np.zeros((0, 0, M), dtype=np.float32),
        }

    @property
    def nu(self) -> Single:
        """(N, M) means of the weights."""
        return self._column("nu")

    @property
    def R(self) -> Single:
        """(N, r, M) factors of the covariances: C_n = I − R_nᵀR_n."""
        return self._column("R")

    @property
    def incumbents(self) -> NDArray[np.float64]:
        """(N,) best standardised scores; NaN for compact messages, which do not have it."""
        return self._column("incumbents")

    def covariance(self, row: int) -> NDArray[np.float64]:
        """Return the (M, M) covariance C_n of the weights in this row."""
        R = self.R[row].astype(np.float64)
        return np.asarray(np.eye(self.M) - R.T @ R)

    def draws(self, samples: int) -> Single:
        """Return (N, samples, M) draws of the weights, the same at every call.

        Args:
            samples: Number of draws for each peer. With more of them, the first ones stay the same.
        """
        if samples > self._columns["draws"].shape[1]:
            room = len(self._columns["draws"])
            self._columns["draws"] = np.zeros((room, samples, self.M), dtype=np.float32)
            for row, sender in enumerate(self._senders):
                R = self.R[row][self.R[row].any(axis=1)]  # without padding, set by other peers
                key = self._key(_DRAWS, sender, int(self.sequence[row]))
                self._columns["draws"][row] = _sample(self.nu[row], R, samples, key)
        return self._column("draws")[:, :samples]

    def extend(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("an inbox of beliefs has no bulk form: put the messages one by one")

    def remove(self, senders: Iterable[str]) -> int:
        gone = super().remove(senders)
        if gone:  # R is as wide as if they had never been there: its width may change last bits
            rank = int(self.R.any(axis=2).sum(axis=1).max(initial=0))
            self._columns["R"] = self._columns["R"][:, : _rounded_up(rank)].copy()
        return gone

    def state(self) -> dict[str, Any]:
        beliefs = {name: self._column(name).copy() for name in _SAVED}
        return {**super().state(), **beliefs, "entropy": self.entropy}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        inbox = super().restore(state)
        inbox.entropy = state["entropy"]
        n = len(inbox)
        shapes = {name: np.shape(state[name]) for name in _SAVED}
        rank = shapes["R"][1] if len(shapes["R"]) == 3 else 0
        expected = dict(zip(_SAVED, [(n, inbox.M), (n, rank, inbox.M), (n,)], strict=True))
        if shapes != expected:
            raise ValueError(
                f"the state of the inbox has beliefs of shapes {shapes}, expected {expected}; it "
                "was not written by state()"
            )
        inbox._widen(rank)
        for name in _SAVED:
            inbox._columns[name][: len(inbox)] = state[name]
        return inbox

    def _held(self, message: Message, belief: Belief | None) -> Held:
        header = message.sender, message.sequence, message.t_n
        if belief is not None:
            return Held(*header, belief)
        return Held(*header, (message.nu, _reduction(message)), message.incumbent)

    def _values(self, held: Held) -> dict[str, Any]:
        nu, R = held.content
        self._widen(_rounded_up(len(R)))
        samples = self._columns["draws"].shape[1]
        sent = held.sender, held.sequence
        return {
            "omega": _sample(nu, R, 1, self._key(_OMEGA, *sent))[0],
            "t_n": held.t_n if len(R) else 0,  # it says nothing if its covariance is I
            "sequence": held.sequence,
            "nu": nu,
            "R": enlarged(R, self._columns["R"].shape[1:]),
            "incumbents": held.incumbent,
            "draws": _sample(nu, R, samples, self._key(_DRAWS, *sent)) if samples else 0.0,
        }

    def _widen(self, rank: int) -> None:
        room, width, M = self._columns["R"].shape
        if rank > width:
            self._columns["R"] = enlarged(self._columns["R"], (room, rank, M))

    def _key(self, purpose: int, sender: str, sequence: int) -> np.random.SeedSequence:
        name = int.from_bytes(hashlib.sha256(sender.encode()).digest()[:8], "big")
        return np.random.SeedSequence(self.entropy, spawn_key=(_BELIEF, purpose, name, sequence))


def inbox_for(kind: Kind, M: int, entropy: Entropy, D: int = 0) -> Inbox:
    """Return an empty inbox for messages of a kind.

    Args:
        kind: What the agents of the federation hand out.
        M: Number of weights, or of coordinates of them, that a message describes.
        entropy: Seed of the draws of beliefs.
        D: Dimensions of the space; 0 (default) if no peer recommends a point.
    """
    return Inbox(M, D) if kind == "weights" else BeliefInbox(M, entropy, D)


def _rounded_up(rank: int) -> int:
    return -(-rank // _STEP) * _STEP


def reduction(covariance: ArrayLike) -> NDArray[np.float64]:
    """Return R (r, M) with orthogonal rows, the longest first, such that C = I − RᵀR.

    Eigenvalues of C outside [0, 1] are clipped: observations can only reduce the prior's variance.

    Args:
        covariance: (M, M) covariance C of the weights.

    Example:
        >>> reduction([[1.0, 0.0], [0.0, 0.75]]).round(6).tolist()
        [[0.0, 0.5]]
    """
    C = np.asarray(covariance, dtype=np.float64)
    lam, Q = np.linalg.eigh(np.eye(len(C)) - C)
    R: NDArray[np.float64] = (Q * np.sqrt(lam.clip(0.0, 1.0))).T[lam > LEAST_EIGENVALUE][::-1]
    return R


@lru_cache(maxsize=256)  # in one process, many agents receive the same message
def _reduction(message: Message) -> Single:
    return reduction(message.covariance).astype(np.float32)


def _sample(nu: Single, R: Single, n: int, key: np.random.SeedSequence) -> Single:
    """Return (n, M) draws ω ~ N(ν, I − RᵀR), by the square root of the covariance."""
    R64 = R.astype(np.float64)
    lam = np.einsum("rm,rm->r", R64, R64)
    Z = np.random.default_rng(key).standard_normal((n, len(nu)))
    Z -= ((Z @ R64.T) / (1.0 + np.sqrt(np.maximum(1.0 - lam, 0.0)))) @ R64
    Z += nu
    return Z.astype(np.float32)
