"""The benchmarks' statistics, beside closed forms and brute force."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

paired = importlib.import_module("fedbo_paper.contests.paired")


def test_resamples_are_means_over_targets_drawn_with_replacement() -> None:
    W = paired.resamples(7)
    assert W.shape == (2000, 7)
    np.testing.assert_allclose(W.sum(axis=1), 1)
    np.testing.assert_allclose(W * 7, np.round(W * 7), atol=1e-12)
    np.testing.assert_array_equal(W, paired.resamples(7))


def test_interval_of_a_mean_is_the_normal_one_for_many_targets() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, (400, 1))
    point, low, high = paired.mean(values)
    error = values.std() / np.sqrt(400)
    assert point == pytest.approx(values.mean())
    assert low == pytest.approx(point - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(point + 1.96 * error, abs=0.15 * error)


def test_seeds_of_a_target_stay_together() -> None:
    """A hundred seeds that say the same do not make the interval narrower."""
    values = np.random.default_rng(1).random((10, 1))
    assert paired.mean(np.repeat(values, 100, axis=1)) == pytest.approx(paired.mean(values))


def test_ratio_is_of_means_and_paired() -> None:
    b = np.random.default_rng(2).lognormal(0, 2, (30, 4))
    assert paired.ratio(0.5 * b, b) == pytest.approx([0.5, 0.5, 0.5])
    a = np.random.default_rng(3).lognormal(0, 1, (30, 4))
    point, low, high = paired.ratio(a, b)
    assert point == pytest.approx(a.mean() / b.mean())
    counts = np.round(paired.resamples(30) * 30).astype(int)
    rows = [np.repeat(np.arange(30), count) for count in counts]
    samples = np.sort([a[row].mean() / b[row].mean() for row in rows])
    assert low == pytest.approx(samples[49])
    assert high == pytest.approx(samples[1950])


def test_ratio_to_nothing_is_not_a_number_and_not_a_warning() -> None:
    nothing = np.zeros((3, 2))
    assert np.isnan(paired.ratio(nothing, nothing)).all()
    assert paired.ratio(nothing + 1, nothing)[0] == np.inf


def test_fewer_seeds_are_compared_on_those() -> None:
    a, b = np.array([[1.0], [2.0]]), np.array([[1.0, 100.0], [2.0, 100.0]])
    assert paired.difference(a, b) == [0, 0, 0]


def test_ranks_against_counting() -> None:
    regrets = np.random.default_rng(4).integers(0, 4, (5, 6, 3)) / 10
    ranks = paired.ranks(regrets)
    for p in range(5):
        less = (regrets < regrets[p]).sum(axis=0)
        same = (regrets == regrets[p]).sum(axis=0)
        np.testing.assert_allclose(ranks[p], less + (same + 1) / 2)


def test_nobody_is_late_beside_himself() -> None:
    curve = np.minimum.accumulate(np.random.default_rng(5).random(30))
    for n in range(30):
        assert paired.delay(curve, curve, n) == (0.0, True)


def test_delay_of_a_curve_that_lags() -> None:
    solo = 1 / np.arange(1.0, 61.0)
    late = np.concatenate([np.ones(3), solo[:-3]])
    assert paired.delay(late, solo, 20) == (pytest.approx(3.0), True)
    assert paired.delay(solo, late, 20) == (pytest.approx(-3.0), True)
    assert paired.delay(np.ones(60), solo, 20) == (39.0, False)


def test_a_regret_that_counts_as_none_need_not_be_undercut() -> None:
    solo, other = np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.0005, 0.0005])
    assert not paired.delay(other, solo, 1)[1]
    delay, reached = paired.delay(other, solo, 1, nothing=0.001)
    assert reached and delay == pytest.approx(0.0, abs=0.001)
