"""The messages of one federation and epoch in memory, and what of them a member gets.

Each row is a message at the hub:

=======  ==========================================================================  ========
name     meaning                                                                     type
=======  ==========================================================================  ========
number   its id in the database                                                      int64
cursor   of its last change                                                          int64
is_out   whether it is handed out; otherwise it was withdrawn or removed             bool
member   the id of its member; 0 if that has left                                    int64
luck     a random number; multiplied by a member's odd number, it gives the lot      uint64
handed   the message itself, or its signed withdrawal                                list
=======  ==========================================================================  ========

If more messages are out than one member gets, it gets those of its own agents and a random sample
of the others: those whose lots, for this member, are not above a limit. (Those that are most like
its own message would be no better: see docs/transfer.md.) The limit is in the member's cursor, so
that the hub need not remember what a member holds. It changes only if the sample has become too
large or too small, so a sample is kept as long as possible.

A message that its sender has withdrawn is replaced by the signed withdrawal, which a member that
held it gets once: so the hub cannot put the message back. Other removals are numbers to forget.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbo.exchange.hub.wire import ANSWER_BYTES, MOST_PEERS, Handed, News, Wanted

Indices = NDArray[np.intp]

_ALL = 2**64 - 1  # the limit of a sample with everything
_SPARE = 1 / 16  # the share of a sample by which it may grow before it is drawn again, or shrink
_NUMBERS = re.compile(r"([0-9]{1,18})\.([0-9a-f]{1,16})")
_NONE: Indices = np.zeros(0, dtype=np.intp)
_ROW_BYTES = 400  # that a message takes in memory beside its content


class Head(NamedTuple):
    """What is known of a federation at one moment.

    Args:
        generation: Of the database: cursors of another one mean nothing.
        cursor: Of the last change.
        floor: Removals up to this cursor are forgotten.
        epoch: The current one.
    """

    generation: str = ""
    cursor: int = -1
    floor: int = 0
    epoch: int = 0


class Row(NamedTuple):
    """A row of the table of messages."""

    number: int
    cursor: int
    is_out: bool
    member: int | None
    sender: str
    content: bytes


class _Known(NamedTuple):
    """What a cursor says: the last change that its member knows, and the limit of its sample."""

    since: int
    limit: int


class Shelf:
    """Messages in memory. All changes up to the cursor of its head are in it.

    >>> shelf = Shelf()
    >>> shelf.put([Row(7, 1, True, 1, "site-a", b"...")])
    >>> shelf.head = Head("g", cursor=1)
    >>> shelf.news(1, Wanted(epoch=0), most=1024).handed
    (Handed(number=7, content=b'...'),)
    """

    def __init__(self) -> None:
        self.head = Head()
        self.out = 0  #: how many messages are out
        self._n = 0
        self._content_bytes = self._largest = 0
        self._rows: dict[int, int] = {}
        self._handed: list[Handed | None] = []
        self._recent: dict[int, int] = {}  # the cursors of all rows, in ascending order
        self._columns: dict[str, NDArray[Any]] = {
            "number": np.zeros(0, dtype=np.int64),
            "cursor": np.zeros(0, dtype=np.int64),
            "is_out": np.zeros(0, dtype=np.bool_),
            "member": np.zeros(0, dtype=np.int64),
            "luck": np.zeros(0, dtype=np.uint64),
        }

    @property
    def nbytes(self) -> int:
        """How much memory it takes, about."""
        columns = sum(column.nbytes for column in self._columns.values())
        return self._content_bytes + columns + _ROW_BYTES * (1 + self._n)

    def put(self, changed: Sequence[Row]) -> None:
        """Take rows of the database that are new or have changed.

        Args:
            changed: The rows, with ascending cursors.
        """
        rows = [self._row(one.number) for one in changed]
        new = np.array(rows, dtype=np.intp)
        is_out = np.array([one.is_out for one in changed], dtype=np.bool_)
        self.out += int(is_out.sum()) - int(self._column("is_out")[new].sum())
        self._column("number")[new] = [one.number for one in changed]
        self._column("cursor")[new] = [one.cursor for one in changed]
        self._column("member")[new] = [one.member or 0 for one in changed]
        self._column("is_out")[new] = is_out
        self._column("luck")[new] = _mixed(self._column("number")[new])
        for i, one in zip(rows, changed, strict=True):
            old = self._handed[i]
            self._content_bytes -= 0 if old is None else len(old.content)
            self._content_bytes += len(one.content)
            self._largest = max(self._largest, len(one.content))
            self._handed[i] = Handed(one.number, one.content) if one.content else None
            self._recent.pop(i, None)
            self._recent[i] = one.cursor

    def news(self, member: int, wanted: Wanted, most: int) -> News:
        """Return what has changed for a member since it last asked.

        Args:
            member: Its id.
            wanted: What it asks for.
            most: How many messages it gets at most; fewer if they are large.
        """
        most = max(1, min(most, ANSWER_BYTES // max(self._largest, 1)))
        known = self._known(member, wanted.cursor)
        changed = None if known is None else self._changed(known.since)
        count = 0 if known is None or not changed else self._count(member, known.limit)
        if known is None or changed is None or count > 2 * most:
            limit = self._drawn(member, most)
            return self._news(member, limit, self._heard(member, limit), is_all=True)
        if not changed:
            return self._news(member, known.limit, _NONE)
        limit = known.limit if self._is_right(count, most) else self._drawn(member, most)
        rows = np.array(changed, dtype=np.intp)
        is_out = self._column("is_out")[rows]
        new = rows[is_out & self._is_heard(member, limit, rows)]
        lost = rows[~is_out & self._is_heard(member, known.limit, rows)]
        withdrawn, gone = self._withdrawn(lost)
        if limit != known.limit:
            before, now = self._heard(member, known.limit), self._heard(member, limit)
            new = np.union1d(new, np.setdiff1d(now, before))
            gone = np.concatenate([gone, np.setdiff1d(before, now)])
        return self._news(member, limit, np.concatenate([new, withdrawn]), gone)

    def _known(self, member: int, cursor: str) -> _Known | None:
        """Return what a cursor says; None if it is another member's, too old, or means nothing."""
        start = f"{self.head.generation}.{member}."
        if not cursor.startswith(start):
            return None
        found = _NUMBERS.fullmatch(cursor, len(start))
        if found is None:
            return None
        known = _Known(int(found[1]), int(found[2], 16))
        return known if self.head.floor <= known.since <= self.head.cursor else None

    def _changed(self, since: int) -> list[int] | None:
        """Return the rows that have changed since a cursor; None if these are too many."""
        changed: list[int] = []
        for row, cursor in islice(reversed(self._recent.items()), 2 * MOST_PEERS + 1):
            if cursor <= since:
                return changed
            changed.append(row)
        return changed if len(changed) <= 2 * MOST_PEERS else None

    def _is_right(self, count: int, most: int) -> bool:
        """Whether a sample of so many messages is neither too large nor too small."""
        fewest = most - int(2 * _SPARE * most)
        return count == self.out <= most or fewest <= count <= most < self.out

    def _drawn(self, member: int, most: int) -> int:
        """Return the limit of a new sample."""
        if self.out <= most:
            return _ALL
        is_other = self._column("is_out") & (self._column("member") != member)
        others = int(np.count_nonzero(is_other))
        k = most - int(_SPARE * most) - (self.out - others)
        if k <= 0:
            return 0
        lots = self._lots(member, slice(None))
        enough = min(int(2**64 * (k + 6 * k**0.5 + 6) / others), _ALL)  # almost always
        small = lots[is_other & (lots <= np.uint64(enough))]
        if len(small) < k:
            small = lots[is_other]
        return int(np.partition(small, k - 1)[k - 1])

    def _count(self, member: int, limit: int) -> int:
        """Return how many messages are in a member's sample."""
        return self.out if limit == _ALL else len(self._heard(member, limit))

    def _heard(self, member: int, limit: int) -> Indices:
        """Return the rows of a member's sample: its own messages, and those with small lots."""
        return np.flatnonzero(self._column("is_out") & self._is_heard(member, limit, slice(None)))

    def _is_heard(self, member: int, limit: int, rows: Indices | slice) -> NDArray[np.bool_]:
        members = self._column("member")[rows]
        if limit == _ALL:
            return np.ones(len(members), dtype=np.bool_)
        return np.asarray((self._lots(member, rows) <= np.uint64(limit)) | (members == member))

    def _lots(self, member: int, rows: Indices | slice) -> NDArray[np.uint64]:
        seed = f"{self.head.generation} {member}".encode()
        odd = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big") | 1
        return np.asarray(self._column("luck")[rows] * np.uint64(odd))

    def _withdrawn(self, rows: Indices) -> tuple[Indices, Indices]:
        """Divide rows that are not out: those with a signed withdrawal, and the others."""
        is_signed = np.array([self._handed[row] is not None for row in rows], dtype=np.bool_)
        return rows[is_signed], rows[~is_signed]

    def _news(
        self,
        member: int,
        limit: int,
        rows: Indices,
        gone: Indices = _NONE,
        *,
        is_all: bool = False,
    ) -> News:
        cursor = f"{self.head.generation}.{member}.{self.head.cursor}.{limit:x}"
        found = map(self._handed.__getitem__, rows.tolist())
        handed = tuple(one for one in found if one is not None)
        numbers = tuple(self._column("number")[gone].tolist())
        return News(cursor, is_all, handed, numbers, self.head.epoch)

    def _row(self, number: int) -> int:
        row = self._rows.get(number)
        if row is None:
            row = self._rows[number] = self._n
            self._n += 1
            self._handed.append(None)
            if self._n > len(self._columns["number"]):
                self._grow(max(64, 3 * self._n // 2))
        return row

    def _grow(self, room: int) -> None:
        for name, column in self._columns.items():
            larger = np.zeros((room, *column.shape[1:]), dtype=column.dtype)
            larger[: len(column)] = column
            self._columns[name] = larger

    def _column(self, name: str) -> NDArray[Any]:
        return self._columns[name][: self._n]


def _mixed(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return 64 bits for each number that look random (SplitMix64)."""
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
