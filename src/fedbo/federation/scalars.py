"""The few numbers agents share to agree on the scalars of their federation, and their agreement.

=======  ==================================================================  ========
symbol   meaning                                                             shape
=======  ==================================================================  ========
D        dimensions of the cube                                              scalar
l_n      length scales that agent n fitted to its own scores                 (D,)
l₀       the usual length scale, 0.3 √D                                      scalar
s_n      noise variance that it fitted, in standard scores                   scalar
l        length scales agreed for the shared features                        (D,)
sigma2   σ², the noise variance agreed for messages                          scalar
=======  ==================================================================  ========

l = √(l₀ · median l_n), half way in the logarithm from the usual l₀ to what agents found; but only
in dimensions where they found much the same, the middle half of them within a factor of 2. In
others no length scale suits them all, and it stays as it is. σ² = 30 · median s_n, from 0.01 to
0.1: features that are shared fit nobody's scores as well as his own do. A liar can keep a length
scale from changing, but less than half of all agents cannot move it beyond what honest ones found.
Only products and square roots are taken, which IEEE 754 rounds in one way, and what is agreed keeps
two digits: every site gets the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from fedbo.message import COUNTER_LIMITS, SENDER_BYTES, MessageRefused
from fedbo.message.fingerprint import PARTS, Fingerprint

FEWEST = 3  # senders; of two nobody can say which one is wild
_MUCH_THE_SAME = 2.0
_SCALE_LIMITS = (0.1, 2.0)  # times the usual length scale
_NOISE = 30.0
_NOISE_LIMITS = (0.01, 0.1)


class Scalars(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True
):
    """What an agent shares to agree: hyper-parameters that it fitted, and never a trial.

    ``length_scales`` are on the cube, one for each dimension; ``noise_variance`` is that of
    standard scores; ``t_n`` is the number of observations behind both.

    >>> agreed = Fingerprint.from_parts(space="s", features="f", kind="weights", scalars=0.3)
    >>> mine = Scalars(
    ...     fingerprint=agreed, sender="a", length_scales=(0.2, 1.1), noise_variance=1e-3, t_n=20
    ... )
    >>> Scalars.decode(mine.encode()) == mine, len(mine.encode())
    (True, 51)
    """

    version: Literal[1] = 1
    fingerprint: bytes
    sender: str
    length_scales: tuple[float, ...]
    noise_variance: float
    t_n: int

    def __post_init__(self) -> None:
        if len(self.fingerprint) != 16:
            raise MessageRefused(f"fingerprint has {len(self.fingerprint)} bytes, expected 16")
        force_setattr(self, "fingerprint", bytes(self.fingerprint))
        if not 1 <= len(self.sender.encode()) <= SENDER_BYTES:
            raise MessageRefused(
                f"sender is {self.sender!r}, expected 1 to {SENDER_BYTES} bytes of UTF-8"
            )
        for value in (*self.length_scales, self.noise_variance):
            if not (math.isfinite(value) and value > 0.0):
                raise MessageRefused(
                    f"scalars of {self.sender!r} hold {value!r}, expected finite numbers above 0"
                )
        if not 1 <= self.t_n <= COUNTER_LIMITS["t_n"]:
            raise MessageRefused(f"t_n is {self.t_n}, expected 1 to {COUNTER_LIMITS['t_n']}")

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Scalars:
        """The scalars that `encode` wrote; anything else is refused with a sentence."""
        try:
            return _decoder.decode(data)
        except (ValueError, RecursionError) as error:
            raise MessageRefused(f"{len(data)} bytes are no scalars: {error}") from None

    def encode(self) -> bytes:
        """The scalars as bytes, the same on every machine."""
        return _encoder.encode(self)

    def check(self, fingerprint: Fingerprint, dimensions: int) -> None:
        """Raise `MessageRefused` unless they are of this federation, in whatever epoch."""
        part = fingerprint.difference(self.fingerprint)
        if part not in (None, "scalars"):
            there = Fingerprint(self.fingerprint)
            fault = f"foreign {part}, {there} not {fingerprint}: {PARTS[part]}"
        elif len(self.length_scales) != dimensions:
            fault = f"they have {len(self.length_scales)} length scales, expected {dimensions}"
        else:
            return
        raise MessageRefused(f"scalars of {self.sender!r}: {fault}")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Scalars)


def agreed_scalars(
    given: Iterable[Scalars], usual: float, current: Sequence[float]
) -> tuple[tuple[float, ...], float] | None:
    """l and σ² for these agents; None if they are too few to agree.

    It does not depend on their order. Of one sender the scalars with the most observations count.
    ``usual`` is l₀, ``current`` are the length scales (D,) as they stand.

    >>> agreed = Fingerprint.from_parts(space="s", features="f", kind="weights", scalars=0.3)
    >>> given = [
    ...     Scalars(fingerprint=agreed, sender=n, length_scales=(l,), noise_variance=1e-3, t_n=20)
    ...     for n, l in [("a", 1.1), ("b", 1.2), ("c", 1.3), ("wild", 1e-6)]
    ... ]
    >>> agreed_scalars(given, usual=0.3, current=[0.3])
    ((0.59,), 0.03)
    """
    latest: dict[str, Scalars] = {}
    for one in sorted(given, key=lambda one: (one.t_n, one.encode())):
        latest[one.sender] = one
    if len(latest) < FEWEST:
        return None
    columns = zip(*(one.length_scales for one in latest.values()), strict=True)
    pairs = zip(columns, current, strict=True)
    scales = [_scale(sorted(found), usual, here) for found, here in pairs]
    noise = _NOISE * _median(sorted(one.noise_variance for one in latest.values()))
    return tuple(scales), _rounded(noise, *_NOISE_LIMITS)


def _scale(ranked: Sequence[float], usual: float, current: float) -> float:
    """The agreement in one dimension."""
    quarter = len(ranked) // 4
    if ranked[-1 - quarter] > _MUCH_THE_SAME * ranked[quarter]:
        return current
    low, high = _SCALE_LIMITS
    return _rounded(math.sqrt(usual * _median(ranked)), low * usual, high * usual)


def _median(ranked: Sequence[float]) -> float:
    """The middle one, or the geometric mean of the two in the middle."""
    n = len(ranked)
    return math.sqrt(ranked[(n - 1) // 2]) * math.sqrt(ranked[n // 2])


def _rounded(value: float, low: float, high: float) -> float:
    """Two digits of it, inside the limits."""
    return float(f"{min(max(value, low), high):.2g}")
