"""The probability of being feasible, and agents with constraints: queries, messages, files."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from fedbo import EI, FTS, RGPE, TAF, TS, Agent, Federation, Float, Int, Settings
from fedbo.federation.shared import Shared
from fedbo.model.surrogate import Standardised, Surrogate
from fedbo.policy.feasibility import Feasibility

SPACE = {"x": Float(0, 1), "y": Float(0, 1)}


def score(x, y):
    return -((x - 0.7) ** 2) - (y - 0.7) ** 2


def excess(x, y):
    return x + y - 1.0  # the best feasible point is (0.5, 0.5), with -0.08


def run(agent, trials):
    for _ in range(trials):
        trial = agent.ask()
        agent.tell(trial, score(**trial.params), [excess(**trial.params), trial.params["x"] - 0.9])
    return agent


def probability_of(C, X):
    models = [Surrogate(Settings().surrogate, 2) for _ in C.T]
    known = Feasibility(models, X, C, Standardised, np.random.default_rng(0))
    return known.probability, models


def test_the_probability_agrees_with_a_dense_computation():
    rng = np.random.default_rng(1)
    X, queries = rng.random((12, 2)), rng.random((40, 2))
    C = np.column_stack([excess(*X.T), 1000.0 * (X[:, 0] - 0.3)])
    log_p, models = probability_of(C, X)
    expected = np.zeros(len(queries))
    for model, c in zip(models, C.T, strict=True):
        z = Standardised(np.append(-c, 0.0)).z
        hyper = model.hyper
        cube = np.sqrt(5.0) * np.linalg.norm(
            (np.concatenate([X, queries])[:, None] - X) / hyper.length_scales, axis=2
        )
        k = hyper.signal_variance * (1.0 + cube + cube**2 / 3.0) * np.exp(-cube)
        assert hyper.kernel == "matern52"
        K = np.linalg.inv(k[:12] + hyper.noise_variance * np.eye(12))
        mean = k[12:] @ K @ z[:-1]
        variance = hyper.signal_variance - np.einsum("ij,jk,ik->i", k[12:], K, k[12:])
        expected += norm.logcdf((mean - z[-1]) / np.sqrt(variance))
    assert np.allclose(log_p(queries), expected, rtol=1e-6, atol=1e-6)


def test_its_gradient_is_that_of_its_values():
    rng = np.random.default_rng(2)
    X, queries, step = rng.random((10, 2)), rng.random((20, 2)), 1e-6
    log_p, _ = probability_of(np.column_stack([excess(*X.T), X[:, 1] - 0.5]), X)
    value, gradient = log_p.value_and_gradient(queries)
    assert np.allclose(value, log_p(queries))
    for d in range(2):
        move = step * np.eye(2)[d]
        slope = (log_p(queries + move) - log_p(queries - move)) / (2.0 * step)
        assert np.allclose(gradient[:, d], slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", [None, EI(), TS(), FTS(), RGPE(), TAF()], ids=str)
def test_every_policy_finds_the_best_feasible_point(policy):
    kind = "compact" if policy is None else policy.kinds[0]
    gaps = []
    for seed in range(3):
        agent = run(Agent(Federation(SPACE, kind=kind), policy, seed=seed), 20)
        assert sum(trial.is_feasible for trial in agent.trials) >= 7
        gaps.append(-0.08 - agent.best.score)
    assert np.median(gaps) < 0.01


def test_while_nothing_is_feasible_it_looks_for_what_is():
    for seed in range(3):
        agent = Agent(Federation(SPACE), seed=seed)
        while len(agent.trials) < 15 and agent.best is None:
            trial = agent.ask()
            nearest = min(trial.params["x"], trial.params["y"])
            agent.tell(trial, 1.0, [0.95 - nearest])  # 1 in 400 points is feasible
        assert agent.best is not None


def test_listed_points_have_constraints_too():
    agent = Agent(Federation({"k": Int(1, 30)}), TS(), seed=0)
    for _ in range(15):
        trial = agent.ask()
        agent.tell(trial, float(trial.params["k"]), [trial.params["k"] - 12.5])
    assert agent.best.params == {"k": 12}


def test_a_message_does_not_tell_what_is_infeasible_from_what_was_never_tried():
    federation = Federation(SPACE)
    feasible = [({"x": 0.1 * i, "y": 0.3}, 0.5 * i) for i in range(6)]
    agents = [Agent(federation, name="site", seed=3) for _ in range(3)]
    for agent, places in zip(agents, ([], [0.8, 0.9], [0.7, 0.95]), strict=True):
        for params, value in feasible:
            agent.tell(params, value, [-1.0])
        before = agent.message()
        for x in places:
            agent.tell({"x": x, "y": 0.9}, 100.0, [2.0])
        assert agent.message() == before
    assert len({agent.message().encode() for agent in agents}) == 1
    # if feasible trials come later, too
    for agent in agents:
        agent.tell({"x": 0.35, "y": 0.2}, 9.0, [0.0])
    assert len({agent.message().encode() for agent in agents}) == 1


def test_a_message_praises_no_place_for_own_parameters_that_are_infeasible_there():
    federation = Federation({"x": Float(0, 1)}, seed=1)
    for seed in range(3):
        agent = Agent(federation, seed=seed, own={"own": Float(0, 1)})
        for _ in range(20):
            trial = agent.ask()
            x, own = trial.params["x"], trial.params["own"]
            agent.tell(trial, x + 2 * own, [x + own - 1.0])  # the best feasible x is 0
        tip = federation.space.decode(
            Shared.of(federation).lattice.unpack(agent.message().body.tip)
        )
        assert tip["x"] < 0.2


def test_without_a_feasible_trial_there_is_no_message():
    agent = Agent(Federation(SPACE), seed=0)
    agent.tell({"x": 0.5, "y": 0.5}, 1.0, [0.1])
    assert agent.best is None
    with pytest.raises(ValueError, match="no scores yet of feasible"):
        agent.explain()
    with pytest.raises(ValueError, match="feasible trial"):
        agent.message()


def test_a_saved_agent_goes_on_as_if_it_had_never_stopped(tmp_path):
    agent = run(Agent(Federation(SPACE), seed=5), 9)
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    assert [t.constraints for t in again.trials] == [t.constraints for t in agent.trials]
    assert [t.params for t in run(again, 4).trials] == [t.params for t in run(agent, 4).trials]


@pytest.mark.parametrize("constraints", [[], [1.0], [1.0, np.nan], [1.0, None], [1.0, 2.0, 3.0]])
def test_constraints_are_always_as_many_finite_numbers(constraints):
    agent = Agent(Federation(SPACE), seed=0)
    agent.tell({"x": 0.5, "y": 0.5}, 1.0, [0.1, -0.1])
    with pytest.raises(ValueError, match="expected 2 finite numbers"):
        agent.tell({"x": 0.6, "y": 0.5}, 1.0, constraints)
    assert len(agent.trials) == 1


def test_peers_help_an_agent_with_constraints():
    federation = Federation(SPACE)
    peers = [Agent(federation, name=f"peer-{i}", seed=i) for i in range(3)]
    messages = []
    for peer in peers:
        for _ in range(15):
            trial = peer.ask()
            peer.tell(trial, score(**trial.params))
        messages.append(peer.message())
    agent = Agent(federation, seed=9)
    agent.receive(messages)
    run(agent, 12)
    assert {"tip", "pool"} & {trial.source for trial in agent.trials}
    assert agent.best.score > -0.09
    newcomer = Agent(federation, seed=1)  # is free, and hears the constrained one too
    newcomer.receive([*messages, agent.message()])
    trial = newcomer.ask()
    assert trial.source == "tip" and score(**trial.params) > -0.05
    explanation = agent.explain()
    assert explanation.verdict == "No estimate for studies with constraints."
    left_out = sum(not trial.is_feasible for trial in agent.trials)
    assert left_out and f"Not counted below: {left_out} (failed, infe" in str(explanation)
    assert explanation.best == agent.best.score
