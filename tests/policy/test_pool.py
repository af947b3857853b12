"""The GP with a prior learnt from peers: against plain linear algebra, SciPy and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from contracts.inboxes import covariance, hold_all
from policy.ensembles import peers_of
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process.kernels import RBF, Matern

from fedbo import Agent, Federation
from fedbo.federation.shared import Shared
from fedbo.message import Message
from fedbo.message.inbox import BeliefInbox, Inbox
from fedbo.model.fit import Fit
from fedbo.model.surrogate import Standardised, Surrogate, SurrogateSettings
from fedbo.policy import Target
from fedbo.policy import pool as module
from fedbo.policy.pool import Pool, prior
from fedbo.space import Float, Space

Messages = Callable[[np.random.Generator, np.ndarray], np.ndarray]

M = 30
T_N = 20  # trials of each peer


def held(omegas: np.ndarray) -> Inbox:
    """An inbox with these weights (N, M), of peer-0, peer-1, …"""
    inbox = Inbox(omegas.shape[1])
    hold_all(inbox, omegas, t_n=T_N)
    return inbox


def cube(D: int) -> Space:
    return Space({f"x{i}": Float(0, 1) for i in range(D)})


def problem(
    seed: int = 0,
    *,
    N: int = 6,
    n: int = 5,
    D: int = 2,
    waiting: int = 2,
    error: float = 0.0,
    kernel: str = "matern52",
    peers: Messages | None = None,
    space: Space | None = None,
    **options: Any,
) -> Target:
    """A target with n scores, a few open points, and N peers of which half are like it.

    ``error`` is the standard deviation of noise in the scores.
    """
    rng = np.random.default_rng([seed, 5])
    space = cube(D) if space is None else space
    federation = Federation(space, features=M, length_scale=0.4, seed=seed, kind="weights")
    base = rng.standard_normal(M)
    omegas = np.where(np.arange(N)[:, None] % 2, base, 0.0) + rng.standard_normal((N, M))
    X, waits = (space.sample(rng, size) for size in (n, waiting))
    scores = Shared.of(federation).phi.function(base)(X) + error * rng.standard_normal(n)
    return Target(
        t=n,
        space=space,
        X=X,
        y=Standardised(scores).z,
        open_points=waits,
        surrogate=Surrogate(SurrogateSettings(fit=Fit(kernel=kernel)), D),
        inbox=held(omegas if peers is None else peers(rng, base)),
        federation=federation,
        rng=np.random.default_rng([seed, 6]),
        **options,
    )


def pool_of(target: Target) -> Pool:
    return Pool(target, peers_of(target))


def said_by_weights(target: Target) -> tuple[np.ndarray, list[np.ndarray]]:
    """The mean and the covariance of each peer's coordinates, by a loop over the directions."""
    basis, noise = Shared.of(target.federation).basis, target.federation.noise_variance
    means, covariances = [], []
    for omega in target.inbox.omega.astype(np.float64):
        s = np.array([T_N * lam / (T_N * lam + noise) for lam in basis.lam])
        mean = s * (basis.vectors.T @ omega)
        size, height = np.sqrt(basis.lam @ mean**2), basis.height(mean[None])[0]
        means.append(mean / max(1.0, size / 2.0, height / 2.0))
        covariances.append(np.diag(1.0 - s**2))
    return np.array(means), covariances


def spread_of_peers(
    w: np.ndarray, means: np.ndarray, covariances: list[np.ndarray], nu: np.ndarray
) -> np.ndarray:
    """How much peers differ: one step of expectation maximisation, by a loop over the peers.

    Of 1 / Σ w_n² peers and one more with the spread I.
    """
    k = len(nu)
    total = np.zeros((k, k))
    for w_n, mean, C in zip(w, means, covariances, strict=True):
        z = nu + mean - (np.eye(k) - C) @ nu  # of N(ν, I), given the message
        total += w_n * (np.outer(z - nu, z - nu) + C)
    heard = 1.0 / sum(w_n**2 for w_n in w)
    return (heard * total + np.eye(k)) / (heard + 1.0)


class Prior:
    """What a model says before any score, from the definition: mean and covariance."""

    def __init__(self, target: Target, listens: bool = True) -> None:
        self.listens, self.basis = listens, Shared.of(target.federation).basis
        hyper = target.belief.hyper
        self.noise, self.signal = hyper.noise_variance, hyper.signal_variance
        scales = np.array(hyper.length_scales)
        self.kernel = RBF(scales) if hyper.kernel == "se" else Matern(scales, nu=2.5)
        means, covariances = said_by_weights(target)
        w = peers_of(target).shares(target.X, target.y)
        k, K = len(self.basis), len(means)
        P, h = np.eye(k), np.zeros(k)
        for w_n, mean, C in zip(w, means, covariances, strict=True):
            P += K * w_n * (np.eye(k) - C)
            h += K * w_n * mean
        self.nu = np.linalg.solve(P, h)
        T = spread_of_peers(w, means, covariances, self.nu)
        self.S = np.linalg.inv(P) + T + 0.25 * np.outer(self.nu, self.nu)

    def mean(self, X: np.ndarray) -> np.ndarray:
        return self.listens * self.basis.coordinates(X) @ self.nu

    def covariance(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        own = self.signal * self.kernel(X, Z) + 4.0
        if not self.listens:
            return own
        psi = self.basis.coordinates
        return psi(X) @ self.S @ psi(Z).T + 0.3 * (own - 4.0) + 4.0

    def posterior(
        self, X: np.ndarray, y: np.ndarray, Z: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance at the rows of Z, given scores y at those of X, by solving."""
        variance = np.diag(self.covariance(Z, Z))
        if not len(X):
            return self.mean(Z), variance
        K = self.covariance(X, X) + self.noise * np.eye(len(X))
        k = self.covariance(X, Z)
        solved = np.linalg.solve(K, np.column_stack([y - self.mean(X), k]))
        return self.mean(Z) + k.T @ solved[:, 0], variance - (k * solved[:, 1:]).sum(axis=0)

    def log_evidence(self, X: np.ndarray, y: np.ndarray) -> float:
        if not len(y):
            return 0.0
        K = self.covariance(X, X) + self.noise * np.eye(len(X))
        return float(multivariate_normal(self.mean(X), K).logpdf(y))


class Expected(NamedTuple):
    """What a model should say at points, and of the best trial."""

    mu: np.ndarray
    var: np.ndarray
    best: float


def expected(target: Target, Z: np.ndarray) -> Expected:
    """Open points are told what the model expects there, as if it had been observed."""
    prior, X, y, waits = Prior(target), target.X, target.y, target.open_points
    if len(waits):
        y = np.concatenate([y, prior.posterior(X, y, waits)[0]])
        X = np.concatenate([X, waits])
    best = float(prior.posterior(X, y, X)[0].max()) if len(X) else 0.0
    return Expected(*prior.posterior(X, y, Z), best)


def trust(target: Target) -> float:
    """The probability of the pool against the own GP, by Bayes' rule."""
    alone, pool = (Prior(target, x).log_evidence(target.X, target.y) for x in (False, True))
    return float(1.0 / (1.0 + 0.5 * np.exp(alone - pool)))


def improvement(target: Target, Z: np.ndarray) -> np.ndarray:
    """Expected improvement (n,) by the textbook's formula."""
    mu, var, best = expected(target, Z)
    s = np.sqrt(np.maximum(var, 1e-10))
    z = (mu - best) / s
    return np.asarray(s * (norm.pdf(z) + z * norm.cdf(z)))


SIZES = [(0, 0), (0, 2), (1, 0), (2, 1), (9, 0), (9, 3)]


# The belief


@pytest.mark.parametrize("n, waiting", SIZES)
@pytest.mark.parametrize("D, kernel", [(1, "matern52"), (3, "se")])
def test_it_is_a_gp(D: int, kernel: str, n: int, waiting: int) -> None:
    """Its posterior is that of explicit covariance matrices."""
    for seed in range(2):
        target = problem(seed, n=n, D=D, waiting=waiting, kernel=kernel)
        Z = np.random.default_rng(seed).random((20, D))
        pool, (mu, var, best) = pool_of(target), expected(target, Z)
        predicted = pool.predict(Z)
        np.testing.assert_allclose(predicted[0], mu, atol=1e-6)  # peers are held in float32
        np.testing.assert_allclose(predicted[1], var, atol=1e-6)
        assert pool.best == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("n, waiting", SIZES)
def test_how_far_peers_are_trusted(n: int, waiting: int) -> None:
    """By Bayes' rule: two thirds before the scores."""
    for seed in range(4):
        target = problem(seed, n=n, waiting=waiting)
        assert pool_of(target).trust == pytest.approx(trust(target), abs=1e-7)
        if n == 0:
            assert pool_of(target).trust == pytest.approx(2 / 3)


# Expected improvement


@pytest.mark.parametrize("n, waiting", SIZES)
@pytest.mark.parametrize("D, kernel", [(1, "se"), (2, "matern52"), (5, "matern52")])
def test_it_is_the_log_of_the_expected_improvement(
    D: int, kernel: str, n: int, waiting: int
) -> None:
    for seed in range(2):
        target = problem(seed, n=n, D=D, waiting=waiting, kernel=kernel, error=0.3)
        X = np.random.default_rng(seed).random((60, D))
        pool, plain = pool_of(target), improvement(target, X)
        near = plain > 1e-8  # the textbook's formula has no digits beyond
        assert near.sum() > 10
        np.testing.assert_allclose(np.exp(pool(X[near])), plain[near], rtol=1e-4)
        np.testing.assert_allclose(pool.value_and_gradient(X)[0], pool(X), rtol=1e-6, atol=1e-6)
        assert np.isfinite(pool(X)).all()


@pytest.mark.parametrize("n, waiting", [(0, 2), (1, 0), (6, 0), (6, 3), (25, 2)])
@pytest.mark.parametrize("D", [1, 2, 5])
def test_its_gradient(D: int, n: int, waiting: int) -> None:
    """Against central differences, to a thousandth of its length, down to EI = exp(−100)."""
    step = 1e-6
    for seed, kernel in enumerate(("se", "matern52")):
        target = problem(seed, n=n, D=D, waiting=waiting, kernel=kernel, error=0.3)
        pool = pool_of(target)
        X = 0.01 + 0.98 * np.random.default_rng(seed).random((80, D))
        X = X[pool(X) > -100.0]
        assert len(X) > 30
        slopes = [(pool(X + e) - pool(X - e)) / (2 * step) for e in np.eye(D) * step]
        error = np.abs(pool.value_and_gradient(X)[1] - np.stack(slopes, axis=1)).max(axis=1)
        assert (error < 1e-3 * (1.0 + np.abs(slopes).max(axis=0))).all()


# Open points


def test_open_points_change_no_mean_and_no_evidence() -> None:
    """They come out as expected: it learns nothing but that it will know there."""
    for seed in range(3):
        target, without = problem(seed, n=6, waiting=3), problem(seed, n=6, waiting=0)
        Z = np.random.default_rng(seed).random((40, 2))
        pool, other = pool_of(target), pool_of(without)
        assert pool.trust == pytest.approx(other.trust, abs=1e-9)
        np.testing.assert_array_equal(pool.shares, other.shares)
        (mu, var), (mu_before, var_before) = pool.predict(Z), other.predict(Z)
        np.testing.assert_allclose(mu, mu_before, atol=1e-7)
        assert (var <= var_before + 1e-9).all()
        assert pool.best >= other.best - 1e-9
        assert (pool.predict(target.open_points)[1] <= Prior(target).noise + 1e-9).all()


# Messages


def beliefs(federation: Federation, seed: int, trials: int, peers: int) -> list[Message]:
    """The messages of peers that told random scores."""
    rng, sent = np.random.default_rng([seed, 9]), []
    for n in range(peers):
        agent = Agent(federation, name=f"peer-{n}", seed=n)
        for x in rng.random((trials, federation.space.dimensions)):
            agent.tell(federation.space.decode(x), float(rng.standard_normal()))
        sent.append(agent.message())
    return sent


def received(kind: Any, trials: int, peers: int = 3, seed: int = 0) -> tuple[Agent, Target]:
    """An agent that holds such messages, as its policy sees it."""
    federation = Federation(cube(2), features=M, length_scale=0.4, seed=seed, kind=kind)
    agent = Agent(federation, name="me", seed=0)
    agent.receive(beliefs(federation, seed, trials, peers))
    for x in np.random.default_rng([seed, 10]).random((4, 2)):
        agent.tell(federation.space.decode(x), float(x.sum()))
    return agent, agent._target(None, np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["belief", "compact"])
@pytest.mark.parametrize("trials", [1, 4, 15])
def test_the_prior_is_the_posterior_of_the_hierarchical_model(trials: int, kind: str) -> None:
    """Against the joint normal of the common mean, all peers and the target, conditioned.

    Its covariance has the spread of the peers in place of I.
    """
    _, target = received(kind, trials)
    basis, inbox = Shared.of(target.federation).basis, target.inbox
    assert isinstance(inbox, BeliefInbox)
    k, K = len(basis), len(inbox)
    B = basis.vectors if kind == "belief" else np.eye(k)
    peers = peers_of(target)
    nu, S = prior(peers.m, peers.R, np.full(K, 1 / K))
    # z_n = μ + e_n and z = μ + e, all e ~ N(0, I); peer n measures z_n with precision C⁻¹ − I
    joint = np.kron(np.ones((K + 1, K + 1)) + np.eye(K + 1), np.eye(k))
    precision, info = np.zeros_like(joint), np.zeros(len(joint))
    spread = np.eye(k)
    for n in range(K):
        C = B.T @ covariance(inbox, n) @ B
        C = C * (1 - 1e-9)  # so that it has an inverse where nothing is left to know
        at = slice(n * k, (n + 1) * k)
        precision[at, at] = np.linalg.inv(C) - np.eye(k)
        info[at] = np.linalg.solve(C, B.T @ inbox.nu[n].astype(float))
        # the same measurement of z_n ~ N(ν, I)
        left = np.linalg.inv(np.eye(k) + precision[at, at])
        off = left @ (nu + info[at]) - nu
        spread += np.outer(off, off) + left
    posterior = np.linalg.inv(np.linalg.inv(joint) + precision)
    np.testing.assert_allclose(nu, (posterior @ info)[-k:], atol=1e-4)
    expected = posterior[-k:, -k:] - np.eye(k) + spread / (K + 1) + 0.25 * np.outer(nu, nu)
    np.testing.assert_allclose(S, expected, atol=1e-4)


# Whose query it is


def like(rng: np.random.Generator, base: np.ndarray) -> np.ndarray:
    """Peers that are like the target, but for a tenth."""
    return base + 0.1 * rng.standard_normal((10, M))


def trusts(peers: Messages, n: int) -> np.ndarray:
    """Q after n scores, for 20 targets."""
    return np.array(
        [pool_of(problem(seed, n=n, waiting=0, peers=peers)).trust for seed in range(20)]
    )


@pytest.mark.slow
def test_peers_that_are_like_the_target_gain_trust() -> None:
    """Two thirds at first, most of it after 8 scores; after 12 none of 20 targets is left out."""
    np.testing.assert_allclose(trusts(like, 0), 2 / 3)
    means = [trusts(like, n).mean() for n in (2, 4, 8)]
    assert means == sorted(means)
    assert means[2] > 0.85
    assert trusts(like, 12).min() > 0.5


@pytest.mark.parametrize("n", [0, 1, 6])
def test_praise_is_how_much_better_each_peer_says_it_is(n: int) -> None:
    """By a loop over peers; before any score, how much better than 0."""
    target = problem(5, N=8, n=n)
    pool, psi = pool_of(target), Shared.of(target.federation).basis.coordinates
    means, _ = said_by_weights(target)
    best = target.X[int(np.argmax(target.y))] if n else None
    for x in np.random.default_rng(0).random((10, 2)):
        praise = []
        for mean, weight in zip(means, pool.shares, strict=True):
            than = 0.0 if best is None else psi(best[None])[0] @ mean
            praise.append(weight * max(0.0, psi(x[None])[0] @ mean - than))
        np.testing.assert_allclose(pool.praise(x), praise, atol=1e-9)
    if best is not None:
        np.testing.assert_allclose(pool.praise(best), 0.0, atol=1e-12)


# Little, and much, to go by


def test_the_same_point_many_times() -> None:
    """Trials and open ones at one place: covariances that are all but singular."""
    target = problem(0, n=12, error=1.0)
    target.X = np.full((12, 2), 0.4)
    target.open_points = np.full((3, 2), 0.4)
    X = np.random.default_rng(0).random((50, 2))
    pool = pool_of(target)
    assert np.isfinite(pool(X)).all()
    assert np.isfinite(pool.value_and_gradient(np.append(X, target.X[:1], axis=0))[1]).all()


# Messages that are made to mislead


def test_many_failed_trials_do_not_make_a_query_slow() -> None:
    """Only the latest are in the way."""
    target = problem(0, n=6, waiting=300)
    assert len(pool_of(target)._alpha) == 6 + module._OPEN
