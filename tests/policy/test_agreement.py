"""Learned P_N: against a plain loop and SciPy, and as a statistic on noise and on truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from fedbo.policy import agreement as module
from fedbo.policy.agreement import agreement

LONGER = module._MOST + 37


def compared(t: int) -> list[int]:
    """Which of t scores are compared."""
    if t <= module._MOST:
        return [*range(t)]
    return [round(i) for i in np.linspace(0, t - 1, module._MOST)]


def sign(value: float) -> int:
    return int(value > 0) - int(value < 0)


def plain_loop(y: np.ndarray, F: np.ndarray) -> list[float]:
    """The weights, peer by peer and pair by pair."""
    kept, powers = compared(len(y)), []
    for f in F.T:
        agree = pairs = 0
        for i, new in enumerate(kept):
            for old in kept[:i]:
                agree += sign(y[new] - y[old]) * sign(f[new] - f[old])
                pairs += y[new] != y[old]
        tau = agree / pairs if pairs else 0.0
        powers.append(math.exp(1.5 * math.sqrt(max(len(kept) - 1, 0)) * tau))
    return [power / sum(powers) for power in powers]


def same(y: np.ndarray, F: np.ndarray) -> None:
    np.testing.assert_allclose(agreement(y, F), plain_loop(y, F), rtol=1e-10, atol=1e-14)


# Against plain loops


@pytest.mark.parametrize("K", [1, 2, 7])
@pytest.mark.parametrize("t", [0, 1, 2, 3, 20])
def test_against_a_plain_loop(t: int, K: int) -> None:
    rng = np.random.default_rng([t, K])
    for _ in range(5):
        same(rng.standard_normal(t), rng.standard_normal((t, K)))


@pytest.mark.parametrize("t", [module._MOST, module._MOST + 1, LONGER, 3 * LONGER])
def test_against_a_plain_loop_where_scores_are_many(t: int) -> None:
    rng = np.random.default_rng(t)
    y = rng.standard_normal(t)
    same(y, y[:, None] + rng.standard_normal((t, 3)))


@settings(max_examples=100)
@given(st.data())
def test_against_a_plain_loop_with_ties_and_duplicates(data: st.DataObject) -> None:
    """A few values only: scores tie, points repeat, and peers are constant."""
    t, K = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    few = st.sampled_from([-1.0, 0.0, 2.0])
    y = data.draw(st.lists(few, min_size=t, max_size=t))
    F = data.draw(st.lists(st.lists(few, min_size=K, max_size=K), min_size=t, max_size=t))
    same(np.array(y), np.array(F))


@pytest.mark.parametrize("block", [1, 20, 100, 10**9])
def test_the_size_of_blocks_does_not_matter(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row at a time, a few, or all at once."""
    rng = np.random.default_rng(block)
    y, F = rng.integers(0, 9, 23).astype(float), rng.standard_normal((23, 4))
    reference = agreement(y, F)
    monkeypatch.setattr(module, "_BLOCK", block)
    np.testing.assert_allclose(agreement(y, F), reference, rtol=1e-12)
    same(y, F)


@pytest.mark.parametrize("t", [2, 5, 30, module._MOST])
def test_tau_is_kendalls(t: int) -> None:
    """The ratio of two weights is exp(1.5 √(t − 1) (τ_1 − τ_2)); no ties, where τ_b is another."""
    rng = np.random.default_rng(t)
    y, F = rng.standard_normal(t), rng.standard_normal((t, 5))
    F[:, 1:3] += y[:, None]
    tau = np.array([kendalltau(y, f).statistic for f in F.T])
    powers = np.exp(1.5 * np.sqrt(t - 1) * tau)
    np.testing.assert_allclose(agreement(y, F), powers / powers.sum(), rtol=1e-9)


@pytest.mark.parametrize("t", [0, 1])
def test_before_any_pair_all_peers_are_alike(t: int) -> None:
    assert agreement(np.zeros(t), np.arange(4.0 * t).reshape(t, 4)).tolist() == [0.25] * 4


def test_a_tie_says_nothing_of_who_is_right() -> None:
    F = np.random.default_rng(0).standard_normal((6, 3))
    np.testing.assert_allclose(agreement(np.ones(6), F), 1 / 3)


def test_a_flat_peer_is_between_right_and_wrong_ones() -> None:
    y = np.arange(8.0)
    right, flat, wrong = agreement(y, np.stack([y, np.ones(8), -y], axis=1))
    assert right > flat > wrong
    assert right / flat == pytest.approx(flat / wrong) == pytest.approx(math.exp(1.5 * 7**0.5))


# Only orders matter


@pytest.mark.parametrize("t", [2, 12, LONGER])
def test_scales_do_not_matter(t: int) -> None:
    """Neither that of the scores nor those of the peers, one by one."""
    rng = np.random.default_rng(t)
    y, F = rng.standard_normal(t), rng.standard_normal((t, 4))
    F[:, :2] += y[:, None]
    reference = agreement(y, F)
    for y_there in (np.exp(3 * y), np.arctan(y) - 50):
        np.testing.assert_array_equal(agreement(y_there, F), reference)
    warped = np.stack([F[:, 0] ** 3, np.exp(F[:, 1]), 1e9 + 1e6 * F[:, 2], 1e-9 * F[:, 3]], axis=1)
    np.testing.assert_array_equal(agreement(y, warped), reference)


def test_who_is_who_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    y, F = rng.standard_normal(15), rng.standard_normal((15, 6))
    order = rng.permutation(6)
    np.testing.assert_allclose(agreement(y, F[:, order]), agreement(y, F)[order])


def test_which_score_came_first_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    y, F = rng.standard_normal(15), rng.standard_normal((15, 6))
    order = rng.permutation(15)
    np.testing.assert_allclose(agreement(y[order], F[order]), agreement(y, F))


def test_nothing_that_is_given_is_changed() -> None:
    y, F = np.arange(150.0), np.random.default_rng(0).standard_normal((150, 3))
    before = y.copy(), F.copy()
    agreement(y, F)
    np.testing.assert_array_equal(y, before[0])
    np.testing.assert_array_equal(F, before[1])


# As statistics


def test_the_right_ones_are_found_among_many_wrong_ones() -> None:
    """4 of 40 are nearly right: after 15 scores their share is more than thrice 4 / 40."""
    shares = []
    for seed in range(20):
        rng = np.random.default_rng([2, seed])
        y = rng.standard_normal(15)
        F = rng.standard_normal((15, 40))
        F[:, :4] = y[:, None] + 0.3 * rng.standard_normal((15, 4))
        weights = agreement(y, F)
        assert weights.sum() == pytest.approx(1.0)
        assert weights[:4].min() > 2 * weights[4:].mean()
        shares.append(weights[:4].sum())
    assert np.mean(shares) > 3 * 4 / 40


def test_few_scores_neither_make_nor_break_a_peer() -> None:
    """After three scores in a peer's order its odds to one that says nothing are below 9."""
    y = np.arange(3.0)
    weights = agreement(y, np.stack([y, np.ones(3), -y], axis=1))
    assert 1.0 < weights[0] / weights[1] < 9.0
    assert 1.0 < weights[1] / weights[2] < 9.0


@pytest.mark.slow
def test_noise_is_not_told_apart_as_long_as_scores_are_few() -> None:
    """The luckiest of 50 has a high τ after six scores, and a sixth of all weight on average."""
    largest, luckiest = [], []
    for seed in range(50):
        rng = np.random.default_rng([11, seed])
        y, F = rng.standard_normal(6), rng.standard_normal((6, 50))
        largest.append(50 * agreement(y, F).max())
        luckiest.append(max(kendalltau(y, f).statistic for f in F.T))
    assert np.mean(luckiest) > 0.6
    assert np.mean(largest) < 50 / 6
