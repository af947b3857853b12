"""Local votes: exact probabilities, costs by adding up all results, and the estimate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.privacy import (
    Pure,
    Simulated,
    Source,
    epsilon,
    estimate_votes,
    false_chance,
    local_cost,
    local_vote,
)

HALF = Fraction(1, 2)


def exact_probabilities(
    cell: int | None, cells: int, target: float
) -> dict[tuple[int, ...], Fraction]:
    """Return the probability of every result, as rational numbers."""
    q = false_chance(target)
    chances = [HALF if j == cell else q for j in range(cells)]
    return {
        bits: math.prod(c if bit else 1 - c for bit, c in zip(bits, chances, strict=True))
        for bits in itertools.product((0, 1), repeat=cells)
    }


def largest_ratio(one: int | None, other: int | None, cells: int, target: float) -> Fraction:
    first, second = (exact_probabilities(cell, cells, target) for cell in (one, other))
    return max(first[bits] / second[bits] for bits in first)


def exact_log(ratio: Fraction) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)


class Scripted(Source):
    """Gives numbers from a list, and remembers what it was asked for."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers: Iterator[int] = iter(numbers)
        self.asked: list[int] = []

    def randbelow(self, n: int) -> int:
        self.asked.append(n)
        return next(self.numbers)


class TestChance:
    @given(st.floats(1e-9, 700))
    def test_it_is_the_formula_rounded_up(self, target: float) -> None:
        q = false_chance(target)
        assert (q * 2**64).denominator == 1
        with mpmath.workdps(60):
            right = 1 / (mpmath.exp(mpmath.mpf(target)) + 1)
            surplus = mpmath.mpf(q.numerator) / q.denominator - right
        assert 0 < surplus * 2**64 <= 1 + 1e-9

    def test_an_epsilon_that_says_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="epsilon is 1e-30; it is so small"):
            false_chance(1e-30)

    @pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
    def test_an_impossible_epsilon_is_refused(self, target: float) -> None:
        with pytest.raises(ValueError, match=f"epsilon is {target}; it must be positive and"):
            false_chance(target)


class TestCost:
    @pytest.mark.parametrize("target", [0.1, 1.0, math.log(3), 4.0, 12.5])
    @pytest.mark.parametrize("cells", [2, 3, 5])
    def test_by_all_results(self, cells: int, target: float) -> None:
        """Every pair of votes, in both directions; a vote and none, in both directions."""
        cost = local_cost(target)
        pairs = itertools.permutations(range(cells), 2)
        replaced = max(exact_log(largest_ratio(*pair, cells, target)) for pair in pairs)
        pairs = [(0, None), (None, 0), (cells - 1, None), (None, cells - 1)]
        emptied = max(exact_log(largest_ratio(*pair, cells, target)) for pair in pairs)
        assert replaced <= cost.replaced == pytest.approx(float(replaced), rel=1e-15)
        assert emptied <= cost.emptied == pytest.approx(float(emptied), rel=1e-15)

    @given(st.floats(1e-9, 700) | st.just(1e300))
    def test_never_above_what_was_asked_for(self, target: float) -> None:
        cost = local_cost(target)
        assert 0 < cost.emptied < cost.replaced <= target
        if target < 20:
            assert cost.replaced == pytest.approx(target, rel=1e-9)
            assert cost.emptied == pytest.approx(
                float(mpmath.log((mpmath.exp(target) + 1) / 2)), rel=1e-6
            )

    def test_one_cell_can_only_be_emptied(self) -> None:
        found = max(largest_ratio(0, None, 1, 2.0), largest_ratio(None, 0, 1, 2.0))
        assert exact_log(found) <= local_cost(2.0).emptied

    def test_figures(self) -> None:
        assert local_cost(1.0).emptied == pytest.approx(0.620, abs=5e-4)
        assert local_cost(4.0).emptied == pytest.approx(3.325, abs=5e-4)

    def test_the_ledger_adds_them_up(self) -> None:
        cost = local_cost(1.5)
        assert cost.mechanism == Pure(cost.replaced)
        assert epsilon([cost.mechanism] * 3, 0.0) == pytest.approx(4.5)


class TestVote:
    def test_bits_are_comparisons_with_the_exact_chances(self) -> None:
        """The largest integer that gives 1 and the smallest that gives 0, for both chances."""
        q = int(false_chance(2.0) * 2**64)
        source = Scripted([q - 1, 2**63 - 1, q, q, 2**63, q - 1])
        first = local_vote(1, 3, 2.0, source=source)
        second = local_vote(1, 3, 2.0, source=source)
        assert first.tolist() == [True, True, False]
        assert second.tolist() == [False, False, True]
        assert source.asked == [2**64] * 6

    def test_without_a_vote_all_chances_are_the_same(self) -> None:
        q = int(false_chance(2.0) * 2**64)
        assert local_vote(None, 2, 2.0, source=Scripted([q - 1, q])).tolist() == [True, False]

    def test_frequencies(self) -> None:
        """Within 4.5 standard errors, from 10,000 votes."""
        source, N = Simulated(3), 10_000
        found = np.mean([local_vote(1, 3, 1.0, source=source) for _ in range(N)], axis=0)
        right = np.array([false_chance(1.0), HALF, false_chance(1.0)], dtype=float)
        assert (np.abs(found - right) < 4.5 * np.sqrt(right * (1 - right) / N)).all()

    def test_without_a_source_it_is_secret(self) -> None:
        one, other = (local_vote(0, 200, 1.0).tolist() for _ in range(2))
        assert one != other

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ((3, 3, 1.0), "cell is 3, expected None or a whole number, 0 to 2"),
            ((-1, 3, 1.0), "cell is -1, expected None"),
            ((True, 3, 1.0), "cell is True, expected None"),
            ((0.0, 3, 1.0), "cell is 0.0, expected None"),
            ((0, 0, 1.0), "cells is 0, expected a whole number"),
            ((0, 2.0, 1.0), "cells is 2.0, expected a whole number"),
            ((0, 3, -1.0), "epsilon is -1.0; it must be positive"),
        ],
    )
    def test_errors_say_what_was_given(self, arguments: Any, sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            local_vote(*arguments)

    def test_a_generator_is_no_source(self) -> None:
        with pytest.raises(TypeError, match=r"it must be a fedbo\.privacy\.noise\.Source"):
            local_vote(0, 3, 1.0, source=np.random.default_rng(0))  # type: ignore[arg-type]


class TestEstimate:
    @pytest.mark.parametrize("target", [0.5, 2.0, 6.0])
    def test_it_is_unbiased(self, target: float) -> None:
        """Exactly: the average over all results of two members, with their probabilities."""
        cells = 2
        for votes in itertools.product((0, 1, None), repeat=2):
            average = np.zeros(cells)
            results = [exact_probabilities(vote, cells, target).items() for vote in votes]
            for (one, p), (other, r) in itertools.product(*results):
                average += float(p * r) * estimate_votes([one, other], target).votes
            right = [sum(vote == j for vote in votes) for j in range(cells)]
            np.testing.assert_allclose(average, right, atol=1e-12)

    @pytest.mark.parametrize("target", [1.0, 4.0])
    def test_standard_errors(self, target: float) -> None:
        """200 histograms of 40 members: their spread is the stated one within 20 %."""
        source, cast = Simulated(1), [0] * 25 + [1] * 10 + [None] * 5
        found = [
            estimate_votes([local_vote(v, 3, target, source=source) for v in cast], target)
            for _ in range(200)
        ]
        votes = np.array([one.votes for one in found])
        errors = np.sqrt(np.mean([one.errors**2 for one in found], axis=0))
        np.testing.assert_allclose(votes.std(axis=0), errors, rtol=0.2)
        # within 4.5 standard errors
        assert (np.abs(votes.mean(axis=0) - [25, 10, 0]) < 4.5 * errors / math.sqrt(200)).all()

    def test_with_a_large_epsilon_half_of_the_votes_are_counted_twice(self) -> None:
        """p = ½ also without privacy: the price of the encoding."""
        bits = [[1, 0], [0, 0], [1, 0], [0, 0]]
        votes, errors = estimate_votes(bits, 40.0)
        np.testing.assert_allclose(votes, [4.0, 0.0], atol=1e-9)
        np.testing.assert_allclose(errors, [2.0, 0.0], atol=1e-6)

    @pytest.mark.parametrize(
        ("bits", "sentence"),
        [
            ([], r"bits has shape \(0,\), expected a row of bits for each member"),
            ([1, 0], r"bits has shape \(2,\), expected a row"),
            ([[0, 2]], r"bits has the values \[0, 2\], expected only 0 and 1"),
            ([[0.5, 1.0]], r"bits has the values \[0.5, 1.0\], expected only 0 and 1"),
        ],
    )
    def test_errors_say_what_was_given(self, bits: Any, sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            estimate_votes(bits, 1.0)
