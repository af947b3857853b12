"""The messages of one federation and epoch in memory, and what of them a member gets.

Each row is a message at the hub:

=======  ==========================================================================  ========
name     meaning                                                                     type
=======  ==========================================================================  ========
number   its id in the database                                                      int64
cursor   of its last change                                                          int64
is_out   whether it is handed out; otherwise it was withdrawn or removed             bool
member   the id of its member; 0 if that has left                                    int64
luck     a random number: a selection has those with the smallest                    uint64
handed   the message itself, or its signed withdrawal                                list
=======  ==========================================================================  ========

If more messages are out than one member gets, it gets a selection: those of its own agents, and a
random sample of the others, which differs from member to member and does not change without need.
(Those most like its own message would be no better: see docs/transfer.md.) The member says what it
holds, and is told the difference. A sample is filled up if much of it is gone.

A message that its sender has withdrawn is replaced by the signed withdrawal, which an agent that
held it gets once: so the hub cannot put the message back. Other removals are numbers to forget.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbo.exchange.hub.wire import MOST_PEERS, Handed, News, Wanted

Indices = NDArray[np.intp]

_FEW = 0.9  # a selection that has shrunk to this share is filled up
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
        self._content_bytes = 0
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
            self._handed[i] = Handed(one.number, one.content) if one.content else None
            self._recent.pop(i, None)
            self._recent[i] = one.cursor

    def news(self, member: int, wanted: Wanted, most: int) -> News:
        """Return what has changed for an agent since it last asked.

        Args:
            member: The id of its member.
            wanted: What it asks for.
            most: How many messages it gets at most.
        """
        since = self._since(wanted.cursor)
        if self.out <= most:
            return self._all_news(wanted, since)
        return self._selected_news(member, wanted, since, most)

    def _all_news(self, wanted: Wanted, since: int | None) -> News:
        is_out = self._column("is_out")
        if since is not None and wanted.held:  # there were too many messages when it last asked
            return self._difference(np.flatnonzero(is_out), wanted.held, since)
        if since is not None and (changed := self._changed(since)) is not None:
            handed = [one for row in changed if (one := self._handed[row]) is not None]
            gone = []
            if len(handed) < len(changed):
                rows = [row for row in changed if self._handed[row] is None]
                gone = self._column("number")[rows].tolist()
            return self._news(handed, gone)
        return self._answer(np.flatnonzero(is_out), (), is_all=True)

    def _changed(self, since: int) -> list[int] | None:
        """Return the rows that have changed since a cursor; None if these are too many."""
        changed: list[int] = []
        for row, cursor in islice(reversed(self._recent.items()), 2 * MOST_PEERS + 1):
            if cursor <= since:
                return changed
            changed.append(row)
        return changed if len(changed) <= 2 * MOST_PEERS else None

    def _selected_news(self, member: int, wanted: Wanted, since: int | None, most: int) -> News:
        is_out = self._column("is_out")
        own = np.flatnonzero((self._column("member") == member) & is_out)[:most]
        if since is None or not wanted.held:
            chosen = self._filled_up(member, own, most)
            return self._answer(chosen, (), is_all=True, is_selection=True)
        held, _ = self._held(wanted.held)
        others = np.setdiff1d(held[is_out[held]], own)
        kept = np.sort(np.concatenate([own, others[: most - len(own)]]))
        if len(kept) < _FEW * most:
            kept = self._filled_up(member, kept, most)
        return self._difference(kept, wanted.held, since, is_selection=True)

    def _filled_up(self, member: int, kept: Indices, most: int) -> Indices:
        """Add random messages that are out, for the same member mostly the same ones."""
        is_left = self._column("is_out").copy()
        is_left[kept] = False
        seed = f"{self.head.generation} {member}".encode()
        odd = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big") | 1
        luck = self._column("luck") * np.uint64(odd)
        luck[~is_left] = np.iinfo(np.uint64).max
        drawn = _smallest(luck, most - len(kept), int(is_left.sum()))
        return np.sort(np.concatenate([kept, drawn]))

    def _difference(
        self, chosen: Indices, numbers: Sequence[int], since: int, *, is_selection: bool = False
    ) -> News:
        """Return what to tell an agent that holds messages with these numbers."""
        held, unknown = self._held(numbers)
        cursor = self._column("cursor")
        new = chosen[~np.isin(chosen, held) | (cursor[chosen] > since)]
        old = held[~np.isin(held, chosen)]
        is_news = ~self._column("is_out")[old] & (cursor[old] > since)
        withdrawn, gone = self._withdrawn(old[is_news])
        gone = np.concatenate([old[~is_news], gone])
        forget = [*self._column("number")[gone].tolist(), *unknown]
        return self._answer(np.concatenate([new, withdrawn]), forget, is_selection=is_selection)

    def _withdrawn(self, rows: Indices) -> tuple[Indices, Indices]:
        """Divide rows that are not out: those with a signed withdrawal, and the others."""
        is_signed = np.array([self._handed[row] is not None for row in rows], dtype=np.bool_)
        return rows[is_signed], rows[~is_signed]

    def _answer(
        self,
        rows: Indices,
        gone: Sequence[int],
        *,
        is_all: bool = False,
        is_selection: bool = False,
    ) -> News:
        return self._news(self._hand(rows), gone, is_all=is_all, is_selection=is_selection)

    def _news(
        self,
        handed: Sequence[Handed],
        gone: Sequence[int],
        *,
        is_all: bool = False,
        is_selection: bool = False,
    ) -> News:
        cursor = f"{self.head.generation}.{self.head.cursor}"
        return News(cursor, is_all, is_selection, tuple(handed), tuple(gone), self.head.epoch)

    def _hand(self, rows: Indices) -> list[Handed]:
        found = map(self._handed.__getitem__, rows.tolist())
        return [one for one in found if one is not None]

    def _held(self, numbers: Sequence[int]) -> tuple[Indices, list[int]]:
        """Return the rows of these numbers, and the numbers that are in none."""
        rows = [self._rows.get(number, -1) for number in numbers]
        found = np.array(rows, dtype=np.intp)
        if found.min() >= 0:
            return found, []
        return found[found >= 0], [number for number in numbers if number not in self._rows]

    def _since(self, cursor: str) -> int | None:
        """Return the number in a cursor; None if it means nothing here or is too old."""
        generation, _, digits = cursor.rpartition(".")
        if generation != self.head.generation or not digits.isascii() or not digits.isdigit():
            return None
        number = int(digits) if len(digits) < 20 else -1
        return number if self.head.floor <= number <= self.head.cursor else None

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


def _smallest(values: NDArray[np.uint64], n: int, left: int) -> Indices:
    """Return the rows of the n smallest values; ``left`` values are uniform, the others largest."""
    if n >= left:
        return np.argsort(values, kind="stable")[:left]
    likely = int(2**64 * min((n + 4 * n**0.5 + 4) / left, 1.0))
    rows = np.flatnonzero(values < np.uint64(min(likely, 2**64 - 1)))
    if len(rows) < n:
        return np.argpartition(values, n)[:n]
    return np.asarray(rows[np.argpartition(values[rows], n - 1)[:n]])
