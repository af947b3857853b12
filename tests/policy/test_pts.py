"""Pooled Thompson sampling: U against plain loops, the guard's shares, and what peers are worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo import PTS, TS, Agent, Federation, Float, Settings, Space
from fedbo.inbox import Inbox
from fedbo.model.argmax import argmax
from fedbo.model.features import Features
from fedbo.model.surrogate import Surrogate, SurrogateSettings, standardised
from fedbo.policy import Target, base, pts
from fedbo.policy.agreement import START, Agreement
from fedbo.policy.pts import Pool
from fedbo.schedule import Constant, Power

M = 30
LINE = {"x": Float(0, 1)}


def held(omegas: np.ndarray) -> Inbox:
    """An inbox with these weights (N, M), of peer-0, peer-1, …"""
    inbox = Inbox(omegas.shape[1])
    inbox.extend([f"peer-{i}" for i in range(len(omegas))], omegas, t_n=20, sequence=1)
    return inbox


def problem(
    seed: int = 0,
    *,
    N: int = 6,
    n: int = 5,
    D: int = 2,
    waiting: int = 2,
    space: Space | None = None,
    **given: Any,
) -> Target:
    """A target with n scores, a few open points, and N peers of which half are like it."""
    rng = np.random.default_rng([seed, 5])
    features = Features(D, M, length_scales=0.4, seed=seed)
    base = rng.standard_normal(M)
    omegas = np.where(np.arange(N)[:, None] % 2, base, 0.0) + rng.standard_normal((N, M))
    X, waits = (
        rng.random((size, D)) if space is None else space.sample(rng, size) for size in (n, waiting)
    )
    return Target(
        t=n,
        space=Space({f"x{i}": Float(0, 1) for i in range(D)}) if space is None else space,
        X=X,
        y=standardised(features.function(base)(X)),
        open_points=lambda: waits,
        surrogate=Surrogate(SurrogateSettings(), D),
        inbox=held(omegas),
        features=features,
        maximiser=argmax,
        rng=np.random.default_rng([seed, 6]),
        **given,
    )


def plain_loop(target: Target, X: np.ndarray) -> np.ndarray:
    """U by a loop over points and peers, the weights those of `Agreement`."""
    omegas = target.inbox.omegas(np.arange(len(target.inbox))).astype(np.float64)
    omegas /= target.features.deviation(omegas)[:, None]
    peers = [target.features.function(omega) for omega in omegas]
    visited = [*target.X, *target.open_points()]
    F = np.array([[g(x[None])[0] for g in peers] for x in target.X]).reshape(-1, len(peers))
    weights = Agreement(target.y, F).weights
    values = np.zeros(len(X))
    for i, x in enumerate(X):
        for g, weight in zip(peers, weights, strict=True):
            if weight > pts._FAINT * weights.max():
                b = max((g(v[None])[0] for v in visited), default=0.0)
                values[i] += weight * max(0.0, g(x[None])[0] - b)
    return values


# U


@pytest.mark.parametrize("n, waiting", [(0, 0), (0, 2), (1, 0), (2, 1), (9, 3)])
@pytest.mark.parametrize("D", [1, 3])
def test_the_pooled_improvement_is_what_it_says(D: int, n: int, waiting: int) -> None:
    for seed in range(3):
        target = problem(seed, n=n, D=D, waiting=waiting)
        X = np.random.default_rng(seed).random((60, D))
        pool, expected = Pool(target), plain_loop(target, X)
        assert expected.max() > 0.0
        np.testing.assert_allclose(pool(X), expected, atol=1e-10)
        np.testing.assert_allclose(pool.value_and_gradient(X)[0], expected, atol=1e-10)
        np.testing.assert_allclose(pool(X.astype(np.float32)), expected, atol=1e-4)
        np.testing.assert_allclose([pool.gains(x).sum() for x in X], expected, atol=1e-10)


def test_peers_that_agree_too_little_do_not_count() -> None:
    """Among many scores the weights of the worst are below a part of the best one's."""
    target = problem(1, n=60, N=8, D=1)
    target.inbox = held(
        np.concatenate([target.inbox.omegas(np.arange(8)), -target.inbox.omegas(np.arange(8))])
    )
    pool = Pool(target)
    assert 0 < len(pool.rows) == len(pool.weights) < 16
    X = np.random.default_rng(0).random((40, 1))
    np.testing.assert_allclose(pool(X), plain_loop(target, X), atol=1e-10)


@pytest.mark.parametrize("D", [1, 2, 5])
def test_its_gradient_away_from_kinks(D: int) -> None:
    step, checked = 1e-6, 0
    for seed in range(4):
        target = problem(seed, D=D)
        pool = Pool(target)
        X = 0.01 + 0.98 * np.random.default_rng(seed).random((200, D))
        omegas, b, _ = pool._double
        smooth = np.abs(target.features(X) @ omegas.T - b).min(axis=1) > 1e-3
        X = X[smooth & (pool(X) > 0.0)]
        slopes = [(pool(X + e) - pool(X - e)) / (2 * step) for e in np.eye(D) * step]
        np.testing.assert_allclose(
            pool.value_and_gradient(X)[1], np.stack(slopes, axis=1), atol=1e-6, rtol=1e-5
        )
        checked += len(X)
    assert checked > 50


def test_where_the_target_has_been_there_is_nothing_to_gain() -> None:
    target = problem(3)
    pool = Pool(target)
    np.testing.assert_allclose(pool(target.X), 0.0, atol=1e-12)
    np.testing.assert_allclose(pool(target.open_points()), 0.0, atol=1e-12)


def grid(size: int) -> Space:
    points = [
        {"x0": i / (size - 1), "x1": j / (size - 1)} for i in range(size) for j in range(size)
    ]
    return Space({"x0": Float(0, 1), "x1": Float(0, 1)}, points=points)


def test_its_maximum_on_a_table() -> None:
    """Found among all points; among the others where some are barred."""
    space = grid(9)
    for seed in range(5):
        target = problem(seed, space=space)
        values = plain_loop(target, space.points)
        best = np.argsort(-values)
        assert target.argmax(Pool(target)).tolist() == space.points[best[0]].tolist()
        barred = problem(seed, space=space, barred=np.sort(best[:4]))
        assert barred.argmax(Pool(barred)).tolist() == space.points[best[4]].tolist()


def test_its_maximum_in_a_box() -> None:
    fine = np.linspace(0, 1, 2001)[:, None]
    for seed in range(5):
        target = problem(seed, D=1)
        pool = Pool(target)
        assert pool(target.argmax(pool)[None])[0] >= pool(fine).max() - 1e-4


def test_a_peers_scale_does_not_matter() -> None:
    """Nobody gains a larger part by larger numbers, or hides behind small ones."""
    target = problem(2, N=3, D=1)
    pool = Pool(target)
    omegas, b, w = pool._double
    x = np.array([0.37])
    doubled = problem(2, N=3, D=1)
    factors = np.array([[1.0], [1e3], [1e-3]])
    doubled.inbox = held(target.inbox.omegas(np.arange(3)) * factors)
    np.testing.assert_allclose(Pool(doubled).gains(x), pool.gains(x), atol=1e-5)
    np.testing.assert_allclose(Pool(doubled).weights, w)
    assert Pool(doubled).trust == pytest.approx(pool.trust, rel=1e-5)
    assert len(b) == len(omegas) == 3


# The cap on work


@pytest.mark.parametrize("N", [pts._MOST - 1, pts._MOST, pts._MOST + 1, 5000, 20_000])
def test_only_so_many_peers_are_looked_at(N: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more, an even spread: work does not grow with the inbox."""
    target = problem(0, N=10, D=1)
    target.inbox = held(np.random.default_rng(0).standard_normal((N, M), dtype=np.float32))
    looked: list[np.ndarray] = []
    real = Inbox.omegas

    def omegas(inbox: Inbox, rows: np.ndarray) -> np.ndarray:
        looked.append(rows)
        return real(inbox, rows)

    def whole(inbox: Inbox, *_: Any) -> None:
        raise AssertionError("looked at all messages")

    monkeypatch.setattr(Inbox, "omegas", omegas)
    monkeypatch.setattr(Inbox, "matrix", property(whole))
    monkeypatch.setattr(Inbox, "state", whole)
    pool = Pool(target)
    rows = np.concatenate(looked)
    assert len(rows) == len({*rows.tolist()}) == min(N, pts._MOST)
    assert (rows.min(), rows.max()) == (0, N - 1)
    assert np.diff(np.sort(rows)).max() <= N / pts._MOST + 2
    assert {*pool.rows.tolist()} <= {*rows.tolist()}
    assert pool._double[0].shape == (len(pool.rows), M)


# The guard


class Evidence:
    """A pool of which only the evidence matters."""

    def __init__(self, trust: float, visited: int = 9) -> None:
        self.trust = trust
        self.visited = visited


def test_the_share_of_the_peers_at_its_ends() -> None:
    e = pts._EARNED
    for t in (1, 2, 7, 100):
        q = 1.0 - Power(0.5)(t)
        assert PTS().share(t, Evidence(0.0)) == 0.0
        assert PTS().share(t, Evidence(1.0)) == pytest.approx(q + (1 - q) * e)
        assert PTS(schedule=Constant(1.0)).share(t, Evidence(1.0)) == pytest.approx(e)
        assert PTS(schedule=Constant(1.0)).share(t, Evidence(START)) == 0.0
        assert PTS().share(t, Evidence(START)) == pytest.approx(START * q)
        assert PTS(schedule=1e-9).share(t, Evidence(1.0)) == pytest.approx(1.0)
    assert PTS().share(10**6, Evidence(1.0)) == pytest.approx(e, abs=1e-3)


def test_the_share_falls_with_time_and_rises_with_trust() -> None:
    shares = np.array(
        [[PTS().share(t, Evidence(g)) for g in np.linspace(0, 1, 11)] for t in range(2, 40)]
    )
    assert (np.diff(shares[:, 1:], axis=0) < 0).all()
    assert (np.diff(shares, axis=1) > 0).all()
    assert 0.0 <= shares.min() <= shares.max() <= 1.0


@pytest.mark.parametrize("scores", [0, 1])
def test_the_first_query_is_the_peers_whatever_the_schedule(scores: int) -> None:
    assert PTS(schedule=1.0).share(1, Evidence(0.2, scores)) == 1.0
    assert PTS(schedule=1.0).share(1, Evidence(0.0, 2)) == 0.0


def test_settings_are_checked() -> None:
    assert PTS() == PTS(schedule=Power(0.5), beta=1)
    with pytest.raises(ValueError, match="beta is -1"):
        PTS(beta=-1)
    with pytest.raises(ValueError):
        PTS(schedule=2.0)


# Agents


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


def regret(agent: Agent) -> float:
    return truth(0.7) - agent.best.score


@pytest.fixture(scope="module")
def good() -> list[fedbo.Message]:
    return mail(federation(), [1.0] * 8)


@pytest.fixture(scope="module")
def hostile() -> list[fedbo.Message]:
    return mail(federation(), [-1.0] * 8)


def agent_with(messages: Sequence[fedbo.Message], seed: int = 0, **given: Any) -> Agent:
    agent = Agent(federation(), given.pop("policy", PTS()), name="me", seed=seed, **given)
    assert agent.receive(messages) == len(messages)
    return agent


def test_it_is_the_default() -> None:
    assert Agent(federation()).policy == PTS()
    assert Agent.paper(Federation.paper(LINE)).policy == fedbo.FTS(schedule=Power(2))


@pytest.mark.parametrize("kind", ["good", "hostile"])
def test_the_first_query_after_one_initial_point_is_the_peers(
    kind: str, request: pytest.FixtureRequest
) -> None:
    for seed in range(6):
        agent = run(agent_with(request.getfixturevalue(kind), seed), 2)
        assert [trial.source for trial in agent.trials] == ["initial", "pool"]
        assert [trial.t for trial in agent.trials] == [None, 1]


def test_without_messages_it_is_thompson_sampling() -> None:
    """It draws one number more a query, so only its sources and first points are the same."""
    agents = [
        run(Agent(federation(), policy, name="me", seed=3), 8) for policy in (PTS(), TS(beta=1))
    ]
    sources = [[(t.source, t.t, t.peer, t.credit) for t in agent.trials] for agent in agents]
    assert sources[0] == sources[1]
    points = [[t.params["x"] for t in agent.trials] for agent in agents]
    assert points[0][:3] == points[1][:3]


def test_messages_that_come_late_are_used() -> None:
    agent = run(agent_with([]), 4)
    assert {trial.source for trial in agent.trials} == {"initial", "own"}
    agent.receive(mail(agent.federation, [1.0] * 8))
    assert "pool" in {trial.source for trial in run(agent, 6).trials}


def test_peers_that_nothing_is_known_of_do_not_get_all_parallel_workers() -> None:
    """The first query is theirs; the next ones have the share that trust gives them."""
    agent = Agent(federation(), PTS(), name="me", seed=0)
    noise = np.random.default_rng(0).standard_normal((50, M))
    agent.inbox.extend([f"peer-{i}" for i in range(50)], noise, t_n=20, sequence=1)
    run(agent, 1)
    sources = [agent.ask().source for _ in range(12)]
    assert sources[0] == "pool"
    assert sources.count("pool") < 12


def test_parallel_asks_of_the_peers_are_never_where_one_was_before(good: list) -> None:
    """Own draws may be largest at the same corner twice; the pool never is."""
    for messages in (good, good[:4] + mail(federation(), [-1.0] * 4, name="other")):
        for started in (0, 1, 4):
            agent = run(agent_with(messages), started)
            asked = [*agent.trials, *(agent.ask() for _ in range(8))]
            points = [trial.params["x"] for trial in asked]
            pooled = [i for i, trial in enumerate(asked) if trial.source == "pool"]
            assert pooled
            for i in pooled:
                assert min(abs(points[i] - x) for x in points[:i]) > 1e-6


def test_parallel_asks_on_a_table_are_all_different(good: list) -> None:
    space = Space(LINE, points=[{"x": i / 40} for i in range(41)])
    where = federation()
    listed = Federation(space, features=M, seed=7, length_scale=0.15)
    for factors in ([1.0] * 4, [-1.0] * 4):
        senders = mail(where, factors)
        agent = Agent(listed, PTS(), name="me", seed=0)
        agent.inbox.extend(
            [m.sender for m in senders], [m.omega for m in senders], t_n=15, sequence=1
        )
        asked = [agent.ask().params["x"] for _ in range(12)]
        assert len({*asked}) == 12


def test_two_asks_in_a_row_leave_the_first_peak_to_the_first(good: list) -> None:
    """b_n counts open points: what is being tried has no improvement left in it."""
    agent = run(agent_with(good), 1)
    first, second = agent.ask(), agent.ask()
    assert first.source == "pool"
    assert abs(first.params["x"] - 0.7) < 0.1
    assert abs(second.params["x"] - first.params["x"]) > 1e-3
    values = [agent.federation.features.function(m.omega.astype(float)) for m in good]
    at = [[g(np.array([[t.params["x"]]]))[0] for g in values] for t in (first, second)]
    if second.source == "pool":  # for a peer that thinks it better than the first
        assert (np.array(at[1]) > np.array(at[0])).any()


def test_a_failed_trial_is_not_asked_for_again(good: list) -> None:
    agent = run(agent_with(good), 1)
    points = [agent.tell(agent.ask(), None).params["x"] for _ in range(5)]
    assert len({*points}) == 5


def test_the_design_is_completed_where_peers_are_not_trusted(hostile: list) -> None:
    """With the very points that it would have started with, and no more of them."""
    for seed in range(4):
        alone = run(agent_with([], seed), 3)
        agent = run(agent_with(hostile, seed), 12)
        design = [t.params for t in agent.trials if t.source == "initial"]
        assert design == [t.params for t in alone.trials]
        assert [t.t is None for t in agent.trials if t.source == "initial"] == [True, False, False]
        assert all(t.credit == {} for t in agent.trials if t.source == "initial")


def test_the_design_is_not_completed_where_they_are(good: list) -> None:
    for seed in range(4):
        sources = [trial.source for trial in run(agent_with(good, seed), 10).trials]
        assert sources.count("initial") < 3
        assert sources.count("pool") >= 2


def test_hostile_peers_are_hardly_heard(hostile: list) -> None:
    """Of 15 trials at most 2.5 are theirs on average, and of the last 8 hardly any."""
    runs = [[t.source for t in run(agent_with(hostile, seed), 15).trials] for seed in range(16)]
    pooled = np.array([[source == "pool" for source in sources] for sources in runs])
    assert pooled.sum(axis=1).mean() < 2.5
    assert pooled[:, 7:].mean() < 0.06


def test_good_peers_save_trials(good: list) -> None:
    """5 evaluations after the usual 3 first ones: half of solo's regret at most, paired."""
    regrets = np.array(
        [
            [regret(run(agent_with(good, seed, policy=policy), 8)) for policy in (PTS(), TS())]
            for seed in range(24)
        ]
    )
    helped, alone = regrets.T
    assert helped.mean() < 0.5 * alone.mean()
    difference = alone - helped
    assert difference.mean() > 2 * difference.std(ddof=1) / np.sqrt(len(difference))


def test_half_of_the_peers_may_be_hostile() -> None:
    where = federation()
    messages = mail(where, [1.0, -1.0] * 4)
    regrets = np.array(
        [
            [regret(run(agent_with(messages, seed, policy=policy), 9)) for policy in (PTS(), TS())]
            for seed in range(20)
        ]
    )
    helped, alone = regrets.mean(axis=0)
    assert helped < alone


# Credit


def test_credit_is_the_share_in_the_improvement() -> None:
    target = problem(4, N=30, n=1, waiting=0)
    query = PTS().query(target)
    assert query.source == "pool"
    pool = Pool(target)
    gains = dict(zip(pool.rows.tolist(), pool.gains(query.x), strict=True))
    total = sum(gains.values())
    expected = {
        f"peer-{row}": gains[row] / total
        for row in sorted(gains, key=lambda row: -gains[row])[: base._NAMED]
    }
    assert query.credit == pytest.approx(expected)
    assert len(query.credit) <= base._NAMED
    assert sum(query.credit.values()) <= 1.0 + 1e-9
    shares = [*query.credit.values()]
    assert shares == sorted(shares, reverse=True)


def test_one_peer_has_all_the_credit() -> None:
    target = problem(4, N=1, n=1)
    assert PTS().query(target).credit == {"peer-0": pytest.approx(1.0)}


def test_who_gains_nothing_has_no_credit(good: list) -> None:
    """Peers that know nothing say 0 everywhere."""
    target = problem(0, N=4, n=1, waiting=0)
    omegas = target.inbox.omegas(np.arange(4))
    omegas[1:] = 0.0
    target.inbox = held(omegas)
    assert PTS().query(target).credit.keys() == {"peer-0"}
    target.inbox = held(np.zeros((4, M)))
    query = PTS().query(target)
    assert (query.source, query.credit) == ("own", {})


def test_credit_survives_a_file_and_a_careless_user(good: list, tmp_path: Path) -> None:
    agent = run(agent_with(good), 6)
    credits = [dict(trial.credit) for trial in agent.trials]
    assert any(credits)
    assert {name for credit in credits for name in credit} <= {m.sender for m in good}
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    assert [trial.credit for trial in again.trials] == credits
    asked = agent.ask()
    asked.credit["nobody"] = 1.0
    assert "nobody" not in agent.trials[-1].credit


# Files


@pytest.mark.parametrize("policy", [PTS(), PTS(schedule=0.8, beta=[2.0, 1.0])])
def test_it_goes_on_after_a_file(policy: PTS, good: list, tmp_path: Path) -> None:
    agent = run(agent_with(good, policy=policy), 3)
    waiting = [agent.ask(), agent.ask()]
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    assert again.policy == policy
    assert again.trials == agent.trials
    for each in (agent, again):
        each.tell(waiting[1], 0.1)
        run(each, 4)
    assert again.trials == agent.trials


def test_the_design_goes_on_after_a_file(hostile: list, tmp_path: Path) -> None:
    """How much of it was asked for is nowhere but in the trials."""
    straight, agent = run(agent_with(hostile, 1), 10), agent_with(hostile, 1)
    for _ in range(10):
        agent.save(tmp_path / "agent")
        agent = run(Agent.load(tmp_path / "agent"), 1)
    assert agent.trials == straight.trials


def test_settings_without_initial_points(good: list) -> None:
    agent = run(agent_with(good, settings=Settings(n_initial=0)), 3)
    assert agent.trials[0].source == "pool"
    assert "initial" not in {trial.source for trial in agent.trials}
