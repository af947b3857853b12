"""RGPE against loops that are slow and obvious, and what its weights are there for."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from contracts.inboxes import covariance
from policy.ensembles import message, problem, slopes, target
from scipy.stats import norm

from fedbo.message.inbox import BeliefInbox
from fedbo.message.inbox import held as as_held
from fedbo.model.features import Features
from fedbo.model.gp import GP
from fedbo.policy import RGPE, Target
from fedbo.policy.improvement import ExpectedImprovement
from fedbo.policy.rgpe import EnsembleImprovement, ranking_shares

SEEDS = range(12)


def slow_losses(at: Target, samples: int) -> tuple[list[int], list[list[int]]]:
    """Ranking losses by loops over samples, peers and ordered pairs, with the draws of RGPE."""
    rows = np.argsort(at.y)
    left_out = at.belief.leave_one_out(rows).draws(copy.deepcopy(at.rng), samples)
    X, y = at.X[rows], at.y[rows]
    n, draws = len(y), at.beliefs.draws(samples).astype(np.float64)
    own, peers = [], []
    for s in range(samples):
        loss = 0
        for j in range(n):
            for k in range(n):
                loss += (left_out[s, j, j] < left_out[s, j, k]) != (y[j] < y[k])
        own.append(loss)
    for omegas in draws:
        peers.append([])
        for omega in omegas:
            f = [float(at.phi(x[None])[0] @ omega) for x in X]
            loss = 0
            for j in range(n):
                for k in range(n):
                    loss += (f[j] < f[k]) != (y[j] < y[k])
            peers[-1].append(loss)
    return own, peers


def slow_weights(own: list[int], peers: list[list[int]], dilution: float | None) -> list[float]:
    """The weight of the target, and then of each peer."""
    S = len(own)
    weights = [0.0] * (len(peers) + 1)
    kept = [
        n
        for n, losses in enumerate(peers)
        if dilution is None or np.median(losses) <= np.percentile(own, dilution)
    ]
    for s in range(S):
        lowest = min([own[s], *[peers[n][s] for n in kept]])
        if own[s] == lowest:
            weights[0] += 1 / S
            continue
        tied = [n for n in kept if peers[n][s] == lowest]
        for n in tied:
            weights[n + 1] += 1 / S / len(tied)
    return weights


def slow_moments(at: Target, weights: list[float], x: np.ndarray) -> tuple[float, float]:
    """Mean and variance of the ensemble at one point, from dense matrices."""
    gp = at.belief.marginal()
    assert isinstance(gp, GP)
    A = gp.covariance(gp.X, gp.X) + gp.hyper.noise_variance * np.eye(len(gp))
    k = gp.covariance(gp.X, x[None])[:, 0]
    mu = weights[0] * (k @ np.linalg.solve(A, at.y))
    var = weights[0] ** 2 * (gp.hyper.signal_variance - k @ np.linalg.solve(A, k))
    phi = at.phi(x[None])[0]
    for n in range(len(at.beliefs)):
        mu += weights[n + 1] * (phi @ at.beliefs.nu[n].astype(np.float64))
        var += weights[n + 1] ** 2 * (phi @ covariance(at.beliefs, n) @ phi)
    return float(mu), float(var)


@pytest.mark.parametrize("dilution", [95.0, None])
@pytest.mark.parametrize("seed", SEEDS)
def test_weights_agree_with_loops(seed: int, dilution: float | None) -> None:
    at = problem(seed, n=7 + seed % 4)
    policy = RGPE(samples=25, dilution=dilution)
    assert at.belief is not None  # fits, and so draws from the generator
    expected = slow_weights(*slow_losses(at, 25), dilution)
    own, peers = policy.shares(at)
    np.testing.assert_allclose([own, *peers], expected, rtol=0, atol=1e-12)
    assert own + peers.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_acquisition_agrees_with_loops(seed: int) -> None:
    at = problem(seed)
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(at.beliefs) + 1))
    if seed % 3 == 0:
        weights[0] = 0.0  # the target may lose every draw
    weights[2] = 0.0
    f = RGPE().acquisition(at, weights[0], weights[1:])
    assert isinstance(f, EnsembleImprovement)
    best = max(slow_moments(at, list(weights), x)[0] for x in at.X)
    points = np.random.default_rng(seed).random((20, 2))
    computed, with_gradient = f(points), f.value_and_gradient(points)[0]
    for i, x in enumerate(points):
        mu, var = slow_moments(at, list(weights), x)
        s = np.sqrt(var)
        z = (mu - best) / s
        ei = s * (norm.pdf(z) + z * norm.cdf(z))
        np.testing.assert_allclose(np.exp(computed[i]), ei, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(with_gradient[i], computed[i], rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("own", [0.0, 0.6])
def test_the_gradient_of_the_acquisition(seed: int, own: float) -> None:
    at = problem(seed)
    f = RGPE().acquisition(at, own, np.array([0.0, 0.1, 0.2, 0.1]))
    X = np.random.default_rng(seed).random((25, 2))
    np.testing.assert_allclose(f.value_and_gradient(X)[1], slopes(f, X), rtol=1e-5, atol=1e-5)
    single = X.astype(np.float32)
    np.testing.assert_allclose(f(single), f(X), rtol=1e-3, atol=1e-3)
    rough, exact = f.value_and_gradient(single)[1], f.value_and_gradient(X)[1]
    np.testing.assert_allclose(rough, exact, rtol=5e-3, atol=5e-2)


def test_a_reversed_peer_gets_under_a_hundredth_of_the_weight() -> None:
    features = Features(2, 60, length_scales=0.4, seed=1)
    for seed in range(5):
        base = np.random.default_rng(seed).standard_normal(60)
        f, reversed_f = features.function(base), features.function(-base)
        held = BeliefInbox(60, entropy=seed)
        X = np.random.default_rng(seed).random((30, 2))
        held.hold(as_held(message(features, X, f(X), "twin-a")))
        held.hold(as_held(message(features, X, f(X), "twin-b")))
        held.hold(as_held(message(features, X, reversed_f(X), "reversed")))
        own, (a, b, worst) = RGPE().shares(target(features, held, f, 15, seed=seed))
        assert worst < 0.01 and own + a + b > 0.99
        assert abs(a - b) < 0.3  # twins differ by the luck of their draws only


def test_the_guard_drops_many_poor_peers_that_win_by_chance() -> None:
    rng = np.random.default_rng(0)
    own = rng.integers(8, 12, 100)
    lucky = rng.integers(0, 40, (200, 100))
    assert ranking_shares(own, lucky, None)[0] == 0.0
    assert ranking_shares(own, lucky, 95.0) == (1.0, pytest.approx(np.zeros(200)))


def test_without_peers_it_is_expected_improvement() -> None:
    at = problem(1, N=0)
    assert RGPE().shares(at)[0] == 1.0
    f = RGPE().acquisition(at, 1.0, np.zeros(0))
    assert isinstance(f, ExpectedImprovement)
    best = at.belief.predict(at.X)[0].max()
    X = np.random.default_rng(0).random((10, 2))
    expected = ExpectedImprovement(at.belief.marginal(), best)(X)
    np.testing.assert_array_equal(f(X), expected)


@pytest.mark.parametrize("samples", [0, 1001])
def test_samples_have_a_limit(samples: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 1,000"):
        RGPE(samples=samples)
