"""Agents with parameters that their federation does not know."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo import EI, FTS, RGPE, TAF, TS, Agent, Categorical, Federation, Float, Int, Space
from fedbo.federation.shared import Shared
from fedbo.model.features import Basis, Features
from fedbo.model.kernel import kernel_named, squared_distances

SHARED = {"x": Float(0, 1), "y": Float(0, 1)}
OWN = {"depth": Int(1, 5), "rate": Float(1e-4, 1, log=True), "kind": Categorical(["a", "b", "c"])}


def score(x, y, depth=3, rate=0.01, kind="b"):
    bonus = {"a": -0.3, "b": 0.0, "c": -0.1}[kind]
    return (
        -((x - 0.7) ** 2)
        - (y - 0.2) ** 2
        - 0.05 * abs(depth - 3)
        - (0.1 * np.log10(rate / 0.01)) ** 2
        + bonus
    )


def run(agent, trials):
    for _ in range(trials):
        trial = agent.ask()
        agent.tell(trial, score(**trial.params))
    return agent


def messages(federation, count=3, trials=15):
    peers = [Agent(federation, name=f"peer-{i}", seed=i) for i in range(count)]
    return [run(peer, trials).message() for peer in peers]


@pytest.mark.parametrize("policy", [None, EI(), TS(), RGPE(), TAF()], ids=str)
def test_own_parameters_are_tuned_beside_the_shared_ones(policy):
    federation = Federation(SHARED, kind="compact" if policy is None else policy.kinds[0])
    best = []
    for seed in range(3):
        agent = Agent(federation, policy, seed=10 + seed, own=OWN)
        agent.receive(messages(federation))
        run(agent, 20)
        assert [*agent.best.params] == ["x", "y", "depth", "rate", "kind"]
        best.append(agent.best.score)
    rng = np.random.default_rng(0)
    points = [agent.space.decode(x) for x in agent.space.sample(rng, 20 * 100)]
    chance = np.reshape([score(**params) for params in points], (100, 20)).max(axis=1)
    assert np.median(best) > np.quantile(chance, 0.75)


def test_a_tip_is_followed_in_the_shared_parameters():
    federation = Federation(SHARED)
    heard = messages(federation, count=1)
    agent = Agent(federation, seed=3, own=OWN)
    agent.receive(heard)
    trial = agent.ask()
    assert trial.source == "tip"
    tip = Shared.of(federation).lattice.unpack(heard[0].body.tip)
    assert np.allclose(federation.space.encode({n: trial.params[n] for n in SHARED}), tip)
    assert trial.params["depth"] == 3 and trial.params["rate"] == pytest.approx(1e-2)  # the middle


def test_own_parameters_leave_the_middle_if_the_first_trial_fails():
    agent = Agent(federation := Federation(SHARED), seed=3, own=OWN)
    agent.receive(messages(federation))
    agent.tell(agent.ask(), None)
    assert agent.ask().params["rate"] != pytest.approx(1e-2)


def test_the_next_tip_is_tried_with_own_settings_that_suit_the_scores():
    federation = Federation(SHARED)
    heard, kinds = messages(federation, count=1), []
    for seed in range(10):
        agent = Agent(federation, seed=seed, own=OWN)
        for kind, value in (("a", 0.0), ("b", 0.0), ("c", 1.0)):
            agent.tell({"x": 0.5, "y": 0.5, "depth": 5, "rate": 0.5, "kind": kind}, value)
        agent.receive(heard)
        trial = agent.ask()
        assert trial.source == "tip"
        tip = Shared.of(federation).lattice.unpack(heard[0].body.tip)
        assert np.allclose(federation.space.encode({n: trial.params[n] for n in SHARED}), tip)
        kinds.append(trial.params["kind"])
    assert kinds.count("c") >= 6


@pytest.mark.parametrize("policy", [None, FTS()], ids=str)
def test_queries_stay_in_narrower_ranges(policy):
    federation = Federation(SHARED)
    agent = Agent(
        federation, policy, seed=3, own=OWN, within={"x": Float(0.2, 0.6), "depth": Int(2, 4)}
    )
    agent.receive(messages(federation))
    for trial in run(agent, 12).trials:
        assert 0.2 <= trial.params["x"] <= 0.6 and 2 <= trial.params["depth"] <= 4


def test_the_profile_agrees_with_a_dense_computation():
    agent = run(Agent(Federation(SHARED), seed=1, own=OWN), 14)
    X, outbox = agent._history.X(), agent._outbox
    y = agent.settings.scores(agent._history.y()).z
    hyper = outbox._model(X, y).hyper
    scales = np.asarray(hyper.length_scales)

    def k(A, B):
        return hyper.signal_variance * kernel_named(hyper.kernel).value(
            squared_distances(A, B, scales)
        )

    alpha = np.linalg.solve(k(X, X) + hyper.noise_variance * np.eye(len(X)), y)
    for x, g in zip(X, outbox._profile(X, y), strict=True):
        beside = np.array([np.concatenate([x[:2], other[2:]]) for other in X])
        assert g == pytest.approx((k(beside, X) @ alpha).max(), abs=1e-6)


def test_a_message_speaks_of_the_shared_parameters_only():
    federation = Federation(SHARED)
    agent = run(Agent(federation, name="peer-9", seed=1, own=OWN), 12)
    message = agent.message()
    Shared.of(federation).check(message)
    assert message.nbytes == messages(federation, count=1)[0].nbytes
    x = agent.space.encode(agent.best.params)[:2]
    tip = Shared.of(federation).lattice.unpack(message.body.tip)
    assert np.abs(tip - x).max() < 0.3


@pytest.mark.parametrize("kind", ["weights", "belief", "compact"])
def test_peers_learn_from_an_agent_with_own_parameters(kind):
    federation = Federation(SHARED, kind=kind)
    peers = [run(Agent(federation, name=f"p{i}", seed=i, own=OWN), 20) for i in range(3)]
    agent = Agent(
        federation, RGPE() if kind == "belief" else FTS() if kind == "weights" else None, seed=9
    )
    assert agent.receive([peer.message() for peer in peers]) == 3
    assert run(agent, 15).best.score > -0.05


def test_a_saved_agent_goes_on_as_if_it_had_never_stopped(tmp_path):
    agent = Agent(Federation(SHARED), seed=5, own=OWN)
    agent.receive(messages(agent.federation))
    run(agent, 8).save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    assert [t.params for t in run(again, 4).trials] == [t.params for t in run(agent, 4).trials]
    assert again.message().encode() == agent.message().encode()


def test_explain_replays_all_parameters():
    federation = Federation(SHARED)
    agent = Agent(federation, seed=5, own=OWN)
    agent.receive(messages(federation))
    assert run(agent, 10).explain(4).saved is not None


def test_features_ignore_further_coordinates():
    features, rng = Features(2, 30, seed=1), np.random.default_rng(0)
    X = rng.random((9, 4))
    wide = features.beside(2)
    assert np.array_equal(wide(X), features(X[:, :2]))
    value, gradient = wide.function(np.ones(30)).value_and_gradient(X)
    assert np.array_equal(value, features.function(np.ones(30)).value_and_gradient(X[:, :2])[0])
    assert not gradient[:, 2:].any()
    basis = Basis(features, rng.random((100, 2)))
    assert np.array_equal(basis.beside(2).coordinates(X), basis.coordinates(X[:, :2]))


def test_own_parameters_are_new_and_need_a_space_without_a_list():
    with pytest.raises(ValueError, match=r"\['x'\] are parameters of the space already"):
        Agent(Federation(SHARED), own={"x": Float(0, 1)})
    listed = Federation(Space({"k": Int(1, 3)}, points=[{"k": 1}, {"k": 3}]))
    with pytest.raises(ValueError, match="listed points cannot have own parameters"):
        Agent(listed, own=OWN)
