"""The messages an agent holds: a million of M = 100 in under 500 MB.

=======  ====================================================================================
N        number of peers; each has one row, in order of arrival, and its latest message there
omega    (N, M) the weights that they handed out, float32
P_N      distribution from which a peer is drawn (Algorithm 1, line 6): proportional to the
         weights of the rows that are not used up
=======  ====================================================================================

`put`, `draw` and `use` cost O(log N); only `weigh`, `extend`, `state` and `restore` look at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.message import COUNTER_LIMITS, SENDER_BYTES, Message, MessageRefused
from fedbo.message.columns import ROWS, Chunk, Index, SumTree, newest

BATCH = 65_536  # messages that `extend` takes at a time: its temporaries stay small
WEIGHT_LIMIT = 1e200  # a sum of any number of these is finite


class Inbox:
    """Messages of weights, one per peer, drawn without replacement.

    >>> inbox = Inbox(2)
    >>> inbox.extend(["a", "b"], [[1, 2], [3, 4]], t_n=20, sequence=1, weights=[0, 0.5])
    2
    >>> row = inbox.draw(np.random.default_rng(0))
    >>> inbox.sender(row), inbox.omega(row), inbox.t_n(row)
    ('b', array([3., 4.]), 20)
    >>> inbox.use(row)
    >>> len(inbox), inbox.left, inbox.draw(np.random.default_rng(0))
    (2, 0, None)
    """

    def __init__(self, M: int) -> None:
        if M < 1:
            raise ValueError(f"M is {M}, expected 1 or more: the number of features")
        self.M = M
        self._count = 0
        self._left = 0
        self._chunks: list[Chunk] = []
        self._sums = SumTree(256)  # over chunks; doubled when they are more
        self._index = Index(self._name)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        kind, M = type(self).__name__, self.M
        return f"{kind}({self._count} messages of M = {M}, {self._left} left to draw)"

    @property
    def left(self) -> int:
        """How many peers can be drawn: not used, and of positive weight."""
        return self._left

    @property
    def nbytes(self) -> int:
        """Memory of all columns, their spare room included."""
        chunks = sum(chunk.nbytes for chunk in self._chunks)
        return chunks + self._sums.nodes.nbytes + self._index.nbytes

    @property
    def matrix(self) -> Iterator[NDArray[np.float32]]:
        """All weights in order of rows, as read-only pieces of shape (rows, M)."""
        for c, chunk in enumerate(self._chunks):
            piece = chunk.omega[: self._count - c * ROWS]
            piece.flags.writeable = False
            yield piece

    def omega(self, row: int) -> NDArray[np.float64]:
        """(M,) the weights in this row, a copy."""
        chunk, i = self._place(row)
        return np.array(chunk.omega[i], dtype=np.float64)

    def omegas(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """(n, M) the weights in these rows, a copy."""
        found = np.empty((len(rows), self.M), dtype=np.float32)
        for c in np.unique(rows // ROWS).tolist():
            here = rows // ROWS == c
            found[here] = self._chunks[c].omega[rows[here] % ROWS]
        return found

    def sender(self, row: int) -> str:
        chunk, i = self._place(row)
        return chunk.name(i).decode()

    def t_n(self, row: int) -> int:
        """How many observations the sender had."""
        chunk, i = self._place(row)
        return int(chunk.t_n[i])

    def check(self, message: Message, weight: float | None = None) -> None:
        """Raise what `put` would raise, and change nothing."""
        self._require(message)
        if weight is not None and not 0 <= weight <= WEIGHT_LIMIT:
            raise ValueError(
                f"the weight of {message.sender!r} is {weight!r}, "
                f"expected a number from 0 to {WEIGHT_LIMIT}"
            )

    def put(self, message: Message, weight: float | None = None) -> bool:
        """Take the message unless one as new is here already; True if it was taken.

        A newer message replaces the peer's older one, and the peer can be drawn again. Without
        a weight, a new peer gets 1 and a known one keeps what it had.
        """
        self.check(message, weight)
        row = self._row(message.sender.encode())
        chunk, i = self._chunks[row // ROWS], row % ROWS
        if message.sequence <= chunk.sequence_at[i]:
            return False
        self._left -= not chunk.used_at[i] and chunk.weight_at[i] > 0
        chunk.omega[i] = self._take(row, message)
        chunk.t_n[i] = message.t_n
        chunk.sequence_at[i] = message.sequence
        if weight is not None:
            chunk.weight_at[i] = weight
        chunk.used_at[i] = False
        self._left += chunk.weight_at[i] > 0
        self._sum_around(row)
        return True

    def extend(
        self,
        senders: Sequence[str],
        omegas: ArrayLike,
        *,
        t_n: ArrayLike,
        sequence: ArrayLike,
        weights: ArrayLike | None = None,
    ) -> int:
        """Put many at once, with the same outcome; how many peers have a new message.

        Omegas are (n, M); the rest is (n,), or one number for all. Either all are taken or, if
        one is refused, none.
        """
        n = len(senders)
        if not n:
            return 0
        omegas = np.asarray(omegas)
        _require_omegas(omegas, n, self.M)
        for sender in senders:
            if not 1 <= len(sender.encode()) <= SENDER_BYTES:
                raise MessageRefused(f"sender is {sender!r}, expected 1 to 64 bytes of UTF-8")
        columns = {
            "omega": omegas,
            "t_n": _counters("t_n", t_n, n),
            "sequence": _counters("sequence", sequence, n),
        }
        if weights is not None:
            columns["weight"] = _weights(weights, n)
        taken = 0
        for first in range(0, n, BATCH):
            batch = slice(first, min(first + BATCH, n))
            rows = [self._row(sender.encode()) for sender in senders[batch]]
            part = {name: column[batch] for name, column in columns.items()}
            taken += self._write(np.array(rows, dtype=np.int64), part)
        return taken

    def draw(self, rng: np.random.Generator) -> int | None:
        """The row of a peer drawn from P_N, or None if no weight is left."""
        if not self._left:
            return None
        c, u = self._sums.find(rng.random() * self._sums.total)
        return c * ROWS + self._chunks[c].find(u)

    def use(self, row: int) -> None:
        """Mark the row used up: it is not drawn again until its peer sends a newer message."""
        chunk, i = self._place(row)
        self._left -= not chunk.used_at[i] and chunk.weight_at[i] > 0
        chunk.used_at[i] = True
        self._sum_around(row)

    def weigh(self, weights: ArrayLike) -> None:
        """Set P_N anew from one weight per row; rows that are used up stay so."""
        column = _weights(weights, self._count)
        for c, chunk in enumerate(self._chunks):
            part = column[c * ROWS : (c + 1) * ROWS]
            chunk.weight[: len(part)] = part
        self._sum_all()

    def state(self) -> dict[str, Any]:
        """Everything, as plain numbers, bytes and arrays in order of rows, for `restore`."""
        chunks = self._chunks or [Chunk(self.M)]
        filled = [(chunk, self._count - c * ROWS) for c, chunk in enumerate(chunks)]
        sizes = [np.diff(chunk.ends[: n + 1]).astype(np.uint8) for chunk, n in filled]
        state = {"M": self.M, "names": b"".join(chunk.names for chunk in chunks)}
        columns = {
            name: np.concatenate([getattr(chunk, name)[:n] for chunk, n in filled])
            for name in ("omega", "t_n", "sequence", "weight", "used")
        }
        return {**state, "name_sizes": np.concatenate(sizes), **columns}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """A new inbox as the one whose `state` this is: same rows, same draws."""
        inbox = cls(int(state["M"]))
        used = np.asarray(state["used"], dtype=np.bool_)
        ends = np.cumsum(state["name_sizes"], dtype=np.int64).tolist()
        names = [state["names"][a:b].decode() for a, b in pairwise([0, *ends])]
        counters = {name: state[name] for name in ("t_n", "sequence")}
        Inbox.extend(inbox, names, state["omega"], weights=state["weight"], **counters)
        if not len(inbox) == len(names) == len(used):
            raise ValueError(
                f"the inbox's state has {len(names)} rows of {len(inbox)} senders and {len(used)} "
                "marks of use, expected the same number of each; it was not written by state()"
            )
        for c, chunk in enumerate(inbox._chunks):
            part = used[c * ROWS : (c + 1) * ROWS]
            chunk.used[: len(part)] = part
        inbox._sum_all()
        return inbox

    def _require(self, message: Message) -> None:
        if message.kind != "weights" or message.M != self.M:
            raise MessageRefused(
                f"message of {message.sender!r} is of kind {message.kind!r} with M = {message.M}; "
                f"this inbox holds weights with M = {self.M}"
            )

    def _take(self, row: int, message: Message) -> NDArray[np.float32]:
        """(M,) the weights that this message puts into its row."""
        return message.omega

    def _name(self, row: int) -> bytes | bytearray:
        return self._chunks[row // ROWS].name(row % ROWS)

    def _place(self, row: int) -> tuple[Chunk, int]:
        if not 0 <= row < self._count:
            raise IndexError(f"row is {row}, expected 0 to {self._count - 1}: see len(inbox)")
        return self._chunks[row // ROWS], row % ROWS

    def _row(self, name: bytes) -> int:
        """The sender's row; a new sender gets the next one, empty so far."""
        row = self._index.row(name, self._count)
        if row == self._count:
            c, i = divmod(row, ROWS)
            if c == len(self._chunks):
                self._chunks.append(Chunk(self.M))
                if c == self._sums.leaves:
                    self._sums = self._sums.doubled()
            self._chunks[c].append_name(i, name)
            self._count += 1
        return row

    def _write(self, rows: NDArray[np.int64], columns: Mapping[str, NDArray[Any]]) -> int:
        """Write each row's newest message if it is newer than what is there; how many were."""
        winners = newest(rows, columns["sequence"])
        chunk_of = rows[winners] // ROWS
        taken = 0
        for c in np.unique(chunk_of).tolist():
            chunk, here = self._chunks[c], winners[chunk_of == c]
            here = here[columns["sequence"][here] > chunk.sequence[rows[here] % ROWS]]
            before = chunk.left
            for name, column in columns.items():
                getattr(chunk, name)[rows[here] % ROWS] = column[here]
            chunk.used[rows[here] % ROWS] = False
            chunk.sum_all()
            self._sums.put(c, chunk.tree.total)
            self._left += chunk.left - before
            taken += len(here)
        return taken

    def _sum_around(self, row: int) -> None:
        chunk = self._chunks[row // ROWS]
        chunk.sum_around(row % ROWS)
        self._sums.put(row // ROWS, chunk.tree.total)

    def _sum_all(self) -> None:
        for chunk in self._chunks:
            chunk.sum_all()
        self._sums.fill(np.array([chunk.tree.total for chunk in self._chunks]))
        self._left = sum(chunk.left for chunk in self._chunks)


def _require_omegas(omegas: NDArray[Any], n: int, M: int) -> None:
    if omegas.shape != (n, M):
        raise MessageRefused(f"omegas have shape {omegas.shape}, expected {(n, M)}")
    for first in range(0, n, ROWS):
        with np.errstate(over="ignore"):
            finite = np.isfinite(omegas[first : first + ROWS].astype(np.float32)).all(axis=1)
        if not finite.all():
            raise MessageRefused(f"omegas[{first + int(np.argmin(finite))}] holds NaN or infinity")


def _counters(name: str, values: ArrayLike, n: int) -> NDArray[np.int64]:
    column, limit = np.asarray(values), COUNTER_LIMITS[name]
    if column.dtype.kind not in "iu" or column.shape not in {(), (n,)}:
        raise MessageRefused(f"{name} is {column!r}, expected a whole number or {n} of them")
    if not 0 <= column.min() <= column.max() <= limit:
        raise MessageRefused(f"{name} is {column.min()} to {column.max()}, expected 0 to {limit}")
    return np.broadcast_to(column, (n,)).astype(np.int64, copy=False)


def _weights(values: ArrayLike, n: int) -> NDArray[np.float64]:
    column = np.asarray(values, dtype=np.float64)
    if column.shape not in {(), (n,)}:
        raise ValueError(f"weights have shape {column.shape}, expected ({n},), one for each row")
    wrong = ~((column >= 0) & (column <= WEIGHT_LIMIT))
    if wrong.any():
        bad = float(column[wrong][0])
        raise ValueError(f"a weight is {bad}, expected numbers from 0 to {WEIGHT_LIMIT}")
    return np.broadcast_to(column, (n,))
