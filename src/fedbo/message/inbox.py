"""The messages that an agent holds: one row for each peer, with the peer's latest message.

========  ============================================================  =======
symbol    meaning                                                       shape
========  ============================================================  =======
N         number of peers, in order of their first message              scalar
omega     ω_n, the weights that peer n handed out, in float32           (N, M)
chance    P_N before normalisation (Algorithm 1, line 6)                (N,)
========  ============================================================  =======

An inbox trusts its caller. Messages from outside go through `fedbo.Agent.receive`, which checks
them against the federation first.

If peers hand out beliefs (ν, σ²Σ⁻¹) instead of one draw ω, a `BeliefInbox` holds them. A compact
message is held as a belief about the leading coordinates of the weights, and M is then the number
of these coordinates: `fedbo.federation.shared.Shared.held` computes its ν and R.

==========  ==================================================================  ============
nu          ν_n, mean of the feature weights of peer n                          (N, M)
C           σ²Σ_n⁻¹ = I − R_nᵀR_n, their covariance                             (M, M)
R           how much the t_n observations of peer n reduced the prior's         (N, r, M)
            covariance I: at most min(t_n, M) orthogonal rows, padded with 0
lam         squared lengths of the rows of R_n: the eigenvalues of I − C        (r,)
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
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbo.message.message import Belief, Kind, Message, Weights
from fedbo.message.signed import COUNTER_LIMITS, DRAW, check_name, member

#: The largest chance of a peer. The sum of any number of them is finite.
CHANCE_LIMIT = 1e200

Array = NDArray[np.float64]
Single = NDArray[np.float32]
Entropy = int | Sequence[int] | None
Moments = tuple[Single, Single]  # ν (M,) and R (r, M), see above

#: Eigenvalues of I − C up to this are rounding errors, because C travels in float32.
LEAST_EIGENVALUE = 1e-6

#: The smallest and the largest number in a column of a file; others are finite.
_LIMITS = {
    **{name: (0.0, float(most)) for name, most in COUNTER_LIMITS.items()},
    **{"chance": (0.0, CHANCE_LIMIT), "used": (0.0, 1.0), "tips": (0.0, 1.0)},
}
_LARGEST = float(np.finfo(np.float32).max)
_LEAST_ROOM = 8  # rows
_BLOCK = 1024  # rows that `draw` sums first: a sum is ten times as fast as a cumulative sum
_BELIEF = 3  # the random stream of an agent for the draws of its peers' beliefs
_OMEGA, _DRAWS = 0, 1
_STEP = 8  # the rank of R grows in multiples of this, so that it rarely has to be widened


class Held(NamedTuple):
    """What an inbox holds of one peer: weights ω (M,), or a belief if it is an inbox of beliefs."""

    sender: str
    sequence: int
    t_n: int  # number of observations behind it
    content: Single | Moments
    incumbent: float = math.nan
    tip: Array | None = None  # the point (D,) that the peer recommends


def _view(name: str) -> Any:
    return property(lambda inbox: inbox._column(name))


class Inbox:
    """Messages of M weights, and points of D dimensions, one for each peer.

    They are drawn without replacement. The arrays are read-only views with one row for each peer.
    Get them again after `hold`.

    >>> inbox, weights = Inbox(2), np.ones(2, np.float32)
    >>> inbox.hold(Held("a", 1, 20, weights), chance=0.0), inbox.hold(Held("b", 1, 20, weights))
    (True, True)
    >>> inbox.sender(inbox.draw(np.random.default_rng(0)))
    'b'
    """

    omega: Single = _view("omega")  # (N, M) weights
    t_n: NDArray[np.int32] = _view("t_n")  # (N,) number of observations behind each message
    sequence: NDArray[np.int64] = _view("sequence")  # (N,)
    chance: Array = _view("chance")  # (N,) P_N before any message was used
    used: NDArray[np.bool_] = _view("used")  # (N,) whether it was: its P_N is then 0
    tips: Array = _view("tips")  # (N, D) the point that each peer recommends; NaN: none

    def __init__(self, M: int, D: int = 0) -> None:
        self.M, self.D = M, D
        self._senders: list[str] = []
        self._rows: dict[str, int] = {}
        self.agents: Counter[str] = Counter()  # how many of the peers belong to each member
        self._columns: dict[str, NDArray[Any]] = {
            "omega": np.zeros((0, M), dtype=np.float32),
            "t_n": np.zeros(0, dtype=np.int32),
            "sequence": np.zeros(0, dtype=np.int64),
            "chance": np.zeros(0),
            "used": np.zeros(0, dtype=np.bool_),
            "tips": np.zeros((0, D)),
        }

    def __len__(self) -> int:
        return len(self._senders)

    def __contains__(self, sender: object) -> bool:
        return sender in self._rows

    @property
    def left(self) -> int:
        """Number of peers that can be drawn: not used, and with a chance above 0."""
        return int(np.count_nonzero(self._remaining()))

    @property
    def informed(self) -> int:
        """Number of messages that say something: they have observations behind them."""
        return int(np.count_nonzero(self.t_n))

    @property
    def senders(self) -> list[str]:
        """The peers' names, in order of rows; a copy."""
        return self._senders.copy()

    def sender(self, row: int) -> str:
        """Return the name of the peer in this row."""
        return self._senders[row]

    def hold(self, held: Held, chance: float = 1.0) -> bool:
        """Hold a message if it is newer than its sender's last one; return whether it is.

        The sender can then be drawn again.

        Args:
            held: What stands for a message: see `held`, or a draw of a private release.
            chance: P_N of its sender before normalisation, from 0 to `CHANCE_LIMIT`; default 1.
        """
        row = self._rows.get(held.sender, len(self))
        if row < len(self) and held.sequence <= self._columns["sequence"][row]:
            return False
        values = self._values(held)
        self._make_room(row + 1)
        for name, value in values.items():
            self._columns[name][row] = value
        self._columns["chance"][row] = chance
        self._columns["used"][row] = False
        self._columns["tips"][row] = np.nan if held.tip is None else held.tip
        self._add_sender(held.sender)
        return True

    def remove(self, senders: Iterable[str]) -> int:
        """Forget the messages of these senders; return how many there were.

        The rows of the other peers keep their order.
        """
        gone = {self._rows[sender] for sender in senders if sender in self._rows}
        if gone:
            kept = np.array([row for row in range(len(self)) if row not in gone], dtype=np.intp)
            for column in self._columns.values():
                column[: len(kept)] = column[kept]
            self._senders = [self._senders[row] for row in kept]
            self._rows = {sender: row for row, sender in enumerate(self._senders)}
            self.agents = Counter(map(member, self._senders))
        return len(gone)

    def draw(self, rng: np.random.Generator) -> int | None:
        """Draw a row from P_N, or None if no peer is left. It can be drawn again until `use`.

        Args:
            rng: The generator; one random number is taken from it, or none if no peer is left.
        """
        remaining = self._remaining()
        starts = np.arange(0, len(remaining), _BLOCK)
        sums = np.add.reduceat(remaining, starts) if len(starts) else remaining
        total = float(sums.sum())
        if total <= 0.0:
            return None
        block, u = _interval(sums, rng.random() * total)
        row, _ = _interval(remaining[starts[block] : starts[block] + _BLOCK], u)
        return int(starts[block]) + row

    def use(self, row: int) -> None:
        """Mark a message as used: its peer is not drawn again until it sends a newer message."""
        if not 0 <= row < len(self):
            raise IndexError(f"row is {row}, expected 0 to {len(self) - 1}")
        self._columns["used"][row] = True

    def state(self) -> dict[str, Any]:
        """Return the senders and a copy of the columns as bytes, for `restore`."""
        columns = {name: self._column(name).tobytes() for name in self._saved()}
        return {"senders": self.senders, **columns}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill this inbox, which is empty, with the same rows and the same draws.

        Args:
            state: What `state` returned. It may come from a file, so all of it is checked.

        Raises:
            ValueError: If no inbox of this size has this state.
        """
        for sender in state["senders"]:
            check_name(sender.replace(DRAW, "/"))  # or that of a draw of a release
        n = len(state["senders"])
        self._make_room(n)
        if len({self._add_sender(sender) for sender in state["senders"]}) < n:
            raise ValueError("a sender is in the inbox twice")
        for name in self._saved():
            column, data = self._columns[name], state[name]
            if name == "R" and n:
                rank = min(len(data) // (4 * n * self.M), self.M + _STEP)
                column = enlarged(column, (len(column), rank, self.M))
            values = np.frombuffer(data, np.uint8 if name == "used" else column.dtype)
            low, high = _LIMITS.get(name, (-_LARGEST, _LARGEST))
            possible = (values >= low) & (values <= high)
            if name in ("tips", "incumbents"):  # NaN: there is none
                possible |= np.isnan(values)
            if values.size != column[:n].size or not possible.all():
                raise ValueError(f"{name} in the inbox has numbers that are not possible")
            column[:n] = values.reshape(column[:n].shape)
            self._columns[name] = column

    def _saved(self) -> list[str]:
        return [name for name in self._columns if name != "draws"]  # which are made again

    def _values(self, held: Held) -> dict[str, Any]:
        return {"omega": held.content, "t_n": held.t_n, "sequence": held.sequence}

    def _column(self, name: str) -> NDArray[Any]:
        view = self._columns[name][: len(self)]
        view.flags.writeable = False
        return view

    def _remaining(self) -> NDArray[np.float64]:
        return np.where(self.used, 0.0, self.chance)

    def _add_sender(self, sender: str) -> int:
        row = self._rows.setdefault(sender, len(self))
        if row == len(self):
            self._senders.append(sender)
            self.agents[member(sender)] += 1
        return row

    def _make_room(self, rows: int) -> None:
        """Enlarge the columns to the next power of two, so that putting N messages is O(N)."""
        if rows > len(self._columns["used"]):
            room = max(_LEAST_ROOM, 1 << (rows - 1).bit_length())
            for name, column in self._columns.items():
                self._columns[name] = enlarged(column, (room, *column.shape[1:]))


class BeliefInbox(Inbox):
    """Messages of beliefs, one for each peer. As an `Inbox`, it holds one draw ω of each belief.

    The draws of a message depend on ``entropy``, its sender and its sequence number, and not on
    the order in which messages arrive.

    >>> header = dict(fingerprint=bytes(16), sender="site-a", sequence=1, t_n=1)
    >>> inbox = BeliefInbox(2)
    >>> message = Message.of_belief([1.0, 2.0], [[1.0, 0.0], [0.0, 0.25]], 0.8, **header)
    >>> inbox.hold(held(message)), inbox.nu.tolist(), inbox.draws(100).shape
    (True, [[1.0, 2.0]], (1, 100, 2))
    """

    nu: Single = _view("nu")  # (N, M) means of the weights
    R: Single = _view("R")  # (N, r, M) factors of the covariances: C_n = I − R_nᵀR_n
    incumbents: Array = _view("incumbents")  # (N,) best standardised scores; NaN: not sent

    def __init__(self, M: int, entropy: Entropy = 0, D: int = 0) -> None:
        super().__init__(M, D)
        self.entropy = entropy
        self._columns |= {
            "nu": np.zeros((0, M), dtype=np.float32),
            "R": np.zeros((0, 0, M), dtype=np.float32),
            "incumbents": np.zeros(0),
            "draws": np.zeros((0, 0, M), dtype=np.float32),
        }

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

    def remove(self, senders: Iterable[str]) -> int:
        gone = super().remove(senders)
        if gone:  # R is as wide as if they had never been there: its width may change last bits
            rank = int(self.R.any(axis=2).sum(axis=1).max(initial=0))
            self._columns["R"] = self._columns["R"][:, : _rounded_up(rank)].copy()
        return gone

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
    """Return an empty inbox for messages of a kind; its arguments are those of `BeliefInbox`."""
    return Inbox(M, D) if kind == "weights" else BeliefInbox(M, entropy, D)


def held(message: Message) -> Held:
    """Return what an inbox holds of a message of weights or of a belief."""
    header = message.sender, message.sequence, message.t_n
    match message.body:
        case Weights() as body:
            return Held(*header, body.omega)
        case Belief() as body:
            return Held(*header, (body.nu, reduction(body)), body.incumbent)
    raise ValueError(
        f"the message is of kind {message.kind!r}, expected 'weights' or 'belief'; for a compact "
        "one, use Shared.held"
    )


def _rounded_up(rank: int) -> int:
    return -(-rank // _STEP) * _STEP


@lru_cache(maxsize=256)  # in one process, many agents receive the same message
def reduction(belief: Belief) -> Single:
    """Return R (r, M) with orthogonal rows, the longest first, such that C = I − RᵀR.

    Eigenvalues of C outside [0, 1] are clipped: observations can only reduce the prior's variance.
    """
    C = belief.covariance.astype(np.float64)
    lam, Q = np.linalg.eigh(np.eye(len(C)) - C)
    R: Single = (Q * np.sqrt(lam.clip(0.0, 1.0))).T[lam > LEAST_EIGENVALUE][::-1].astype(np.float32)
    return R


def _sample(nu: Single, R: Single, n: int, key: np.random.SeedSequence) -> Single:
    """Return (n, M) draws ω ~ N(ν, I − RᵀR), by the square root of the covariance."""
    R64 = R.astype(np.float64)
    lam = np.einsum("rm,rm->r", R64, R64)
    Z = np.random.default_rng(key).standard_normal((n, len(nu)))
    Z -= ((Z @ R64.T) / (1.0 + np.sqrt(np.maximum(1.0 - lam, 0.0)))) @ R64
    Z += nu
    return Z.astype(np.float32)


def _interval(lengths: NDArray[np.float64], u: float) -> tuple[int, float]:
    """Return which of the intervals, laid end to end from 0, holds u, and u's place in it."""
    ends = np.cumsum(lengths)
    u = min(u, float(np.nextafter(ends[-1], 0.0)))  # rounding may carry u past the end
    i = int(np.searchsorted(ends, u, side="right"))
    return i, u - float(ends[i - 1]) if i else u


def enlarged(column: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a copy of a column with a larger shape. The new places hold 0."""
    larger = np.zeros(shape, dtype=column.dtype)
    larger[tuple(slice(n) for n in column.shape)] = column
    return larger
