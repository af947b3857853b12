"""The body of a compact message: a mean in whole numbers, counts of trials by cell, and a tip.

======  ===========================================================================  ======
symbol  meaning                                                                      shape
======  ===========================================================================  ======
basis   identifies the directions of the coordinates; 4 bytes                        scalar
k, c    number of leading coordinates, number of public cells                        scalar
scale   Δ: the mean is Δ times the levels; one float32                               scalar
levels  whole numbers from −7 to 7, of which the largest is 7 or −7; 4 bits each,    (k,)
        as level + 8
counts  how many trials are in each cell: 0, 1, 2, or 3 and more; 2 bits each. A     (c,)
        receiver takes 3 and more for 4
tip     the number of a point on the public lattice (`fedbo.space.Lattice`), as bytes;  scalar
        empty if the sender names none
======  ===========================================================================  ======

On the wire it is ``["compact", basis, k, c, scale, packed, tip]``, and packed has the bits of the
levels, those of the counts, and zeros up to the next byte. With k = 40, c = 64 and a tip of 4 bytes
it has 67 bytes. If all levels are 0, so is the scale.
`fedbo.model.summary` says how a mean is rounded, and what a receiver makes of all this.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedbo.errors import MessageRefused
from fedbo.message.signed import MOST_CELLS, MOST_COORDINATES, BasisDigest, Wire

#: Bits of a level, of which one is its sign, and of a count.
BITS, COUNT_BITS = 4, 2
#: What a receiver takes the four counts for. The last means 3 and more, 4 is twice the one before.
COUNTED = (0, 1, 2, 4)

_LARGEST = 2 ** (BITS - 1) - 1  # level
_MORE = len(COUNTED) - 1  # this many trials, or more
_LEAST = float(np.finfo(np.float32).tiny)  # of a scale; smaller ones lose digits


class Compact(Wire, frozen=True, kw_only=True, tag="compact"):
    """The body of a compact message."""

    basis: BasisDigest
    k: int
    cells: int
    scale: bytes  # little-endian float32
    packed: bytes
    tip: bytes

    def __post_init__(self) -> None:
        """Raise `MessageRefused` if the sizes do not fit, or if it has another spelling."""
        are_few = 1 <= self.k <= MOST_COORDINATES and 1 <= self.cells <= MOST_CELLS
        if not are_few or len(self.packed) != packed_bytes(self.k, self.cells):
            sizes = f"{len(self.packed)} bytes for k = {self.k} and {self.cells} cells"
            expected = f"at most {MOST_COORDINATES} and {MOST_CELLS}"
            raise MessageRefused(f"packed has {sizes}, expected {expected}, in as few as they need")
        if _bits_in(self.packed)[BITS * self.k + COUNT_BITS * self.cells :].any():
            raise MessageRefused("packed has more than zeros after its last count")
        largest = int(np.abs(self.levels).max())
        is_scaled = len(self.scale) == 4 and _LEAST <= self.step < math.inf
        if not (is_scaled and largest == _LARGEST if largest else self.scale == bytes(4)):
            expected = f"either {_LARGEST} and a finite one, or both 0"
            raise MessageRefused(
                f"the largest level is {largest} with scale 0x{self.scale[:4].hex()}, expected "
                f"{expected}"
            )

    @classmethod
    def pack(
        cls,
        levels: NDArray[np.integer],
        scale: float,
        counts: NDArray[np.integer],
        tip: bytes,
        basis: bytes,
    ) -> Compact:
        """Build a body; see `Message.of_compact`."""
        codes = np.minimum(counts, _MORE)
        bits = [_bits(levels + 2 ** (BITS - 1), BITS), _bits(codes, COUNT_BITS)]
        with np.errstate(over="ignore"):  # what is too large becomes inf, which is refused
            step = np.array([scale], dtype=np.float64).astype("<f4").tobytes()
        packed = np.packbits(np.concatenate(bits)).tobytes()
        sizes = {"k": len(levels), "cells": len(counts)}
        return cls(basis=basis, scale=step, packed=packed, tip=tip, **sizes)

    @property
    def M(self) -> int:
        return self.k

    @property
    def parameters(self) -> int:
        return self.k + 1 + self.cells

    def fits(self, M: int, cells: int) -> bool:
        """Tell whether its sizes are those of a federation's messages."""
        return (self.k, self.cells) == (M, cells)

    def norms(self) -> dict[str, float]:
        return {"nu": norm(self.nu)}

    @property
    def step(self) -> float:
        """Δ."""
        return float(np.frombuffer(self.scale, dtype="<f4")[0])

    @property
    def levels(self) -> NDArray[np.int8]:
        """(k,) the levels."""
        levels: NDArray[np.int8] = self._numbers(0, self.k, BITS).astype(np.int8)
        return levels - np.int8(2 ** (BITS - 1))

    @property
    def nu(self) -> NDArray[np.float32]:
        """(k,) the mean: Δ times the levels, read-only."""
        with np.errstate(over="ignore"):  # a federation refuses what is not finite
            mean = (self.levels * np.float64(self.step)).astype(np.float32)
        mean.flags.writeable = False
        return mean

    @property
    def counts(self) -> NDArray[np.uint8]:
        """(c,) the counts as a receiver takes them: 0, 1, 2 or 4; read-only."""
        counts = np.array(COUNTED, dtype=np.uint8)[self._codes]
        counts.flags.writeable = False
        return counts

    @property
    def _codes(self) -> NDArray[np.int64]:
        return self._numbers(BITS * self.k, self.cells, COUNT_BITS)

    def _numbers(self, start: int, n: int, bits: int) -> NDArray[np.int64]:
        """Read n numbers of so many bits, from the bit ``start`` on."""
        codes = _bits_in(self.packed)[start : start + n * bits]
        return codes.reshape(n, bits).astype(np.int64) @ (1 << np.arange(bits)[::-1])

    def check_trials(self, t_n: int) -> None:
        """Raise `MessageRefused` if the cells do not hold as many trials as the header says."""
        codes = self._codes
        least = int(codes.sum())
        if least > t_n or (least < t_n and codes.max() < _MORE):
            raise MessageRefused(f"its cells hold {least} trials or more, expected t_n = {t_n}")


def norm(vector: NDArray[np.float32]) -> float:
    """Return the length of a vector that may hold anything."""
    with np.errstate(invalid="ignore"):
        numbers = vector.astype(np.float64)
        return math.sqrt(np.dot(numbers, numbers))


def packed_bytes(k: int, cells: int) -> int:
    """Return how many bytes k levels and the counts of so many cells take.

    >>> packed_bytes(40, 64)
    36
    """
    return -(-(BITS * k + COUNT_BITS * cells) // 8)


def _bits_in(packed: bytes) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(packed, np.uint8))


def _bits(numbers: NDArray[np.integer], bits: int) -> NDArray[np.uint8]:
    """Return the bits of numbers, the highest first."""
    return np.unpackbits(numbers.astype(np.uint8)[:, None], axis=1)[:, -bits:].ravel()
