"""Learned P_N and trust: against plain loops and SciPy, and as statistics on noise and on truth."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from fedbo.policy import agreement
from fedbo.policy.agreement import Agreement

LONGER = agreement._MOST + 37
START = 1.0 / (1.0 + math.exp(-agreement._FIRST))  # trust before any score


def compared(t: int) -> list[int]:
    """Which of t scores are compared."""
    if t <= agreement._MOST:
        return [*range(t)]
    return [round(i) for i in np.linspace(0, t - 1, agreement._MOST)]


def sign(value: float) -> int:
    return int(value > 0) - int(value < 0)


def brute_force(
    y: np.ndarray, F: np.ndarray
) -> tuple[list[float], list[float], list[float], float]:
    """Weights, what came true, what was claimed, and trust, pair by pair."""
    kept = compared(len(y))
    K = F.shape[1]
    agree, pairs = [0] * K, 0
    weights, foreseen, claimed = [1.0 / K] * K, [], []
    for i, new in enumerate(kept):
        before = [*weights]
        pairs += sum(1 for old in kept[:i] if y[old] != y[new])
        true = claim = 0.0
        for n in range(K):
            for old in kept[:i]:
                d = min(max(F[new, n] - F[old, n], -1.0), 1.0)
                agree[n] += sign(y[new] - y[old]) * sign(d)
                true += before[n] * sign(y[new] - y[old]) * d / i
                claim += before[n] * abs(d) * (y[new] != y[old]) / i
        if i:
            foreseen.append(true)
            claimed.append(claim)
        powers = [math.exp(agreement._SHARPNESS * i * a / max(pairs, 1)) for a in agree]
        weights = [power / sum(powers) for power in powers]
    odds = agreement._FIRST
    for c, u in zip(foreseen, claimed, strict=True):
        odds = min(odds + agreement._STEP * (c - agreement._CHANCE * u), agreement._HIGHEST)
    return weights, foreseen, claimed, 1.0 / (1.0 + math.exp(-odds))


def same(y: np.ndarray, F: np.ndarray) -> None:
    found = Agreement(y, F)
    weights, foreseen, claimed, trust = brute_force(y, F)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(found.foreseen, foreseen, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.claimed, claimed, rtol=1e-10, atol=1e-12)
    assert found.trust == pytest.approx(trust, rel=1e-10)


# Against plain loops


@pytest.mark.parametrize("K", [1, 2, 7])
@pytest.mark.parametrize("t", [0, 1, 2, 3, 20])
def test_against_a_plain_loop(t: int, K: int) -> None:
    rng = np.random.default_rng([t, K])
    for _ in range(5):
        same(rng.standard_normal(t), rng.standard_normal((t, K)))


@pytest.mark.parametrize("t", [agreement._MOST, agreement._MOST + 1, LONGER, 3 * LONGER])
def test_against_a_plain_loop_where_scores_are_many(t: int) -> None:
    rng = np.random.default_rng(t)
    y = rng.standard_normal(t)
    same(y, y[:, None] + rng.standard_normal((t, 3)))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_against_a_plain_loop_with_ties_and_duplicates(data: st.DataObject) -> None:
    """A few values only: scores tie, points repeat, and peers are constant."""
    t, K = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    few = st.sampled_from([-1.0, 0.0, 2.0])
    y = data.draw(st.lists(few, min_size=t, max_size=t))
    F = data.draw(st.lists(st.lists(few, min_size=K, max_size=K), min_size=t, max_size=t))
    same(np.array(y), np.array(F))


def test_before_any_pair_all_peers_are_alike() -> None:
    for t in (0, 1):
        found = Agreement(np.zeros(t), np.zeros((t, 4)))
        assert found.weights.tolist() == [0.25] * 4
        assert found.foreseen.shape == (0,)
        assert found.trust == pytest.approx(START)


def test_a_tie_says_nothing_of_who_is_right() -> None:
    """Constant scores leave the weights alone, and cost what a score that nobody foresaw costs."""
    found = Agreement(np.ones(6), np.random.default_rng(0).standard_normal((6, 3)))
    np.testing.assert_allclose(found.weights, 1 / 3)
    assert not found.foreseen.any()
    assert np.isfinite(found.trust)


@pytest.mark.parametrize("t", [2, 5, 30, agreement._MOST])
def test_tau_is_kendalls(t: int) -> None:
    """The ratio of two weights is exp(κ (t − 1) (τ_1 − τ_2)); no ties, where τ_b is another."""
    rng = np.random.default_rng(t)
    y, F = rng.standard_normal(t), rng.standard_normal((t, 5))
    F[:, 1:3] += y[:, None]
    tau = np.array([kendalltau(y, f).statistic for f in F.T])
    powers = np.exp(agreement._SHARPNESS * (t - 1) * tau)
    np.testing.assert_allclose(Agreement(y, F).weights, powers / powers.sum(), rtol=1e-9)


# Only orders matter


@pytest.mark.parametrize("t", [2, 12, LONGER])
def test_scales_do_not_matter(t: int) -> None:
    """That of the scores to nothing; those of the peers, one by one, not to their weights."""
    rng = np.random.default_rng(t)
    y, F = rng.standard_normal(t), rng.standard_normal((t, 4))
    F[:, :2] += y[:, None]
    reference = Agreement(y, F)
    for y_there in (np.exp(3 * y), np.arctan(y) - 50):
        found = Agreement(y_there, F)
        np.testing.assert_array_equal(found.weights, reference.weights)
        np.testing.assert_array_equal(found.foreseen, reference.foreseen)
        assert found.trust == reference.trust
    warped = np.stack([F[:, 0] ** 3, np.exp(F[:, 1]), 1e9 + 1e6 * F[:, 2], 1e-9 * F[:, 3]], axis=1)
    np.testing.assert_array_equal(Agreement(y, warped).weights, reference.weights)


def test_points_that_peers_find_alike_count_little() -> None:
    """Not for them where their order is right, and not against them where it is wrong."""
    y, start = np.arange(6.0), Agreement(np.zeros(1), np.zeros((1, 1))).trust
    for direction in (1.0, -1.0):
        sure = Agreement(y, direction * y[:, None]).trust
        unsure = Agreement(y, direction * 0.01 * y[:, None]).trust
        assert abs(unsure - start) < 0.2 * abs(sure - start)


def test_who_is_who_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    y, F = rng.standard_normal(15), rng.standard_normal((15, 6))
    order = rng.permutation(6)
    one, other = Agreement(y, F), Agreement(y, F[:, order])
    np.testing.assert_allclose(other.weights, one.weights[order])
    np.testing.assert_allclose(other.foreseen, one.foreseen)


def test_nothing_that_is_given_is_changed() -> None:
    y, F = np.arange(150.0), np.random.default_rng(0).standard_normal((150, 3))
    before = y.copy(), F.copy()
    Agreement(y, F)
    np.testing.assert_array_equal(y, before[0])
    np.testing.assert_array_equal(F, before[1])


def test_a_score_is_judged_by_weights_from_before_it() -> None:
    """What came before does not change with what comes later: prequential."""
    rng = np.random.default_rng(4)
    y, F = rng.standard_normal(20), rng.standard_normal((20, 8))
    whole = Agreement(y, F).foreseen
    for t in range(2, 20):
        np.testing.assert_allclose(Agreement(y[:t], F[:t]).foreseen, whole[: t - 1], atol=1e-12)


def test_bounds() -> None:
    """c lies in [−1, 1], and is ±1 where all peers are wholly right or wrong."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        found = Agreement(rng.standard_normal(12), rng.standard_normal((12, 5)))
        assert np.abs(found.foreseen).max() <= 1.0 + 1e-12
        assert 0.0 < found.trust < 1.0
        assert found.weights.sum() == pytest.approx(1.0)
    y = rng.standard_normal(12)
    for direction in (1.0, -1.0):
        twins = Agreement(y, direction * np.stack([1e9 * y, 3e9 * y], axis=1))
        np.testing.assert_allclose(twins.foreseen, direction)
        np.testing.assert_allclose(twins.claimed, 1.0)


# As statistics


def trusts(peers: float, noise: float, t: int = 10, K: int = 50, runs: int = 200) -> np.ndarray:
    """Trust after t random scores in K peers that are ``peers`` times the truth, and noise."""
    found = []
    for seed in range(runs):
        rng = np.random.default_rng([11, seed])
        y = rng.standard_normal(t)
        F = peers * y[:, None] + noise * rng.standard_normal((t, K))
        found.append(Agreement(y, F).trust)
    return np.array(found)


def test_an_inbox_of_noise_loses_trust() -> None:
    """Though one of 50 agrees with ten scores by luck: τ of 0.5 or so, p < 0.05 by itself."""
    luckiest = []
    for seed in range(10):
        rng = np.random.default_rng([11, seed])
        y, F = rng.standard_normal(10), rng.standard_normal((10, 50))
        luckiest.append(max(kendalltau(y, f).statistic for f in F.T))
    assert np.mean(luckiest) > 0.45
    found = trusts(0.0, 1.0)
    assert found.mean() < 0.5 * START
    assert (found < START).mean() > 0.97


@pytest.mark.parametrize("K", [1, 5, 1000])
def test_more_noise_is_not_more_trusted(K: int) -> None:
    assert trusts(0.0, 1.0, K=K, runs=60).mean() < 0.6 * START


def test_peers_that_know_the_truth_gain_trust() -> None:
    found = trusts(1.0, 0.7)
    assert found.mean() > START + 0.5 * (1.0 - START)
    assert (found > START).mean() > 0.9


def test_negated_peers_lose_it_at_once() -> None:
    """Each score shrinks it; two are enough to take more than half of the odds."""
    y = np.random.default_rng(0).standard_normal(6)
    F = -y[:, None] + np.zeros(50)
    found = [Agreement(y[:t], F[:t]).trust for t in range(1, 7)]
    assert all(later < earlier for earlier, later in pairwise(found))
    odds = [trust / (1.0 - trust) for trust in found]
    assert odds[1] < 0.5 * odds[0]
    assert found[2] < 0.5
    assert trusts(-1.0, 0.7, t=4).mean() < 0.1
    assert (trusts(-1.0, 0.7, t=4) < START).all()


def test_trust_that_was_earned_is_lost_again_as_fast() -> None:
    """However long peers were right: the odds have a ceiling."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal(60)
    found = []
    for good in (10, 40):
        F = np.where(np.arange(60) < good, y, -10 * y)[:, None] + np.zeros(3)
        assert Agreement(y[:good], F[:good]).trust > START
        found.append(Agreement(y[: good + 8], F[: good + 8]).trust)
    assert max(found) < 0.5


def test_the_right_ones_are_found_among_many_wrong_ones() -> None:
    rng = np.random.default_rng(2)
    y = rng.standard_normal(15)
    F = rng.standard_normal((15, 40))
    F[:, :4] = y[:, None] + 0.3 * rng.standard_normal((15, 4))
    weights = Agreement(y, F).weights
    assert weights[:4].min() > 2 * weights[4:].mean()
    assert weights[:4].sum() > 3 * 4 / 40
