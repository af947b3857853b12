"""How an inbox keeps a million rows: chunks of columns, sums of weights, an index of senders.

Nothing here ever moves or copies all rows. A chunk is allocated once and stays; a draw walks
trees of sums from the total down to a row; the index is cut into shards, so that the growth of
one is short. There is no Python object per row.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

ROWS = 4096  # of a chunk
BLOCK = 8  # rows under one leaf of a chunk's tree
SHARDS = 1024  # of the index
TAG = 0xFFFF  # bits of a hash kept beside a row: enough for 2^16 slots in each shard


def cells(column: NDArray[Any]) -> MutableSequence[Any]:
    """The same memory, faster by a factor of three where one number at a time is wanted."""
    return cast("MutableSequence[Any]", column.data)


class SumTree:
    """Sums over a power of two of leaves; each parent is exactly left + right.

    >>> tree = SumTree(4)
    >>> tree.put(1, 2.0)
    >>> tree.put(3, 5.0)
    >>> tree.total, tree.find(1.5), tree.find(2.5)
    (7.0, (1, 1.5), (3, 0.5))
    """

    __slots__ = ("_at", "leaves", "nodes")

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self.nodes = np.zeros(2 * leaves)
        self._at = cells(self.nodes)

    @property
    def total(self) -> float:
        return cast("float", self._at[1])

    def put(self, leaf: int, value: float) -> None:
        at, node = self._at, leaf + self.leaves
        at[node] = value
        while node > 1:
            value += at[node ^ 1]
            node >>= 1
            at[node] = value

    def fill(self, values: NDArray[np.float64]) -> None:
        """Set the first leaves anew, and every sum."""
        n, nodes = self.leaves, self.nodes
        nodes[n : n + len(values)] = values
        while n > 1:
            nodes[n // 2 : n] = nodes[n : 2 * n : 2] + nodes[n + 1 : 2 * n : 2]
            n //= 2

    def find(self, u: float) -> tuple[int, float]:
        """The leaf where the running sum passes u, and how far into it; never a leaf of 0.

        The total must be positive. Rounding can carry a u just below it past the last leaf;
        then the first is taken, which happens too rarely to be seen in the draws.
        """
        at, node, leaves = self._at, 1, self.leaves
        while node < leaves:
            node *= 2
            left = at[node]
            if u >= left:
                u -= left
                node += 1
        return (node - leaves, u) if at[node] > 0.0 else self.find(0.0)

    def doubled(self) -> SumTree:
        """A tree with room for twice as many leaves."""
        tree = SumTree(2 * self.leaves)
        tree.fill(self.nodes[self.leaves :])
        return tree


class Chunk:
    """Columns for `ROWS` peers. A row that holds no message yet counts as used."""

    __slots__ = (
        "end_at",
        "ends",
        "names",
        "omega",
        "sequence",
        "sequence_at",
        "t_n",
        "tree",
        "used",
        "used_at",
        "weight",
        "weight_at",
    )

    def __init__(self, M: int) -> None:
        self.omega = np.empty((ROWS, M), dtype=np.float32)
        self.t_n = np.zeros(ROWS, dtype=np.int32)
        self.sequence = np.full(ROWS, -1, dtype=np.int64)
        self.weight = np.ones(ROWS)
        self.used = np.ones(ROWS, dtype=np.bool_)
        self.names: bytes | bytearray = bytearray()
        self.ends = np.zeros(ROWS + 1, dtype=np.uint32)
        self.tree = SumTree(ROWS // BLOCK)
        self.sequence_at, self.end_at = cells(self.sequence), cells(self.ends)
        self.weight_at, self.used_at = cells(self.weight), cells(self.used)

    @property
    def nbytes(self) -> int:
        columns = (self.omega, self.t_n, self.sequence, self.weight, self.used, self.ends)
        return sum(c.nbytes for c in columns) + self.tree.nodes.nbytes + len(self.names)

    @property
    def left(self) -> int:
        """How many rows can be drawn."""
        return int(np.count_nonzero(~self.used & (self.weight > 0.0)))

    def name(self, i: int) -> bytes | bytearray:
        return self.names[self.end_at[i] : self.end_at[i + 1]]

    def append_name(self, i: int, name: bytes) -> None:
        self.names += name
        self.end_at[i + 1] = len(self.names)
        if i == ROWS - 1:
            self.names = bytes(self.names)  # gives up a bytearray's spare room

    def sum_around(self, i: int) -> None:
        """Bring the tree up to date after a change in row i."""
        used, weight, block = self.used_at, self.weight_at, i // BLOCK
        total = 0.0
        for j in range(block * BLOCK, (block + 1) * BLOCK):
            if not used[j]:
                total += weight[j]
        self.tree.put(block, total)

    def sum_all(self) -> None:
        """Bring the whole tree up to date.

        Adds in the order of `sum_around`, so that both give the same bits, and an inbox that was
        saved and loaded the same draws.
        """
        leaves = np.where(self.used, 0.0, self.weight).reshape(-1, BLOCK)
        total = np.zeros(len(leaves))
        for j in range(BLOCK):
            total += leaves[:, j]
        self.tree.fill(total)

    def find(self, u: float) -> int:
        """The row where the running sum of drawable weights passes u."""
        block, u = self.tree.find(u)
        used, weight, found = self.used_at, self.weight_at, -1
        for i in range(block * BLOCK, (block + 1) * BLOCK):
            if not used[i] and (w := weight[i]) > 0.0:
                found = i
                if u < w:
                    break
                u -= w
        return found


class Index:
    """Rows by sender: one open-addressing table per shard, chosen by Python's salted hash.

    The salt keeps anybody from choosing names that collide; the hash never leaves the process.

    >>> names = [b"a", b"b"]
    >>> index = Index(names.__getitem__)
    >>> index.row(b"a", new=0), index.row(b"b", new=1), index.row(b"a", new=2)
    (0, 1, 0)
    """

    def __init__(self, name: Callable[[int], bytes | bytearray]) -> None:
        self._name = name
        self._tables: list[_Table | None] = [None] * SHARDS

    @property
    def nbytes(self) -> int:
        return sum(6 * table.size for table in self._tables if table is not None)

    def row(self, name: bytes, new: int) -> int:
        """The row of this sender, which becomes `new` if it had none."""
        key = hash(name)
        shard, tag = key % SHARDS, key // SHARDS & TAG
        table = self._tables[shard]
        if table is None or table.held == table.room:
            table = self._tables[shard] = _Table(8) if table is None else table.doubled()
        entries, tags, mask = table.entries, table.tags, table.size - 1
        slot = tag & mask
        while entry := entries[slot]:
            if tags[slot] == tag and self._name(entry - 1) == name:
                return cast("int", entry - 1)
            slot = (slot + 1) & mask
        entries[slot], tags[slot] = new + 1, tag
        table.held += 1
        return new


class _Table:
    """Slots with a row + 1, or 0 for empty, and 16 bits of the hash: the place a name wants."""

    __slots__ = ("entries", "held", "room", "size", "tags")

    def __init__(self, size: int) -> None:
        self.size, self.room, self.held = size, 3 * size // 5, 0
        self.entries = cells(np.zeros(size, dtype=np.int32))
        self.tags = cells(np.zeros(size, dtype=np.uint16))

    def doubled(self) -> _Table:
        larger = _Table(2 * self.size)
        entries, mask = larger.entries, larger.size - 1
        for tag, entry in zip(self.tags, self.entries, strict=True):
            if entry:
                slot = tag & mask
                while entries[slot]:
                    slot = (slot + 1) & mask
                entries[slot], larger.tags[slot] = entry, tag
        larger.held = self.held
        return larger


def newest(rows: NDArray[np.int64], sequence: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each row's greatest sequence number, the first of equal ones."""
    places = np.arange(len(rows))
    order = np.lexsort((-places, sequence, rows))
    last = np.append(rows[order][1:] != rows[order][:-1], True)
    return np.sort(places[order][last])
