"""Regions, weights and the server, against computations that share no code with them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbo_paper.dp.server import Mean, PrivateMean, Regions, Weights, clip

N, P, M = 29, 4, 100


@pytest.fixture
def omega() -> np.ndarray:
    rng = np.random.default_rng(1)
    lengths = rng.uniform(2.0, 30.0, size=(N, 1))  # some are clipped at 11, some are not
    directions = rng.standard_normal((N, M))
    return lengths * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def weights(t: int) -> np.ndarray:
    return Weights()(t, Regions(2, 2).assigned(N), P)


@pytest.mark.parametrize(("dimensions", "parts"), [(2, 2), (2, 1), (3, 2), (1, 5)])
def test_regions_cover_the_cube_and_do_not_overlap(dimensions: int, parts: int) -> None:
    regions = Regions(dimensions, parts)
    X = np.random.default_rng(0).random((500, dimensions))
    X[:2] = [[0.0] * dimensions, [1.0] * dimensions]
    inside = np.zeros((len(X), regions.count), dtype=bool)
    volume = 0.0
    for p in range(regions.count):
        low, high = regions.box(p)
        inside[:, p] = ((low <= X) & (high >= X)).all(axis=1)
        volume += float(np.prod(high - low))
    assert volume == pytest.approx(1.0)
    assert (inside.sum(axis=1) == 1).all()  # no point of this set is on an inner border
    assert (inside[np.arange(len(X)), regions.index(X)]).all()


def test_a_border_belongs_to_one_region() -> None:
    X = np.array([[0.5, 0.2], [0.2, 0.5], [0.5, 0.5]])
    assert Regions(2, 2).index(X).tolist() == [2, 1, 3]


def test_initial_points_are_placed_in_their_region() -> None:
    regions, U = Regions(2, 2), np.random.default_rng(0).random((50, 2))
    for p in range(4):
        assert (regions.index(regions.place(U, p)) == p).all()
    assert (Regions(2, 1).place(U, 0) == U).all()


def test_agents_are_assigned_in_turn() -> None:
    assert Regions(2, 2).assigned(6).tolist() == [0, 1, 2, 3, 0, 1]


def test_weights_favour_the_assigned_at_first_and_nobody_later() -> None:
    for t in range(1, 61):
        # 10 rounds of a = 16, and 30 rounds from 16 to 1, the ends included
        a = 16.0 if t <= 10 else np.linspace(16.0, 1.0, 30)[t - 11] if t <= 40 else 1.0
        for p in range(P):
            own = [math.exp(a) if n % P == p else math.exp(1.0) for n in range(N)]
            assert weights(t)[p] == pytest.approx(np.array(own) / sum(own), rel=1e-12)
    assert weights(1)[0, 0] == pytest.approx(1 / 8, rel=1e-4)  # agents 0, 4, …, 28
    assert (np.diff([weights(t)[0, 0] for t in range(1, 61)]) <= 1e-15).all()
    assert weights(40) == pytest.approx(np.full((P, N), 1 / N))


def test_clipping_shortens_what_is_too_long_and_nothing_else(omega: np.ndarray) -> None:
    clipped = clip(omega, 11.0)
    before, after = np.linalg.norm(omega, axis=1), np.linalg.norm(clipped, axis=1)
    assert (before > 11.0).any() and (before < 11.0).any()
    assert after == pytest.approx(np.minimum(before, 11.0))
    assert (clipped[before <= 11.0] == omega[before <= 11.0]).all()
    cosines = np.einsum("ij,ij->i", omega, clipped) / (before * after)
    assert cosines == pytest.approx(np.ones(N))
    assert (clip(np.zeros((1, 3)), 1.0) == 0.0).all()


def test_without_privacy_the_aggregate_is_the_weighted_mean(omega: np.ndarray) -> None:
    W = weights(15)
    aggregate = Mean()(omega, W, np.random.default_rng(0))
    for p in range(P):
        for m in (0, 57):
            by_hand = sum(W[p, n] * omega[n, m] for n in range(N))
            assert aggregate[p, m] == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("t", [1, 20, 50])
def test_the_aggregate_is_that_of_a_loop(omega: np.ndarray, t: int) -> None:
    """Brute force, with the same random numbers: who is included first, and then the noise."""
    W, q, S, z = weights(t), 0.35, 22.0, 1.0
    found = PrivateMean(q=q, S=S, z=z)(omega, W, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    included = [rng.random() < q for _ in range(N)]
    assert 0 < sum(included) < N
    for p in range(P):
        noise = rng.standard_normal(M) * (max(W[p]) * z * S / q)
        total = np.zeros(M)
        for n in range(N):
            if included[n]:
                norm = math.sqrt(sum(x * x for x in omega[n]))
                total += W[p, n] * (omega[n] / max(1.0, norm / (S / math.sqrt(P)))) / q
        assert found[p] == pytest.approx(total + noise, rel=1e-10, abs=1e-10)


def test_the_noise_has_the_published_deviation() -> None:
    """Of 20,000 numbers, the deviation is known to 0.5 %; 2 % is four standard errors."""
    W, rng = weights(5), np.random.default_rng(2)
    mechanism = PrivateMean(q=0.35, S=22.0, z=1.0)
    noise = np.array([mechanism(np.zeros((N, M)), W, rng) for _ in range(200)])  # (200, P, M)
    for p in range(P):
        expected = W[p].max() * 1.0 * 22.0 / 0.35
        assert noise[:, p].std() == pytest.approx(expected, rel=0.02)
        assert abs(noise[:, p].mean()) < 4 * expected / math.sqrt(noise[:, p].size)


def test_a_message_is_included_with_probability_q() -> None:
    """The mean over rounds is the mean of all messages: included ones are divided by q."""
    omega, W, rng = np.ones((N, 1)), np.full((1, N), 1 / N), np.random.default_rng(3)
    mechanism = PrivateMean(q=0.35, S=1e3, z=1e-9)
    found = np.array([mechanism(omega, W, rng)[0, 0] for _ in range(4000)])
    assert found.mean() == pytest.approx(1.0, abs=4 * found.std() / math.sqrt(len(found)))
    assert found.std() == pytest.approx(math.sqrt(0.65 / 0.35 / N), rel=0.06)


def test_one_agent_moves_the_aggregates_by_at_most_1_over_z_deviations() -> None:
    """Over all regions together: what ε is computed from."""
    z, rng = 2.0, np.random.default_rng(4)
    mechanism = PrivateMean(q=0.35, S=22.0, z=z)
    for t in (1, 25, 60):
        W = weights(t)
        for n in (0, 3, 28):
            [own] = clip(1e6 * rng.standard_normal((1, M)), 22.0 / math.sqrt(P))
            moves = [W[p, n] * own / 0.35 / mechanism.deviations(W)[p] for p in range(P)]
            assert np.linalg.norm(moves) <= 1 / z * (1 + 1e-12)


@pytest.mark.parametrize(
    ("given", "said"), [({"q": 0.0}, "q is 0.0"), ({"S": -1.0}, "S is -1"), ({"z": 0.0}, "z is 0")]
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PrivateMean(**given)
