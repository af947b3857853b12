"""Local votes: exact probabilities, and costs by adding up all results."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.privacy.local import local_vote
from fedbo.privacy.noise import Derived, Source

UNITS = 2**64


class Scripted(Source):
    """Gives two numbers: one that decides whether the own cell is named, and another cell."""

    def __init__(self, decision: int, other: int) -> None:
        self.numbers = iter([decision, other])
        self.asked: list[int] = []

    def randbelow(self, n: int) -> int:
        self.asked.append(n)
        number = next(self.numbers)
        assert 0 <= number < n
        return number


def own_numbers(cells: int, target: float) -> int:
    """Return how many of the 2⁶⁴ decisions name the own cell, found by bisection."""
    low, high = 0, UNITS
    while low < high:
        middle = (low + high) // 2
        if local_vote(0, cells, target, source=Scripted(middle, cells - 1)) == 0:
            low = middle + 1
        else:
            high = middle
    return low


def exact_probabilities(cell: int | None, cells: int, target: float) -> list[Fraction]:
    """Return the probability of every result, as rational numbers, from all draws of a source.

    Decisions up to a threshold have the same result, so one on each side stands for all.
    """
    first = own_numbers(cells, target)
    found = [Fraction(0)] * cells
    for decision, share in ((0, first), (UNITS - 1, UNITS - first)):
        if share:
            for other in range(cells):
                vote = local_vote(cell, cells, target, source=Scripted(decision, other))
                found[vote] += Fraction(share, UNITS * cells)
    assert sum(found) == 1
    return found


def exceeds(ratio: Fraction, target: float) -> bool:
    """Tell whether a ratio is above e^ε, in 60 digits."""
    with mpmath.workdps(60):
        return bool(mpmath.mpf(ratio.numerator) / ratio.denominator > mpmath.exp(target))


TARGETS = [0.1, 1.0, math.log(3), 4.0, 12.5]


class TestCost:
    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("cells", [2, 3, 8, 64])
    def test_by_all_results(self, cells: int, target: float) -> None:
        """Every pair of cells in both directions, and every cell against none."""
        known = [*({0, 1, cells - 1}), None]
        results = {cell: exact_probabilities(cell, cells, target) for cell in known}
        ratios = [
            p / q
            for one, other in itertools.permutations(known, 2)
            for p, q in zip(results[one], results[other], strict=True)
        ]
        assert not exceeds(max(ratios), target)
        assert float(max(ratios)) == pytest.approx(math.exp(target), rel=1e-9)  # nothing is wasted

    @given(st.floats(1e-15, 80), st.integers(2, 64))
    def test_the_own_cell_is_never_named_too_often(self, target: float, cells: int) -> None:
        a = Fraction(own_numbers(cells, target), UNITS)
        assert not exceeds(1 + a * cells / (1 - a), target)
        with mpmath.workdps(60):
            power = mpmath.exp(mpmath.mpf(target))
            right = (power - 1) / (power + cells - 1) * UNITS
            assert 0 <= right - mpmath.mpf(a.numerator * UNITS // a.denominator) <= 1 + 1e-9

    def test_an_epsilon_so_small_that_nothing_is_said(self) -> None:
        uniform = [Fraction(1, 5)] * 5
        assert exact_probabilities(3, 5, 1e-30) == uniform

    @pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
    def test_an_impossible_epsilon_is_refused(self, target: float) -> None:
        with pytest.raises(ValueError, match=f"epsilon is {target}, expected a number above 0"):
            local_vote(0, 3, target)


class TestVote:
    def test_the_decision_is_a_comparison_with_the_exact_chance(self) -> None:
        first = own_numbers(3, 2.0)
        for decision, vote in ((0, 1), (first - 1, 1), (first, 2), (UNITS - 1, 2)):
            source = Scripted(decision, 2)
            assert local_vote(1, 3, 2.0, source=source) == vote
            assert source.asked == [UNITS, 3]  # both are drawn in any case

    def test_without_a_source_it_is_secret(self) -> None:
        one, other = ([local_vote(0, 64, 0.1) for _ in range(40)] for _ in range(2))
        assert one != other


def test_derived_numbers_follow_from_a_secret_and_a_purpose() -> None:
    first, second = (Derived(b"s" * 16, "vote a") for _ in range(2))
    ours = [first.randbelow(n) for n in (2, 10**6, UNITS, 3)]
    assert ours == [second.randbelow(n) for n in (2, 10**6, UNITS, 3)]
    given = [(b"s" * 16, "vote a"), (b"t" * 16, "vote a"), (b"s" * 16, "vote b")]
    assert len({Derived(*each).randbelow(2**128) for each in given}) == 3
