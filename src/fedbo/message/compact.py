"""The body of a compact message: a mean in whole numbers, and how many trials are in each cell.

=======  ==========================================================================  ======
symbol   meaning                                                                     shape
=======  ==========================================================================  ======
scale    Δ: the mean is Δ times the levels; one float32                              scalar
levels   whole numbers from −127 to 127, one byte each; the largest is 127 or −127   (k,)
counts   how many trials are in each public cell, one byte each; 255: 255 or more    (c,)
=======  ==========================================================================  ======

On the wire it is ``["compact", 1, scale, levels, counts]``, at most 124 bytes with k = 40 and c =
64. The 1 is the version of this body, which fixes the number of bits. If all levels are 0, so is
the scale. `fedbo.model.compact` says how a mean is rounded, and what a receiver makes of it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedbo.message.signed import MessageRefused, Wire

VERSION = 1
#: Bits of a level, of which one is its sign.
BITS = 8
#: A count of so many trials means so many or more.
MOST_COUNTED = 255

_LARGEST = 2 ** (BITS - 1) - 1  # level
_LEAST = float(np.finfo(np.float32).tiny)  # of a scale; smaller ones lose digits


class Compact(Wire, frozen=True, kw_only=True, tag="compact"):
    """The body of a compact message."""

    version: int
    scale: bytes  # little-endian float32
    levels: bytes
    counts: bytes

    def __post_init__(self) -> None:
        if self.version != VERSION or type(self.version) is not int:
            raise MessageRefused(
                f"the compact body has version {self.version!r}, and this fedbo reads version "
                f"{VERSION}; use the same version of fedbo everywhere"
            )
        if len(self.scale) != 4:
            raise MessageRefused(f"scale has {len(self.scale)} bytes, expected 4")
        for name in ("levels", "counts"):
            if not getattr(self, name):
                raise MessageRefused(f"{name} has no bytes, expected one or more")
        largest, step = int(np.abs(self.whole.astype(np.int16)).max()), self.step
        if largest > _LARGEST:
            raise MessageRefused(f"a level is -{largest}, expected -{_LARGEST} to {_LARGEST}")
        if not largest:
            if any(self.scale):
                raise MessageRefused(f"scale is {step:.3g} and all levels are 0, expected scale 0")
        elif not _LEAST <= step < math.inf:
            raise MessageRefused(f"scale is {step:.3g}, expected {_LEAST:.3g} or more, and finite")
        elif largest < _LARGEST:
            raise MessageRefused(f"the largest level is {largest}, expected {_LARGEST}")

    @property
    def step(self) -> float:
        """Δ."""
        return float(np.frombuffer(self.scale, dtype="<f4")[0])

    @property
    def whole(self) -> NDArray[np.int8]:
        """(k,) the levels."""
        return np.frombuffer(self.levels, dtype=np.int8)

    @property
    def mean(self) -> NDArray[np.float32]:
        """(k,) Δ times the levels, read-only."""
        with np.errstate(over="ignore"):  # Message.check refuses what is not finite
            found = (self.whole * np.float64(self.step)).astype(np.float32)
        found.flags.writeable = False
        return found

    @property
    def trials(self) -> NDArray[np.uint8]:
        """(c,) the counts."""
        return np.frombuffer(self.counts, dtype=np.uint8)

    def check_trials(self, t_n: int) -> None:
        """Raise `MessageRefused` if the cells do not hold as many trials as the header says.

        Args:
            t_n: The number of trials in the header.
        """
        counts = self.trials
        total = int(counts.sum(dtype=np.int64))
        if total > t_n or (total < t_n and counts.max() < MOST_COUNTED):
            raise MessageRefused(f"its cells hold {total} trials, expected t_n = {t_n}")
