"""The messages that an agent holds: one row for each peer, with the peer's latest message.

========  ============================================================  =======
symbol    meaning                                                       shape
========  ============================================================  =======
N         number of peers, in order of their first message              scalar
omega     ω_n, the weights that peer n handed out, in float32           (N, M)
chance    P_N before normalisation (Algorithm 1, line 6)                (N,)
used      whether the message was used; its element of P_N is then 0    (N,)
tips      the point that each peer recommends; NaN if it names none     (N, D)
========  ============================================================  =======

An inbox trusts its caller. Messages from outside go through `fedbo.Agent.receive`, which checks
them against the federation first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.message.message import Message
from fedbo.message.signed import MessageRefused

#: The largest chance of a peer. The sum of any number of them is finite.
CHANCE_LIMIT = 1e200

Array = NDArray[np.float64]
Single = NDArray[np.float32]
Belief = tuple[Single, Single]  # ν (M,) and R (r, M), see `fedbo.message.beliefs`

_LEAST_ROOM = 8  # rows
_BLOCK = 1024  # rows that `draw` sums first: a sum is ten times as fast as a cumulative sum
#: The names of the columns in files, which are those of version 0.1.
_SAVED = dict(
    omega="omega", t_n="t_n", sequence="sequence", chance="weight", used="used", tips="tips"
)


class Held(NamedTuple):
    """What an inbox holds of one peer: weights ω (M,), or a belief if it is an inbox of beliefs."""

    sender: str
    sequence: int
    t_n: int  # number of observations behind it
    content: Single | Belief
    incumbent: float = math.nan
    tip: Array | None = None  # the point (D,) that the peer recommends


class Inbox:
    """Messages of weights, one for each peer, drawn without replacement.

    The arrays are read-only views with one row for each peer. Get them again after `put` or
    `extend`.

    Args:
        M: Number of weights in a message.
        D: Dimensions of the space; 0 (default) if no peer recommends a point.

    Example:
        >>> inbox = Inbox(2)
        >>> inbox.extend(["a", "b"], [[1, 2], [3, 4]], t_n=20, sequence=1, chance=[0, 0.5])
        2
        >>> row = inbox.draw(np.random.default_rng(0))
        >>> inbox.sender(row), inbox.omega[row].tolist()
        ('b', [3.0, 4.0])
    """

    def __init__(self, M: int, D: int = 0) -> None:
        if M < 1:
            raise ValueError(f"M is {M}, expected the number of features, 1 or more")
        self.M, self.D = M, D
        self._senders: list[str] = []
        self._rows: dict[str, int] = {}
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

    def __repr__(self) -> str:
        held = f"{len(self)} messages of M = {self.M}, {self.left} left to draw"
        return f"{type(self).__name__}({held})"

    @property
    def left(self) -> int:
        """Number of peers that can be drawn: not used, and with a chance above 0."""
        return int(np.count_nonzero(self._remaining()))

    @property
    def informed(self) -> int:
        """Number of messages that say something: they have observations behind them."""
        return int(np.count_nonzero(self.t_n))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, including the room for more rows, without the senders' names."""
        return sum(column.nbytes for column in self._columns.values())

    @property
    def senders(self) -> list[str]:
        """The peers' names, in order of rows; a copy."""
        return self._senders.copy()

    @property
    def omega(self) -> NDArray[np.float32]:
        """(N, M) weights."""
        return self._column("omega")

    @property
    def t_n(self) -> NDArray[np.int32]:
        """(N,) number of observations behind each message."""
        return self._column("t_n")

    @property
    def sequence(self) -> NDArray[np.int64]:
        """(N,) sequence number of each message."""
        return self._column("sequence")

    @property
    def chance(self) -> NDArray[np.float64]:
        """(N,) P_N before normalisation, as it was before any message was used."""
        return self._column("chance")

    @property
    def used(self) -> NDArray[np.bool_]:
        """(N,) whether the message was used."""
        return self._column("used")

    @property
    def tips(self) -> Array:
        """(N, D) the point that each peer recommends; NaN if it names none."""
        return self._column("tips")

    def sender(self, row: int) -> str:
        """Return the name of the peer in this row."""
        return self._senders[row]

    def put(
        self,
        message: Message,
        chance: float = 1.0,
        belief: Belief | None = None,
        tip: Array | None = None,
    ) -> bool:
        """Hold a message if it is newer than its sender's last one; return whether it is.

        The sender can then be drawn again.

        Args:
            message: A message that fits the agent's federation.
            chance: P_N of its sender before normalisation, from 0 to `CHANCE_LIMIT`; default 1.
            belief: ν (M,) and R (r, M) of an inbox of beliefs, if the message does not have them
                itself; None by default.
            tip: The point (D,) that the message recommends; None (default) if it names none.
        """
        return self.hold(self._held(message, belief)._replace(tip=tip), chance)

    def hold(self, held: Held, chance: float = 1.0) -> bool:
        """Hold what stands for a message of a peer, as `put` holds a message.

        Args:
            held: What to hold, for example a draw of a private release.
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

    def extend(
        self,
        senders: Sequence[str],
        omega: ArrayLike,
        *,
        t_n: ArrayLike,
        sequence: ArrayLike,
        chance: ArrayLike = 1.0,
    ) -> int:
        """Put many messages at once; return the number of peers that have a new message.

        Args:
            senders: The names of n peers.
            omega: (n, M) weights.
            t_n: Number of observations behind each message: (n,), or one number for all.
            sequence: Sequence numbers: (n,), or one number for all.
            chance: P_N of each peer before normalisation: (n,), or one number for all; default 1.
        """
        n = len(senders)
        given = {"omega": omega, "t_n": t_n, "sequence": sequence, "chance": chance, "used": False}
        arrays = {name: self._batch(name, values, n) for name, values in given.items()}
        if not np.isfinite(arrays["omega"]).all():
            raise MessageRefused("omega has NaN or infinity, expected finite weights")
        if not ((arrays["chance"] >= 0.0) & (arrays["chance"] <= CHANCE_LIMIT)).all():
            raise ValueError(f"chance is {chance!r}, expected numbers from 0 to {CHANCE_LIMIT}")
        newest = self._newest(senders, arrays["sequence"].tolist())
        self._make_room(len(self) + sum(sender not in self._rows for sender in newest))
        rows = np.array([self._add_sender(sender) for sender in newest], dtype=np.intp)
        positions = np.array([*newest.values()], dtype=np.intp)
        for name, array in arrays.items():
            # If every message is taken, they are in order: array[positions] would be a copy.
            self._columns[name][rows] = array if len(rows) == n else array[positions]
        self._columns["tips"][rows] = np.nan
        return len(rows)

    def remove(self, senders: Iterable[str]) -> int:
        """Forget the messages of these senders; return how many there were.

        The rows of the other peers keep their order.

        Args:
            senders: Names of peers; those without a message are ignored.
        """
        gone = {self._rows[sender] for sender in senders if sender in self._rows}
        if gone:
            kept = np.array([row for row in range(len(self)) if row not in gone], dtype=np.intp)
            for column in self._columns.values():
                column[: len(kept)] = column[kept]
            self._senders = [self._senders[row] for row in kept]
            self._rows = {sender: row for row, sender in enumerate(self._senders)}
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
        """Return a copy of all messages as numbers, bytes and arrays, for `restore`."""
        names = [sender.encode() for sender in self._senders]
        columns = {saved: self._column(name).copy() for name, saved in _SAVED.items()}
        sizes = np.array([len(name) for name in names], dtype=np.uint8)
        return {"M": self.M, "D": self.D, "names": b"".join(names), "name_sizes": sizes, **columns}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """Return an inbox with the same rows and the same draws.

        Args:
            state: What `state` returned, in this version or in 0.1.
        """
        inbox = cls(int(state["M"]), D=int(state["D"]))
        ends = np.cumsum(state["name_sizes"], dtype=np.int64).tolist()
        names = [bytes(state["names"][a:b]).decode() for a, b in pairwise([0, *ends])]
        lengths = {saved: len(state[saved]) for saved in _SAVED.values()}
        if {len(names), len(set(names)), *lengths.values()} != {len(names)}:
            raise ValueError(
                f"the state of the inbox has {len(set(names))} senders and columns of lengths "
                f"{lengths}, expected {len(names)} of each; it was not written by state()"
            )
        inbox._make_room(len(names))
        for name, saved in _SAVED.items():
            inbox._columns[name][: len(names)] = state[saved]
        for name in names:
            inbox._add_sender(name)
        return inbox

    def _held(self, message: Message, belief: Belief | None) -> Held:
        return Held(message.sender, message.sequence, message.t_n, message.omega)

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
        return row

    def _make_room(self, rows: int) -> None:
        """Enlarge the columns to the next power of two, so that putting N messages is O(N)."""
        if rows > len(self._columns["used"]):
            room = max(_LEAST_ROOM, 1 << (rows - 1).bit_length())
            for name, column in self._columns.items():
                self._columns[name] = enlarged(column, (room, *column.shape[1:]))

    def _batch(self, name: str, values: ArrayLike, n: int) -> NDArray[Any]:
        column = self._columns[name]
        array = np.asarray(values, dtype=column.dtype)
        expected = (n, *column.shape[1:])
        if array.shape != expected and (array.shape or name == "omega"):
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
        return np.broadcast_to(array, expected)

    def _newest(self, senders: Sequence[str], sequence: Sequence[int]) -> dict[str, int]:
        """Find the newest message of each sender, if it is newer than the one that is held."""
        newest: dict[str, int] = {}
        held = self.sequence
        latest = {s: int(held[self._rows[s]]) for s in senders if s in self._rows}
        for i, sender in enumerate(senders):
            if sequence[i] > latest.get(sender, -1):
                newest[sender], latest[sender] = i, sequence[i]
        return newest


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
