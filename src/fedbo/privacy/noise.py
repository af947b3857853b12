"""Noise over the integers, sampled exactly: discrete Laplace and discrete Gaussian numbers.

=======  ========================================================================================
symbol   meaning
=======  ========================================================================================
scale    of the discrete Laplace distribution: P(x) ∝ exp(−|x| / scale) for integers x
sigma2   σ² of the discrete Gaussian distribution: P(x) ∝ exp(−x² / 2σ²) for integers x; its
         variance is at most σ², and equal to it up to a factor 1 − 10⁻⁶ from σ = 1 on
gamma    γ ≥ 0 in a coin that shows heads with probability exp(−γ)
u, v     where a geometric variable falls: u steps into block v
t        the scale of the Laplace proposals for a Gaussian: ⌊σ⌋ + 1
=======  ========================================================================================

Noise from floating-point numbers has gaps and uneven probabilities, and an observer who knows them
can undo it. So no floating-point number is used here: every decision is a comparison of a uniform
random integer with an integer, and the probabilities are exactly those above. The algorithms are
those of Canonne, Kamath and Steinke (The discrete Gaussian for differential privacy, 2020,
algorithms 1 to 3), which sample by rejection.

**How long it takes.** There is no bound that always holds, but long runs are exponentially rare. A
Laplace number takes at most 3.2 rounds on average, and a Gaussian number at most 2.3 Laplace
numbers (1.32 if σ is large). The time depends on the numbers that are drawn, so whoever can time
the sampling closely learns something about the noise.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

#: The largest scale, and the largest σ. A number beyond the range of int64 would then be 2,000
#: scales (or σ) away from 0, which happens with a probability below e^−2000.
LARGEST = 2**52


class Source(ABC):
    """Where random integers come from: `Secret` or `Simulated`."""

    @abstractmethod
    def randbelow(self, n: int) -> int:
        """Return an integer from 0 to n − 1, all with the same probability."""


class Secret(Source):
    """The operating system's randomness: the only source that protects anyone."""

    def randbelow(self, n: int) -> int:
        return secrets.randbelow(n)


class Simulated(Source):
    """Randomness that a seed, or a generator, repeats, for simulations and tests.

    It protects nobody.

    >>> Simulated(7).randbelow(10**30) == Simulated(7).randbelow(10**30)
    True
    """

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._rng = np.random.default_rng(seed)

    def randbelow(self, n: int) -> int:
        bits = (n - 1).bit_length()
        size, surplus = -(-bits // 8), -bits % 8
        while True:
            drawn = int.from_bytes(self._rng.bytes(size), "little") >> surplus
            if drawn < n:
                return drawn


SECRET = Secret()


def discrete_laplace(
    scale: Fraction | int, size: int, *, source: Source = SECRET
) -> NDArray[np.int64]:
    """Draw independent integers x with P(x) ∝ exp(−|x| / scale), for a scale up to 2⁵².

    >>> discrete_laplace(Fraction(3, 2), 5).dtype
    dtype('int64')
    """
    _check("scale", scale, LARGEST, source)
    a, b = scale.numerator, scale.denominator
    return np.array([_laplace(a, b, source) for _ in range(size)], dtype=np.int64)


def discrete_gaussian(
    sigma2: Fraction | int, size: int, *, source: Source = SECRET
) -> NDArray[np.int64]:
    """Draw independent integers x with P(x) ∝ exp(−x² / 2σ²), for a σ² up to 2¹⁰⁴.

    >>> discrete_gaussian(Fraction(50), 3, source=Simulated(1)).shape
    (3,)
    """
    _check("sigma2", sigma2, LARGEST**2, source)
    a, b = sigma2.numerator, sigma2.denominator
    return np.array([_gaussian(a, b, source) for _ in range(size)], dtype=np.int64)


def _laplace(numerator: int, denominator: int, source: Source) -> int:
    """Draw from the discrete Laplace distribution of scale numerator / denominator."""
    while True:
        u = source.randbelow(numerator)
        if not _exponential_coin(u, numerator, source):
            continue
        v = 0
        while _exponential_coin(1, 1, source):
            v += 1
        size = (u + numerator * v) // denominator
        negative = source.randbelow(2) == 1
        if size or not negative:  # 0 has one sign only, or it would come twice as often
            return -size if negative else size


def _gaussian(numerator: int, denominator: int, source: Source) -> int:
    """Draw from the discrete Gaussian distribution of σ² = numerator / denominator."""
    t = math.isqrt(numerator // denominator) + 1
    below = 2 * numerator * denominator * t * t
    while True:
        x = _laplace(t, 1, source)
        # (|x| − σ²/t)² / 2σ², as a fraction of integers
        if _exponential_coin((abs(x) * t * denominator - numerator) ** 2, below, source):
            return x


def _exponential_coin(above: int, below: int, source: Source) -> bool:
    """Toss a coin that shows heads with probability exp(−γ), γ = above / below."""
    whole, above = divmod(above, below)
    # `all` stops at the first tails: a huge γ takes no longer than a small one
    heads = all(_small_coin(1, 1, source) for _ in range(whole))
    return heads and _small_coin(above, below, source)


def _small_coin(above: int, below: int, source: Source) -> bool:
    """Toss such a coin for γ ≤ 1: exp(−γ) is the alternating series of γᵏ / k!."""
    if not above:
        return True
    k = 1
    while source.randbelow(below * k) < above:
        k += 1
    return k % 2 == 1


def _check(name: str, value: Fraction | int, largest: int, source: Source) -> None:
    if not isinstance(source, Source):  # a generator that has the right method protects nobody
        raise TypeError(
            f"source is {source!r}; it must be a fedbo.privacy.noise.Source: leave it out for "
            "secret randomness, or give Simulated(seed) in a simulation"
        )
    if not isinstance(value, Fraction | int) or not 0 < value <= largest:
        power = largest.bit_length() - 1
        raise ValueError(f"{name} is {value!r}; it must be a fraction above 0, at most 2**{power}")
