"""TAF against loops that are slow and obvious."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.inboxes import covariance
from policy.ensembles import inbox, problem, slopes, target
from scipy.stats import norm

from fedbo.model.features import Features
from fedbo.model.gp import GP
from fedbo.policy import TAF, Target
from fedbo.policy.improvement import ExpectedImprovement
from fedbo.policy.taf import TransferImprovement

SEEDS = range(12)


def slow_weights(at: Target, rho: float) -> list[float]:
    """Epanechnikov's kernel of the part of discordant pairs, pair by pair."""
    weights = []
    for n in range(len(at.beliefs)):
        nu = at.beliefs.nu[n].astype(np.float64)
        f = [float(at.phi(x[None])[0] @ nu) for x in at.X]
        pairs = [(j, k) for j in range(len(at.y)) for k in range(j)]
        wrong = sum((f[j] < f[k]) != (at.y[j] < at.y[k]) for j, k in pairs)
        u = wrong / len(pairs) / rho
        weights.append(0.75 * (1 - u * u) if u < 1 else 0.0)
    return weights


def expected_improvement(mu: float, var: float, best: float) -> float:
    s = np.sqrt(var)
    z = (mu - best) / s
    return float(s * (norm.pdf(z) + z * norm.cdf(z)))


def slow_acquisition(at: Target, own_weight: float, weights: list[float], x: np.ndarray) -> float:
    gp = at.belief.marginal()
    assert isinstance(gp, GP)
    A = gp.covariance(gp.X, gp.X) + gp.hyper.noise_variance * np.eye(len(gp))
    k = gp.covariance(gp.X, x[None])[:, 0]
    mu = k @ np.linalg.solve(A, at.y)
    var = gp.hyper.signal_variance - k @ np.linalg.solve(A, k)
    total = own_weight * expected_improvement(mu, var, at.y.max())
    phi = at.phi(x[None])[0]
    for n, w in enumerate(weights):
        mu = phi @ at.beliefs.nu[n].astype(np.float64)
        var = phi @ covariance(at.beliefs, n) @ phi
        total += w * expected_improvement(mu, var, at.beliefs.incumbents[n])
    return total / (own_weight + sum(weights))


@pytest.mark.parametrize("rho", [0.5, 0.9])
@pytest.mark.parametrize("seed", SEEDS)
def test_weights_agree_with_loops(seed: int, rho: float) -> None:
    at = problem(seed, N=6, n=5 + seed)
    np.testing.assert_allclose(TAF(rho=rho).shares(at), slow_weights(at, rho), atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_acquisition_agrees_with_loops(seed: int) -> None:
    at = problem(seed, N=5)
    weights = 0.1 + np.random.default_rng(seed).random(5)
    weights[seed % 5] = 0.0
    f = TAF(own_share=0.6).acquisition(at, weights)
    assert isinstance(f, TransferImprovement)
    points = np.random.default_rng(seed).random((20, 2))
    slow = [slow_acquisition(at, 0.6, weights.tolist(), x) for x in points]
    np.testing.assert_allclose(np.exp(f(points)), slow, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(f.value_and_gradient(points)[0], f(points), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_of_the_acquisition(seed: int) -> None:
    at = problem(seed, N=5)
    f = TAF().acquisition(at, np.array([0.5, 0.0, 0.1, 0.75, 0.3]))
    X = np.random.default_rng(seed).random((25, 2))
    values, gradients = f.value_and_gradient(X)
    np.testing.assert_allclose(gradients, slopes(f, X), rtol=1e-5, atol=1e-5)
    single = X.astype(np.float32)
    np.testing.assert_allclose(f(single), values, rtol=1e-3, atol=1e-3)
    rough = f.value_and_gradient(single)
    np.testing.assert_allclose(rough[0], values, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(rough[1], gradients, rtol=5e-3, atol=5e-2)


def test_far_from_all_that_is_known_to_be_good_there_is_still_a_slope() -> None:
    at = problem(0)
    at.beliefs._columns["incumbents"] += 60.0  # plain expected improvement would be 0 all over
    at.y = at.y.copy()
    at.y[at.y.argmax()] += 400.0
    f = TAF().acquisition(at, np.full(4, 0.5))
    values, gradients = f.value_and_gradient(np.random.default_rng(0).random((10, 2)))
    assert (np.isfinite(values)).all() and (np.abs(gradients).max(axis=1) > 0).all()


def test_a_reversed_peer_is_not_listened_to() -> None:
    features = Features(2, 40, length_scales=0.4, seed=1)
    base = np.random.default_rng(0).standard_normal(40)
    held = inbox(features, [features.function(base), features.function(-base)], t_n=30)
    alike, reversed_ = TAF().shares(target(features, held, features.function(base), 15))
    assert alike > 0.6 and reversed_ == 0.0


def test_without_peers_it_is_expected_improvement_over_the_best_score() -> None:
    at = problem(1, N=0)
    f = TAF().acquisition(at, TAF().shares(at))
    assert isinstance(f, ExpectedImprovement) and f.best == at.y.max()
