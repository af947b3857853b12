"""The default policy after the tips: when it turns to the pool, what peers are worth and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from policy.ensembles import peers_of

import fedbo
from fedbo import EI, TS, Agent, Federation, Float, TipsThenPool
from fedbo.federation.shared import Shared
from fedbo.model.argmax import SampledFunction
from fedbo.model.gp import Draw
from fedbo.policy import Target
from fedbo.policy import pool as module
from fedbo.policy import target as target_module
from fedbo.policy.base import Gradual
from fedbo.policy.pool import Pool
from fedbo.policy.tips import IN_A_ROW

M = 30
LINE = {"x": Float(0, 1)}


def truth(x: float) -> float:
    """Two bumps on the line, the higher one at 0.7."""
    return float(np.exp(-(((x - 0.7) / 0.12) ** 2)) + 0.5 * np.exp(-(((x - 0.2) / 0.12) ** 2)))


def federation(**agreed: Any) -> Federation:
    return Federation(LINE, **{"features": M, "seed": 7, "length_scale": 0.15, **agreed})


def mail(
    where: Federation, factors: Sequence[float], noise: float = 0.05, name: str = "peer"
) -> list[fedbo.Message]:
    """Messages of peers that saw so many times the truth at 15 random points, and noise."""
    sent = []
    for i, factor in enumerate(factors):
        agent, rng = Agent(where, TS(), name=f"{name}-{i}", seed=i), np.random.default_rng([9, i])
        for x in rng.random(15):
            agent.tell({"x": float(x)}, factor * truth(x) + noise * rng.standard_normal())
        sent.append(agent.message())
    return sent


def run(agent: Agent, n: int) -> Agent:
    for _ in range(n):
        trial = agent.ask()
        agent.tell(trial, truth(trial.params["x"]))
    return agent


@pytest.fixture(scope="module")
def good() -> list[fedbo.Message]:
    return mail(federation(), [1.0] * 8)


@pytest.fixture(scope="module")
def hostile() -> list[fedbo.Message]:
    return mail(federation(), [-1.0] * 8)


@pytest.fixture(scope="module")
def noisy() -> list[fedbo.Message]:
    return mail(federation(), [0.0] * 8)


def agent_with(messages: Sequence[fedbo.Message], seed: int = 0, **options: Any) -> Agent:
    where = options.pop("where", federation())
    agent = Agent(where, options.pop("policy", TipsThenPool()), name="me", seed=seed, **options)
    assert agent.receive(messages) == len(messages)
    return agent


def target_of(messages: Sequence[fedbo.Message], n: int, seed: int = 0, **options: Any) -> Target:
    """What the policy of an agent with n scores is shown once there were enough tips."""
    agent = run(agent_with(messages, seed, policy=TS(), **options), n)
    target = agent._target(None, np.random.default_rng(seed))
    target.open_sources = ["tip"] * IN_A_ROW
    return target


def pool_of(target: Target) -> Pool:
    return Pool(target, peers_of(target))


ALWAYS = TipsThenPool(schedule=1e-12)  # the pool, in all queries


# Whether it is the pool's query


@pytest.fixture
def maximised(monkeypatch: pytest.MonkeyPatch) -> list[SampledFunction]:
    """What was to be maximised, in order; the answer is always another point."""
    functions: list[SampledFunction] = []

    def record(target: Target, function: SampledFunction, taken: object = None) -> np.ndarray:
        functions.append(function)
        return np.array([(0.123 + 0.618 * len(functions)) % 1.0])

    monkeypatch.setattr(Target, "argmax", record)
    return functions


@pytest.mark.parametrize("t", [1, 49, 129])
@pytest.mark.parametrize("kind", ["good", "hostile"])
@pytest.mark.slow
def test_the_share_of_own_draws_is_p_t(
    kind: str, t: int, maximised: list, request: pytest.FixtureRequest
) -> None:
    """Whatever the peers say: 400 queries, four standard deviations."""
    target = target_of(request.getfixturevalue(kind), 1)
    target.t, p = t, Gradual(32)(t)
    maximised.clear()
    for _ in range(400):
        TipsThenPool().query(target)
    pooled = sum(not isinstance(function, Draw) for function in maximised)
    assert abs(pooled - 400 * (1 - p)) < 4 * np.sqrt(400 * p * (1 - p))


def test_with_more_than_200_scores_peers_are_not_heard(
    good: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module._LAST == 200
    monkeypatch.setattr(module, "_LAST", 5)
    agent = run(agent_with(good, policy=ALWAYS), 10)
    assert agent.trials[5].source == "pool"  # with 5 scores
    assert [trial.origin for trial in agent.trials[6:]] == [fedbo.Origin()] * 4


def test_without_messages_it_is_expected_improvement() -> None:
    agents = [
        run(Agent(federation(), policy, name="me", seed=3), 12) for policy in (TipsThenPool(), EI())
    ]
    assert agents[0].trials == agents[1].trials


def test_a_message_without_information_changes_nothing() -> None:
    """A belief that is the prior, whatever it says of the number of its trials."""
    where = federation(kind="belief")
    k = Shared.of(where).coordinates
    header = dict(fingerprint=where.fingerprint, sender="peer", sequence=1)
    for t_n, mean, C in ((0, np.ones(k), 0.5 * np.eye(k)), (30, np.zeros(k), np.eye(k))):
        message = fedbo.Message.of_belief(mean, C, 0.0, t_n=t_n, **header)
        agents = [
            run(agent_with(received, seed=3, where=where), 12) for received in ([], [message])
        ]
        assert agents[0].trials == agents[1].trials


def test_the_query_is_where_the_pool_is_largest(good: list) -> None:
    """By a fine grid, to a thousandth of the improvement."""
    fine = np.linspace(0, 1, 2001)[:, None]
    for n in (1, 4, 8):
        target = target_of(good, n)
        pool = pool_of(target)
        assert pool.trust > 0.5
        assert pool(ALWAYS.query(target).x[None])[0] > pool(fine).max() - 1e-3


# What peers are worth, and what they cost


def regrets(
    policy: TipsThenPool | EI, messages: Sequence[fedbo.Message], n: int, runs: int
) -> np.ndarray:
    """(runs, n) regret of each run after each trial."""
    rows = []
    for seed in range(runs):
        agent = run(agent_with(messages, seed, policy=policy), n)
        scores = [trial.score for trial in agent.trials]
        rows.append(truth(0.7) - np.maximum.accumulate(np.array(scores, dtype=np.float64)))
    return np.array(rows)


def error(values: np.ndarray) -> float:
    """The standard error of their mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    return regrets(EI(), [], 12, 96)


@pytest.mark.slow
def test_good_peers_save_trials(good: list, alone: np.ndarray) -> None:
    """After 6 trials a tenth of the regret of EI alone at most, paired."""
    helped = regrets(TipsThenPool(), good, 6, 24)[:, -1]
    assert helped.mean() < 0.1 * alone[:24, 5].mean()
    saved = alone[:24, 5] - helped
    assert saved.mean() > 2 * error(saved)


@pytest.mark.slow
def test_hostile_peers_are_hardly_heard(hostile: list) -> None:
    """Of 15 trials at most 6 are theirs on average: tips. Of the pool's there are hardly any."""
    runs = [[t.source for t in run(agent_with(hostile, seed), 15).trials] for seed in range(16)]
    theirs = np.array([[source in ("tip", "pool") for source in sources] for sources in runs])
    assert theirs.sum(axis=1).mean() < 6.0
    assert np.mean([sources.count("pool") for sources in runs]) < 1.0


@pytest.mark.parametrize("kind, after_8, after_12", [("hostile", 0.3, 0.12), ("noisy", 0.05, 0.05)])
@pytest.mark.slow
def test_bad_peers_cost_little(
    kind: str, after_8: float, after_12: float, alone: np.ndarray, request: pytest.FixtureRequest
) -> None:
    """The regret that they add, paired, 96 runs, with two standard errors on top of it.

    Scores go from 0 to 1. Tips of hostile peers are tried in vain, which costs some four trials:
    EI alone has found the higher bump after 8, and among hostile peers a run may still be at the
    lower one, at 0.5.
    """
    lost = regrets(TipsThenPool(), request.getfixturevalue(kind), 12, 96) - alone
    for n, most in ((8, after_8), (12, after_12)):
        assert lost[:, n - 1].mean() + 2 * error(lost[:, n - 1]) < most


# Credit


def test_credit_is_the_share_in_the_praise() -> None:
    messages = mail(federation(), [1.0, 0.0, -1.0] * 4)
    target = target_of(messages, 3)
    query, pool = ALWAYS.query(target), pool_of(target)
    assert query.origin.source == "pool"
    praise = pool.praise(query.x)
    shares = {target.inbox.sender(k): praise[k] / praise.sum() for k in range(12) if praise[k] > 0}
    most = sorted(shares, key=lambda name: -shares[name])[: target_module._NAMED]
    assert query.origin.credit == pytest.approx({name: shares[name] for name in most})
    assert [*query.origin.credit] == most
    assert sum(query.origin.credit.values()) <= 1.0 + 1e-9


def test_weights_are_how_far_each_peer_is_trusted() -> None:
    """The most trusted ones only, together no more than Q; an own draw counts on nobody."""
    messages = mail(federation(), [1.0, -1.0] * 6)
    target = target_of(messages, 5)
    pool, weights = pool_of(target), ALWAYS.query(target).origin.trust
    named = sorted(range(12), key=lambda k: -pool.shares[k])[: target_module._NAMED]
    assert weights == pytest.approx({f"peer-{k}": pool.trust * pool.shares[k] for k in named})
    assert sum(weights.values()) <= pool.trust + 1e-9
    assert {*[*weights][:6]} == {f"peer-{k}" for k in range(0, 12, 2)}  # those that are right
    assert TipsThenPool(schedule=1.0).query(target).origin.trust == {}
