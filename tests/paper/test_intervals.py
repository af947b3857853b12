"""Monte Carlo tests: intervals have their coverage, and verdicts their error rates.

Frequencies over 4,000 experiments have a standard error of at most 0.0035 at 5 %, so the margin of
0.012 is more than three of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import astuple

from fedbo_paper.harness.intervals import (
    Effect,
    Verdict,
    bootstrap,
    comparable,
    mean,
    no_worse,
    paired,
    ratio,
    resamples,
    sighted,
    superior,
)

TIMES = 4000
MARGIN = 0.012
DELTA = 0.5


def covers(effect: Effect, truth: float) -> bool:
    return effect.low <= truth <= effect.high


@pytest.mark.parametrize("n", [3, 5, 30])
def test_a_paired_interval_covers_in_95_percent(n: int) -> None:
    rng = np.random.default_rng(n)
    start = 3 * rng.standard_normal((TIMES, n))  # what both have in common cancels
    a, b = start + 1 + rng.standard_normal((TIMES, n)), start + rng.standard_normal((TIMES, n))
    hits = [covers(paired(one, other), 1.0) for one, other in zip(a, b, strict=True)]
    assert abs(np.mean(hits) - 0.95) < MARGIN


def test_runs_that_resemble_each_other_need_clusters() -> None:
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(8), 5)
    shared = rng.standard_normal((TIMES, 8))[:, clusters]
    a = shared + rng.standard_normal((TIMES, 40))
    zero = np.zeros(40)
    with_clusters = [covers(paired(one, zero, clusters), 0.0) for one in a]
    without = [covers(paired(one, zero), 0.0) for one in a]
    assert abs(np.mean(with_clusters) - 0.95) < MARGIN
    assert np.mean(without) < 0.85


def frequency(
    rule: Callable[[Effect, float], Verdict], verdict: Verdict, truth: float, spread: float
) -> float:
    """Estimate how often a rule gives this verdict if the effect is ``truth``, with ten pairs."""
    rng = np.random.default_rng(5)
    pairs = truth + spread * rng.standard_normal((TIMES, 10))
    return float(np.mean([rule(mean(each), DELTA) == verdict for each in pairs]))


@pytest.mark.parametrize("spread", [0.05, 0.5, 2.0])
@pytest.mark.parametrize(
    ("rule", "verdict", "truth"),
    [
        (superior, "holds", 0.0),
        (superior, "does not hold", DELTA),
        (comparable, "holds", DELTA),
        (comparable, "holds", -DELTA),
        (comparable, "does not hold", DELTA),
        (comparable, "does not hold", -DELTA),
        (no_worse, "holds", -DELTA),
        (no_worse, "does not hold", -DELTA),
    ],
)
def test_a_verdict_is_wrong_at_its_limit_in_at_most_2_5_percent(
    rule: Callable[[Effect, float], Verdict], verdict: Verdict, truth: float, spread: float
) -> None:
    assert frequency(rule, verdict, truth, spread) < 0.025 + MARGIN


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.1, 0.9, ("holds", "not decided", "holds")),
        (0.1, 0.4, ("holds", "holds", "holds")),
        (-0.1, 0.4, ("does not hold", "holds", "holds")),
        (-0.1, 0.9, ("not decided", "not decided", "holds")),
        (-0.9, 0.9, ("not decided", "not decided", "not decided")),
        (-0.9, -0.1, ("does not hold", "not decided", "not decided")),
        (-0.9, -0.6, ("does not hold", "does not hold", "does not hold")),
        (0.6, 0.9, ("holds", "does not hold", "holds")),
        (-np.inf, np.inf, ("not decided", "not decided", "not decided")),
    ],
)
def test_where_an_interval_lies_decides(
    low: float, high: float, expected: tuple[Verdict, ...]
) -> None:
    effect, ratio_ = Effect(0.0, low, high, 9), Effect(1.0, 1 + low, 1 + high, 9)
    rules = (superior, comparable, no_worse)
    assert tuple(rule(effect, DELTA) for rule in rules) == expected
    assert tuple(rule(ratio_, DELTA, zero=1.0) for rule in rules) == expected


def test_one_unit_decides_nothing() -> None:
    effect = mean(np.array([7.0]))
    assert effect == Effect(7.0, -np.inf, np.inf, 1)
    assert superior(effect, DELTA) == comparable(effect, DELTA) == "not decided"


@pytest.mark.parametrize("n", [4, 30])
def test_an_interval_of_zero_width_decides_nothing(n: int) -> None:
    effect = paired(np.full(n, 3.0), np.full(n, 3.0))
    assert effect == Effect(0.0, -np.inf, np.inf, n)
    assert superior(effect, DELTA) == comparable(effect, DELTA) == "not decided"
    sample = 1 / 170  # whose last bits differ from case to case
    coarse = paired(np.arange(n) * sample + sample, np.arange(n) * sample)
    assert (coarse.low, coarse.high) == (-np.inf, np.inf)
    same = ratio(np.full(n, 6.0), np.full(n, 3.0))
    assert (same.low, same.high) == (0.0, np.inf) and same.value == pytest.approx(2.0)


def test_what_may_happen_is_seen_or_not() -> None:
    seen, open_, not_seen = (Effect(0.0, low, low + 1.0, 9) for low in (0.1, -0.1, -2.0))
    assert [sighted(effect, DELTA) for effect in (seen, open_, not_seen)] == [
        *("seen", "not seen", "not seen")
    ]


class TestBootstrap:
    def test_resamples_are_means_over_targets_drawn_with_replacement(self) -> None:
        W = resamples(7)
        assert W.shape == (2000, 7)
        np.testing.assert_allclose(W.sum(axis=1), 1)
        np.testing.assert_allclose(W * 7, np.round(W * 7), atol=1e-12)
        np.testing.assert_array_equal(W, resamples(7))

    def test_seeds_of_a_target_stay_together(self) -> None:
        """A hundred equal seeds do not make the interval narrower."""
        values = np.random.default_rng(1).random((10, 1))
        one, hundred = (bootstrap(np.positive, np.repeat(values, n, axis=1)) for n in (1, 100))
        assert astuple(hundred) == pytest.approx(astuple(one))

    def test_ratio_of_means_against_brute_force(self) -> None:
        b = np.random.default_rng(2).lognormal(0, 2, (30, 4))
        a = np.random.default_rng(3).lognormal(0, 1, (30, 4))
        effect = bootstrap(np.divide, a, b)
        assert effect.value == pytest.approx(a.mean() / b.mean())
        counts = np.round(resamples(30) * 30).astype(int)
        rows = [np.repeat(np.arange(30), count) for count in counts]
        samples = np.sort([a[row].mean() / b[row].mean() for row in rows])
        assert (effect.low, effect.high) == pytest.approx((samples[49], samples[1950]))

    def test_a_ratio_to_0_is_not_a_number_and_not_a_warning(self) -> None:
        nothing = np.zeros((3, 2))
        effect = bootstrap(np.divide, nothing, nothing)
        assert np.isnan([effect.value, effect.low, effect.high]).all()
        assert bootstrap(np.divide, nothing + 1, nothing).value == np.inf
