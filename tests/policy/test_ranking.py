"""Counting wrongly ranked pairs, against the loops of the definition."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.policy.peers import Ranking


def loss(f: np.ndarray, y: np.ndarray) -> int:
    """The ranking loss over ordered pairs, as it is written (Feurer et al. 2018)."""
    n = len(y)
    return sum((f[j] < f[k]) ^ (y[j] < y[k]) for j in range(n) for k in range(n))


def values(ranking: Ranking, X: np.ndarray, F: np.ndarray) -> np.ndarray:
    """F (t, K) at the rows of X, told at the ranking's points instead."""
    rows = [next(i for i, x in enumerate(X) if (x == point).all()) for point in ranking.points]
    return F[rows]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 60])
def test_discordant_pairs_are_half_of_the_loss(n: int) -> None:
    rng = np.random.default_rng(n)
    X, y, F = rng.random((n, 2)), rng.standard_normal(n), rng.standard_normal((n, 5))
    ranking = Ranking(X, y)
    assert ranking.pairs == n * (n - 1) // 2
    found = ranking.discordant(values(ranking, X, F))
    assert (2 * found).tolist() == [loss(f, y) for f in F.T]
    assert y[ranking.rows].tolist() == sorted(y)


def test_ties_of_scores_and_repeated_points_add_the_same_to_every_model() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((20, 2))
    X[10:14] = X[0]  # one point five times, with several scores
    y = rng.integers(0, 6, 20).astype(float)
    F = rng.standard_normal((20, 8))
    F[10:14] = F[0]
    ranking = Ranking(X, y)
    rest = [
        loss(f, y) - 2 * int(found)
        for f, found in zip(F.T, ranking.discordant(values(ranking, X, F)), strict=True)
    ]
    assert len(set(rest)) == 1 and len(ranking.points) == 16


def test_a_model_that_ranks_nothing_is_wrong_about_every_pair() -> None:
    rng = np.random.default_rng(1)
    ranking = Ranking(rng.random((9, 1)), rng.standard_normal(9))
    assert ranking.discordant(np.zeros((9, 1))).tolist() == [ranking.pairs] == [36]


def test_left_out_draws_rank_each_observation_by_the_belief_that_never_saw_it() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.random((7, 1)), rng.standard_normal(7)
    ranking = Ranking(X, y)
    draws = rng.standard_normal((4, 7, 7))
    scores = y[ranking.rows]
    expected = [
        sum((f[j, j] < f[j, k]) ^ (scores[j] < scores[k]) for j in range(7) for k in range(7))
        for f in draws
    ]
    assert ranking.discordant_left_out(draws).tolist() == expected


def test_of_many_observations_an_even_spread_is_compared() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.random((1500, 2)), rng.standard_normal(1500)
    ranking = Ranking(X, y)
    scores = y[ranking.rows]
    assert len(scores) == 200 and (scores[0], scores[-1]) == (y.min(), y.max())
    assert ranking.discordant(values(ranking, X, -y[:, None])).tolist() == [ranking.pairs]
    assert ranking.discordant(values(ranking, X, y[:, None])).tolist() == [0]
