"""Compact messages: rounding against its moments, beliefs against a conditioned normal."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.inboxes import covariance as held_covariance
from model.moments import LIMIT, known_of

from fedbo import Agent, Categorical, Federation, Float, Int
from fedbo.federation.shared import Shared
from fedbo.message.compact import Compact
from fedbo.message.inbox import BeliefInbox
from fedbo.model.linear import Regression
from fedbo.model.summary import belief, quantise, saturated, summarise

RHO = 0.5
SPACES = {
    "plane": {"a": Float(0, 1), "b": Float(1e-3, 1, log=True)},
    "mixed": {"rate": Float(0, 1), "layers": Int(1, 5), "kind": Categorical(["p", "q", "r"])},
}


def teller(federation: Federation, t: int, seed: int = 0) -> Agent:
    """An agent that was told t scores of a smooth function."""
    agent, rng = Agent(federation, name="a", seed=seed), np.random.default_rng([t, seed])
    for x in federation.space.sample(rng, t):
        agent.tell(federation.space.decode(x), float(np.sin(5.0 * x).sum()))
    return agent


# Rounding


def test_rounding_is_unbiased_and_has_the_variance_of_a_coin() -> None:
    """40,000 roundings of ten numbers; means and variances to 4.5 standard errors."""
    m, n = np.linspace(-1.0, 0.97, 10), 40_000
    levels, scales = quantise(np.tile(m, (n, 1)), np.random.default_rng(4))
    x = levels * scales[:, None].astype(np.float64)
    step = 1.0 / 7
    fraction = m / step - np.floor(m / step + 1e-9)
    fraction = fraction.clip(0.0, 1.0)
    variance = fraction * (1.0 - fraction) * step**2
    error = np.abs(x.mean(axis=0) - m)
    assert (error <= LIMIT * np.sqrt(variance / n) + 1e-6 * step).all()
    spread = np.sqrt(np.maximum(variance * (step**2 - 4 * variance), 0.0) / n)
    assert (np.abs(((x - m) ** 2).mean(axis=0) - variance) <= LIMIT * spread + 1e-6 * step).all()
    assert (np.abs(x - m) < step * (1.0 + 1e-6)).all()
    biased = np.rint(m / step) * step  # the nearest level, always
    assert np.abs(biased - m).max() > LIMIT * (np.sqrt(variance / n)).max()


def test_the_largest_number_becomes_the_largest_level_exactly() -> None:
    rng = np.random.default_rng(0)
    m = rng.standard_normal((2000, 7)) * 10.0 ** rng.uniform(-30, 30, (2000, 1))
    levels, scales = quantise(m, rng)
    assert (np.abs(levels).max(axis=1) == 7).all()
    rows = np.arange(len(m))
    top = np.abs(m).argmax(axis=1)
    np.testing.assert_array_equal(levels[rows, top], 7 * np.sign(m[rows, top]))
    np.testing.assert_allclose(scales * 7, np.abs(m).max(axis=1), rtol=2e-7)


# What a receiver makes of it


def covariance(federation: Federation, counts: np.ndarray, step: float) -> np.ndarray:
    """C of a message with these counts and this scale."""
    levels = np.ones(len(Shared.of(federation).basis), np.int8)
    _, R = belief(levels, step, Shared.of(federation).factor_of(counts))
    return np.eye(len(levels)) - R.T @ R


@pytest.mark.parametrize("step", [1e-3, 0.1, 1.0])
def test_it_is_the_best_guess_given_the_rounded_mean(step: float) -> None:
    """Along each eigenvector of G, written out as variances of independent normals."""
    federation, rng = Federation(SPACES["plane"]), np.random.default_rng(0)
    counts = Shared.of(federation).counts(federation.space.sample(rng, 12))
    g, Q = np.linalg.eigh(known_of(federation, counts))
    g = g.clip(0.0, 1.0)
    levels = rng.integers(-7, 8, len(g)).astype(np.int8)
    m, R = belief(levels, step, Shared.of(federation).factor_of(counts))
    # the mean of z has the variance g, v adds ρ² (1 − g), the summary's m is slope × v
    slope = g / (g + RHO**2 * (1.0 - g))
    var_m, covariance_z_m, q = slope**2 * (g + RHO**2 * (1.0 - g)), slope * g, step**2 / 6.0
    gain = covariance_z_m / (var_m + q)
    np.testing.assert_allclose(m, Q @ (gain * (Q.T @ levels * step)), atol=1e-6 * 7 * step)
    np.testing.assert_allclose(R.T @ R, (Q * (gain * covariance_z_m)) @ Q.T, atol=1e-6)


def test_its_priorhas_orthogonal_rows_and_no_more_than_the_prior() -> None:
    federation, rng = Federation(SPACES["plane"]), np.random.default_rng(3)
    counts = rng.poisson(1.0, (20, len(Shared.of(federation).cells))) * rng.integers(
        0, 300, (20, 1)
    )
    counts[0] = 0  # no trials at all
    levels, scales = quantise(rng.standard_normal((20, len(Shared.of(federation).basis))), rng)
    for n, row in enumerate(saturated(counts)):
        _, R = belief(levels[n], float(scales[n]), Shared.of(federation).factor_of(row))
        lam = np.einsum("ri,ri->r", R, R)
        np.testing.assert_allclose(R @ R.T, np.diag(lam), atol=1e-7)
        assert len(R) == np.count_nonzero(row) and (lam < 1.0 + 1e-9).all()


# Messages of agents


def test_what_an_agent_holds_of_a_compact_message() -> None:
    federation = Federation(SPACES["mixed"])
    message = teller(federation, 15).message()
    assert message.kind == federation.kind == "compact"
    agent = Agent(federation, name="b", seed=0)
    agent.receive(message)
    body = message.body
    assert isinstance(body, Compact) and isinstance(agent.inbox, BeliefInbox)
    m, _ = belief(body.levels, body.step, Shared.of(federation).factor_of(body.counts))
    C = covariance(federation, body.counts, body.step)
    np.testing.assert_allclose(agent.inbox.nu[0], m, atol=1e-6)
    np.testing.assert_allclose(held_covariance(agent.inbox, 0), C, atol=2e-6)
    assert agent.account.received.nbytes == message.nbytes


@pytest.mark.parametrize("t", [3, 10, 40])
def test_it_claims_no_more_than_it_knows(t: int) -> None:
    """Errors in the units of C, squared: 1 on average or less, to 4.5 standard errors.

    400 agents, each with a function and points of its own all over the space.
    """
    federation, rng = Federation(SPACES["plane"]), np.random.default_rng(t)
    B, noise, errors = Shared.of(federation).basis.vectors, federation.noise_variance, []
    for _ in range(400):
        X, omega = federation.space.sample(rng, t), rng.standard_normal(len(B))
        regression = Regression(Shared.of(federation).phi, noise)
        regression.add(X)
        y = regression.Phi @ omega + np.sqrt(noise) * rng.standard_normal(t)
        G = known_of(federation, saturated(Shared.of(federation).counts(X)))
        posterior = regression.posterior(y)
        m, _ = summarise(posterior.nu, posterior.draw(rng), G, B)
        levels, scales = quantise(m[None], rng)
        V = Shared.of(federation).factor_of(saturated(Shared.of(federation).counts(X)))
        guess, R = belief(levels[0], float(scales[0]), V)
        error = B.T @ omega - guess
        errors.append(error @ np.linalg.solve(np.eye(len(error)) - R.T @ R, error) / len(error))
    assert np.mean(errors) < 1.0 + LIMIT * np.std(errors) / np.sqrt(400)
    assert np.mean(errors) > 0.7  # nor much less
