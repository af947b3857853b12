"""TAF against loops that are slow and obvious."""

from __future__ import annotations

import numpy as np
import pytest
from policy.ensembles import inbox, problem, slopes, target
from scipy.stats import norm

from fedbo import Agent, Federation, Float
from fedbo.message import Message
from fedbo.model.features import Features
from fedbo.model.gp import GP
from fedbo.policy import RGPE, TAF, Policy, Target, TipsThenPool
from fedbo.policy.improvement import ExpectedImprovement
from fedbo.policy.taf import Peers, TransferImprovement

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
        var = phi @ at.beliefs.covariance(n) @ phi
        total += w * expected_improvement(mu, var, at.beliefs.incumbents[n])
    return total / (own_weight + sum(weights))


@pytest.mark.parametrize("policy", [TAF(), RGPE(), RGPE(dilution=None), TipsThenPool()])
@pytest.mark.parametrize("covariance", [1.0, 2.0])
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_beliefs_that_know_no_more_than_the_prior(
    policy: Policy, covariance: float, mean: float
) -> None:
    federation = Federation({"x": Float(0, 1)}, features=30, kind="belief")
    agent = Agent(federation, policy, name="a", seed=0)
    agent.receive(
        Message.of_belief(
            np.full(30, mean),
            covariance * np.eye(30),
            incumbent=1.0,
            fingerprint=federation.fingerprint,
            sender="b",
            sequence=1,
            t_n=10,
        )
    )
    for _ in range(6):
        agent.tell(agent.ask(), 0.0)  # no pair is ordered wrongly, so the peer counts
    assert all(0.0 <= trial.params["x"] <= 1.0 for trial in agent.trials)


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


def test_many_peers_and_points_are_handled_in_blocks() -> None:
    features = Features(2, 20, length_scales=0.4, seed=0)
    rng = np.random.default_rng(0)
    held = inbox(features, [features.function(o) for o in rng.standard_normal((60, 20))], t_n=15)
    peers = Peers(features, held.nu, held.R)
    X = rng.random((1300, 2))
    mu, var = peers.moments(features(X))
    for n in (0, 31, 59):
        Phi = features(X)
        np.testing.assert_allclose(mu[:, n], Phi @ held.nu[n].astype(np.float64), atol=1e-12)
        dense = np.einsum("im,mk,ik->i", Phi, held.covariance(n), Phi)
        np.testing.assert_allclose(var[:, n], dense, atol=1e-12)
    f = TAF().acquisition(target(features, held, features.function(np.ones(20)), 6), np.ones(60))
    np.testing.assert_allclose(f(X)[700:705], f(X[700:705]), rtol=1e-10)


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


def test_a_peer_that_ranks_nothing_is_not_listened_to() -> None:
    features = Features(2, 10, seed=0)
    flat = [lambda X: np.zeros(len(X))]
    at = target(features, inbox(features, flat, t_n=5), features.function(np.ones(10)), 8)
    assert TAF().shares(at).tolist() == [0.0]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_or_no_observations(n: int) -> None:
    features = Features(2, 20, seed=0)
    held = inbox(features, [features.function(np.ones(20))] * 2, t_n=8)
    at = target(features, held, features.function(np.ones(20)), n)
    weights = TAF().shares(at)
    if n < 2:
        assert weights.tolist() == [0.75, 0.75]  # nothing speaks against anybody
    x = TAF().query(at).x
    assert x.shape == (2,) and (x >= 0).all() and (x <= 1).all()


def test_without_peers_it_is_expected_improvement_over_the_best_score() -> None:
    at = problem(1, N=0)
    f = TAF().acquisition(at, TAF().shares(at))
    assert isinstance(f, ExpectedImprovement) and f.best == at.y.max()


def test_beyond_the_exact_limit() -> None:
    features = Features(2, 30, length_scales=0.4, seed=0)
    base = np.random.default_rng(0).standard_normal(30)
    held = inbox(features, [features.function(base), features.function(-base)], t_n=20)
    at = target(features, held, features.function(base), 60, exact_limit=10)
    f = TAF().acquisition(at, TAF().shares(at))
    X = np.random.default_rng(1).random((10, 2))
    np.testing.assert_allclose(f.value_and_gradient(X)[1], slopes(f, X), rtol=1e-5, atol=1e-5)
    assert TAF().query(at).x.shape == (2,)


def test_the_query_is_where_the_acquisition_is_largest() -> None:
    at = problem(5)
    f = TAF().acquisition(at, TAF().shares(at))
    side = np.linspace(0, 1, 201)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    assert f(TAF().query(at).x[None])[0] >= f(grid).max() - 1e-3


@pytest.mark.parametrize("settings", [{"rho": 0.0}, {"own_share": -1.0}, {"rho": np.inf}])
def test_settings_are_checked(settings: dict) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))} is .*, expected a finite number"):
        TAF(**settings)
