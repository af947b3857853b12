"""Regions, weights and the server, against computations that share no code with them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbo_paper.dp.server import PrivateMean, Regions, Weights, clip

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
