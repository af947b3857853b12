"""A summary of a belief, against simulation and a conditioned normal, and what it hides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model.moments import LIES, LIMIT, known_of, told_wrong, worst_z

from fedbo import Agent, Categorical, Federation, Float, Int, Space
from fedbo.agent import outbox
from fedbo.federation.shared import Shared
from fedbo.model.features import Features
from fedbo.model.linear import Posterior, Regression
from fedbo.model.summary import quantise, summarise
from fedbo.model.surrogate import Standardised

M = 8
NOISE = 0.1
RHO = 0.5


def directions(k: int, seed: int = 0) -> np.ndarray:
    """Orthonormal directions (M, k)."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((M, k)))[0]


def observed(t: int, seed: int = 0, noise: float = NOISE) -> Regression:
    """Trials at t random points of the square."""
    regression = Regression(Features(2, M, length_scales=0.2, seed=seed), noise)
    regression.add(np.random.default_rng([seed, 1]).random((t, 2)))
    return regression


def summary_of(
    belief: Posterior, G: np.ndarray, B: np.ndarray, seed: Any
) -> tuple[np.ndarray, np.ndarray]:
    """m and C of a belief, with the noise of this generator or seed."""
    return summarise(belief.nu, belief.draw(np.random.default_rng(seed)), G, B)


def knowledge(belief: Posterior, B: np.ndarray) -> np.ndarray:
    """G of trials whose points are known."""
    return np.eye(B.shape[1]) - B.T @ belief.covariance() @ B


# What a message says is true


def simulated(t: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The z of n agents, (n, k), the means of their summaries, and the covariance of all these.

    The weights are drawn from the prior; the trials, the same for all, are where they are said
    to be.
    """
    rng, regression, B = np.random.default_rng([t, k]), observed(t), directions(k)
    z, m = np.empty((n, k)), np.empty((n, k))
    for i in range(n):
        omega = rng.standard_normal(M)
        y = regression.Phi @ omega + np.sqrt(NOISE) * rng.standard_normal(t)
        belief = regression.posterior(y)
        m[i], C = summary_of(belief, knowledge(belief, B), B, rng)
        z[i] = B.T @ omega
    return z, m, C


@pytest.mark.parametrize("t, k", [(3, M), (20, M), (20, 3)])
def test_a_summary_is_as_wrong_as_it_says(t: int, k: int) -> None:
    """Its errors are N(0, C), to 5 %, and it is neither too bold nor too shy: slope 1.

    30,000 agents; a slope may be off by 4.5 of its standard errors, as the moments of the errors.
    """
    z, m, C = simulated(t, k, 30_000)
    assert worst_z(z - m, np.zeros(k), C) < LIMIT
    for lie in LIES:
        assert worst_z(z - m, *told_wrong(lie, np.zeros(k), C)) > LIMIT
    g, Q = np.linalg.eigh(np.eye(k) - C)
    learnt = g > 0.01
    assert learnt.sum() == min(t, k)
    for q in Q[:, learnt].T:
        guess, true = m @ q, z @ q
        slope = (guess @ true) / (guess @ guess)
        margin = LIMIT * np.sqrt(q @ C @ q / (guess @ guess))
        assert margin < 0.2
        assert abs(slope - 1.0) < margin


@pytest.mark.parametrize("k", [2, M])
@pytest.mark.parametrize("t", [0, 1, 5, 40])
def test_it_is_the_best_guess_given_the_noisy_mean(t: int, k: int) -> None:
    """The joint normal of z and v, written out with all scores and all noise, and conditioned."""
    for seed in range(5):
        regression, B = observed(t, seed), directions(k, seed)
        Phi = regression.Phi
        y = np.random.default_rng([seed, 2]).standard_normal(t)
        belief = regression.posterior(y)
        # ω, the noise of the scores and that of the draw are independent; v = A ω + E e + F d
        inverse = np.linalg.inv(Phi.T @ Phi + NOISE * np.eye(M))
        root = np.linalg.cholesky(NOISE * inverse)
        A, E, F = inverse @ Phi.T @ Phi, np.sqrt(NOISE) * inverse @ Phi.T, RHO * root
        var_v = B.T @ (A @ A.T + E @ E.T + F @ F.T) @ B
        gain = B.T @ A.T @ B @ np.linalg.inv(var_v)
        omega = belief.draw(np.random.default_rng(seed))
        v = B.T @ ((1.0 - RHO) * belief.nu + RHO * omega)
        m, C = summary_of(belief, knowledge(belief, B), B, seed)
        np.testing.assert_allclose(m, gain @ v, atol=1e-9)
        np.testing.assert_allclose(C, np.eye(k) - gain @ B.T @ A @ B, atol=1e-9)


# What it hides

SPACES: dict[str, Any] = {
    "line": {"x": Float(0, 1)},
    "plane": {"a": Float(0, 1), "b": Float(1e-3, 1, log=True)},
    "mixed": {"rate": Float(0, 1), "layers": Int(1, 5), "kind": Categorical(["p", "q", "r"])},
    "listed": Space({"a": Float(0, 1)}, points=[{"a": i / 99} for i in range(100)]),
}


def teller(federation: Federation, X: np.ndarray, y: np.ndarray, seed: int = 0) -> Agent:
    """An agent that was told these scores."""
    agent = Agent(federation, name="a", seed=seed)
    for x, score in zip(X, y, strict=True):
        agent.tell(federation.space.decode(x), float(score))
    return agent


def elsewhere(federation: Federation, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each point, another one of the same cell."""
    others = federation.space.sample(rng, 4000)
    cells = Shared.of(federation).nearest_cells(others)
    moved = []
    for x, cell in zip(X, Shared.of(federation).nearest_cells(X), strict=True):
        moved.append(rng.choice(others[(cells == cell) & (others != x).any(axis=1)]))
    return np.array(moved)


@pytest.mark.parametrize("name", SPACES)
def test_of_points_a_message_says_nothing_but_how_many_are_in_each_cell(name: str) -> None:
    """Other points of the same cells, other scores, another order, another seed of the noise."""
    federation, rng = Federation(SPACES[name]), np.random.default_rng(0)
    for t in (1, 6):
        X = federation.space.sample(rng, t)
        moved = elsewhere(federation, X, rng)
        first = teller(federation, X, rng.standard_normal(t)).message()
        second = teller(federation, moved, rng.standard_normal(t), seed=1).message()
        np.testing.assert_array_equal(first.body.counts, second.body.counts)
        assert not np.allclose(first.body.nu, second.body.nu, atol=1e-3)
        third = teller(federation, rng.permutation(moved), rng.standard_normal(t)).message()
        np.testing.assert_array_equal(first.body.counts, third.body.counts)
        other = Shared.of(federation).cells[
            (Shared.of(federation).nearest_cells(X[-1:]) + 1) % len(Shared.of(federation).cells)
        ]
        left = teller(federation, np.append(X[:-1], other, axis=0), np.zeros(t)).message()
        assert (first.body.counts != left.body.counts).any()


def cell_means(federation: Federation) -> np.ndarray:
    """The mean of φ over each cell, of the points that also make the basis."""
    points, shared = federation.space.cover(1024), Shared.of(federation)
    cells = np.array([((shared.cells - x) ** 2).sum(axis=1).argmin() for x in points])
    return np.array(
        [shared.phi(points[cells == cell]).mean(axis=0) for cell in range(len(shared.cells))]
    )


def test_its_covariance_is_that_of_trials_somewhere_in_their_cells() -> None:
    """1 − G² / (G + ρ² (1 − G)), for the G of noisier scores of φ̄ᵀω, by functions of matrices."""
    federation, rng = Federation(SPACES["plane"]), np.random.default_rng(1)
    X, B = federation.space.sample(rng, 15), Shared.of(federation).basis.vectors
    Phi = cell_means(federation)[Shared.of(federation).nearest_cells(X)]
    noise = federation.noise_variance + 1.0 - (Phi**2).sum(axis=1)
    prior = Regression(Shared.of(federation).phi, federation.noise_variance).posterior(np.zeros(0))
    _, ours = summary_of(prior, known_of(federation, Shared.of(federation).counts(X)), B, rng)
    identity = np.eye(B.shape[1])
    G = identity - B.T @ np.linalg.inv(np.eye(len(B)) + (Phi.T / noise) @ Phi) @ B
    theirs = identity - G @ np.linalg.solve(G + RHO**2 * (identity - G), G)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


# Its noise


@pytest.fixture
def means(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The means of messages as they are before they are rounded, the last one at the end."""
    values: list[np.ndarray] = []

    def spy(m: np.ndarray, rng: np.random.Generator) -> Any:
        values.append(m[0])
        return quantise(m, rng)

    monkeypatch.setattr(outbox, "quantise", spy)
    return values


def noise_of(agent: Agent, means: list[np.ndarray]) -> np.ndarray:
    """The noise in the mean of an agent's message, in directions that it knows much about."""
    federation = agent.federation
    agent.message()
    X = np.array([federation.space.encode(trial.params) for trial in agent.trials])
    regression = Regression(Shared.of(federation).phi, federation.noise_variance)
    regression.add(X)
    y = Standardised(np.array([float(trial.score or 0.0) for trial in agent.trials])).z
    B = Shared.of(federation).basis.vectors
    g, Q = np.linalg.eigh(known_of(federation, Shared.of(federation).counts(X)))
    g, Q = g[g > 0.5], Q[:, g > 0.5]
    v = (Q.T @ means[-1]) * (g + RHO**2 * (1.0 - g)) / g
    noise: np.ndarray = v - Q.T @ B.T @ regression.posterior(y).nu
    return noise / np.sqrt(1.0 - g)


def teller_of(federation: Federation, t: int, seed: int = 1) -> Agent:
    """An agent with t scores, in turn at the centres of eight cells."""
    X = Shared.of(federation).cells[np.arange(t) % 8]
    return teller(federation, X, np.sin(9.0 * X.sum(axis=1)), seed)


def test_every_score_has_other_noise(means: list[np.ndarray]) -> None:
    """Its size is ρ standard deviations, to 4.5 standard errors, and no two messages share it.

    No cell has more than two trials: more would be counted as four.
    """
    federation = Federation(SPACES["plane"])
    tellers = [teller_of(federation, t, seed) for seed in range(9) for t in range(8, 17)]
    noises = [noise_of(agent, means) for agent in tellers]
    k = min(map(len, noises))
    assert k > 4
    noise = np.array([row[-k:] for row in noises])
    gaps = np.abs(noise[:, None] - noise).max(axis=2)[~np.eye(len(noise), dtype=bool)]
    assert gaps.min() > 0.05
    assert abs((noise**2).mean() / RHO**2 - 1.0) < LIMIT * np.sqrt(2.0 / noise.size)


def test_a_summary_shares_no_noise_with_weights(means: list[np.ndarray]) -> None:
    """Whoever sees both could subtract it: two agents with one seed and the same scores."""
    kinds = [Federation(SPACES["plane"], kind=kind) for kind in ("compact", "weights")]
    summary, weights = (teller_of(federation, 10) for federation in kinds)
    B = Shared.of(kinds[0]).basis.vectors
    X = np.array([summary.federation.space.encode(trial.params) for trial in summary.trials])
    regression = Regression(Shared.of(kinds[0]).phi, kinds[0].noise_variance)
    regression.add(X)
    y = Standardised(np.array([float(trial.score or 0.0) for trial in summary.trials])).z
    belief = regression.posterior(y)
    g, Q = np.linalg.eigh(known_of(kinds[0], Shared.of(kinds[0]).counts(X)))
    g, Q = g[g > 0.5], Q[:, g > 0.5]
    theirs = Q.T @ B.T @ (weights.message().body.omega - belief.nu) / np.sqrt(1.0 - g)
    assert np.abs(noise_of(summary, means) - RHO * theirs).max() > 0.1
