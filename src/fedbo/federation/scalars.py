"""The numbers that agents share to agree on the scalars of their federation, and the agreement.

=======  ==================================================================  ========
symbol   meaning                                                             shape
=======  ==================================================================  ========
D        dimensions of the cube                                              scalar
l_n      length scales that agent n fitted to its own scores                 (D,)
l₀       the default length scale, 0.3 √D                                    scalar
s_n      noise variance that agent n fitted, in standardised scores          scalar
l        length scales agreed for the shared features                        (D,)
sigma2   σ², the noise variance agreed for messages                          scalar
=======  ==================================================================  ========

In each dimension l = √(l₀ · median l_n), halfway on a log scale between the default and what
agents found, if the middle half of the agents agree within a factor of 2. Otherwise no length scale
suits them all, and the current one stays. σ² = 30 · median s_n, limited to 0.01 to 0.1: it is
larger than s_n because shared features fit no agent's scores as well as its own model does.

A hostile agent can keep a length scale from changing. But a hostile minority cannot move it beyond
what honest agents found.

Every site computes the same bits: only products and square roots are used, which IEEE 754 rounds in
one way, and the result is rounded to two digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from fedbo.message import Fingerprint, MessageRefused
from fedbo.message.signed import COUNTER_LIMITS, check_origin

FEWEST = 3  # senders; between two, nobody can tell which one is an outlier
_SIMILAR = 2.0  # a factor
_SCALE_LIMITS = (0.1, 2.0)  # times the default length scale
_NOISE = 30.0
_NOISE_LIMITS = (0.01, 0.1)


class Scalars(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True
):
    """The hyper-parameters that one agent fitted, for an agreement; they contain no trial.

    Args:
        fingerprint: The fingerprint of the federation, 16 bytes.
        sender: The name of the agent.
        length_scales: The fitted length scales on the unit cube, one for each dimension.
        noise_variance: The fitted noise variance, in standardised scores.
        t_n: How many observations they were fitted to.

    Raises:
        MessageRefused: If a value is not possible; the text names it.

    >>> fitted = {"length_scales": (0.2, 1.1), "noise_variance": 1e-3, "t_n": 20}
    >>> mine = Scalars(fingerprint=bytes(16), sender="a", **fitted)
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
        check_origin(self.fingerprint, self.sender)
        force_setattr(self, "fingerprint", bytes(self.fingerprint))
        for value in (*self.length_scales, self.noise_variance):
            if not (math.isfinite(value) and value > 0.0):
                given = f"scalars of {self.sender!r} hold {value!r}"
                raise MessageRefused(f"{given}, expected finite numbers above 0")
        if not 1 <= self.t_n <= COUNTER_LIMITS["t_n"]:
            raise MessageRefused(f"t_n is {self.t_n}, expected 1 to {COUNTER_LIMITS['t_n']}")

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Scalars:
        """Read what `encode` wrote; raise `MessageRefused` for anything else."""
        try:
            return _decoder.decode(data)
        except (ValueError, RecursionError) as error:
            raise MessageRefused(f"{len(data)} bytes are not scalars: {error}") from None

    def encode(self) -> bytes:
        """Return the scalars as bytes, the same on every machine."""
        return _encoder.encode(self)

    def check(self, fingerprint: Fingerprint, dimensions: int) -> None:
        """Raise `MessageRefused` unless they are of this federation, in any epoch."""
        fault = fingerprint.mismatch(self.fingerprint, same_epoch=False)
        if fault is None and len(self.length_scales) != dimensions:
            fault = f"they have {len(self.length_scales)} length scales, expected {dimensions}"
        if fault is not None:
            raise MessageRefused(f"scalars of {self.sender!r}: {fault}")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Scalars)


def agreed_scalars(
    given: Iterable[Scalars], default: float, current: Sequence[float]
) -> tuple[tuple[float, ...], float] | None:
    """Compute l and σ² for these agents; return None if they are fewer than three.

    Args:
        given: The scalars, in any order. If a sender is there twice, the scalars with the most
            observations count.
        default: l₀.
        current: The current length scales (D,).

    >>> given = [
    ...     Scalars(fingerprint=bytes(16), sender=n, length_scales=(l,), noise_variance=1e-3, t_n=9)
    ...     for n, l in [("a", 1.1), ("b", 1.2), ("c", 1.3), ("wild", 1e-6)]
    ... ]
    >>> agreed_scalars(given, default=0.3, current=[0.3])
    ((0.59,), 0.03)
    """
    latest: dict[str, Scalars] = {}
    for one in sorted(given, key=lambda one: (one.t_n, one.encode())):
        latest[one.sender] = one
    if len(latest) < FEWEST:
        return None
    columns = zip(*(one.length_scales for one in latest.values()), strict=True)
    pairs = zip(columns, current, strict=True)
    scales = [_scale(sorted(found), default, here) for found, here in pairs]
    noise = _NOISE * _median(sorted(one.noise_variance for one in latest.values()))
    return tuple(scales), _rounded(noise, *_NOISE_LIMITS)


def _scale(ranked: Sequence[float], default: float, current: float) -> float:
    quarter = len(ranked) // 4
    if ranked[-1 - quarter] > _SIMILAR * ranked[quarter]:
        return current
    low, high = _SCALE_LIMITS
    return _rounded(math.sqrt(default * _median(ranked)), low * default, high * default)


def _median(ranked: Sequence[float]) -> float:
    n = len(ranked)  # if even, the geometric mean of the two in the middle
    return math.sqrt(ranked[(n - 1) // 2]) * math.sqrt(ranked[n // 2])


def _rounded(value: float, low: float, high: float) -> float:
    return float(f"{min(max(value, low), high):.2g}")
