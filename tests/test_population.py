"""Populations: the messages of agents, made together; who is heard; targets on top of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from fedbo import (
    Agent,
    Categorical,
    Federation,
    FederationMismatch,
    Float,
    Party,
    Space,
    population,
    simulate,
)
from fedbo.message import Message
from fedbo.model.linear import Regression
from fedbo.model.summary import saturated
from fedbo.model.surrogate import standardised
from fedbo.population import MOST, Population, Rows, alike, uniform
from fedbo.privacy import Plan

SPACE = {"x": Float(0, 1), "y": Float(0, 1)}
FEDERATION = Federation(SPACE, features=40, kind="compact")


def histories(n: int, t: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, t, 2))
    peaks = rng.random((n, 1, 2))
    return X, -((X - peaks) ** 2).sum(axis=2)


@pytest.fixture(scope="module")
def crowd() -> Population:
    return Population.from_histories(FEDERATION, [histories(3000)], seed=1)


def teller(federation: Federation, X: np.ndarray, y: np.ndarray, seed: int = 0) -> Agent:
    agent = Agent(federation, name="one", seed=seed)
    for x, score in zip(X, y, strict=True):
        agent.tell(federation.space.decode(x), float(score))
    return agent


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_messages_are_distributed_as_those_of_agents_with_the_same_trials(direction: str) -> None:
    """The same history 400 times: in a population, and as agents with different seeds."""
    federation = Federation(Space(SPACE, direction=direction), features=40, kind="compact")
    (X,), (y,) = histories(1)
    copies = np.repeat(X[None], 400, axis=0), np.repeat(y[None], 400, axis=0)
    made = Population.from_histories(federation, [copies], seed=3)
    theirs = np.array([message.nu for message in made.messages(range(400))])
    agents = [teller(federation, X, y, seed).message() for seed in range(400)]
    ours = np.array([message.nu for message in agents])
    for message in made.messages([0, 399]):
        federation.check(message)
        assert message.counts.tolist() == agents[0].counts.tolist()
        assert (message.t_n, message.nbytes - len(message.sender)) == (8, agents[0].nbytes - 3)
    spread = np.sqrt(ours.var(axis=0) + theirs.var(axis=0) + 1e-12)
    far = np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / spread * np.sqrt(400)
    assert far.max() < 4.0  # standard errors, of about 30 coordinates
    leading = [ks_2samp(ours[:, i], theirs[:, i]).pvalue for i in range(5)]
    assert min(leading) > 1e-3
    a, b = (np.cov(each[:, :5].T) for each in (ours, theirs))
    assert np.abs(a - b).max() < 0.3 * np.abs(a).max()


def test_float32_is_as_good() -> None:
    X, y = histories(50)
    single = X.astype(np.float32), y.astype(np.float32)
    a, b = (Population.from_histories(FEDERATION, [each], seed=0) for each in ((X, y), single))
    exact, near = (each.levels * each.scales[:, None].astype(np.float64) for each in (a, b))
    np.testing.assert_allclose(near, exact, atol=2.0 * a.scales.max())
    np.testing.assert_array_equal(a.counts, b.counts)


def test_batches_may_have_any_size_and_different_numbers_of_trials() -> None:
    calls: list[int] = []
    batches = (histories(n, t) for n, t in ((1500, 3), (7, 300), (1, 1)))
    made = Population.from_histories(FEDERATION, batches, seed=0, progress=calls.append)
    assert len(made) == calls[-1] == 1508 and calls == [1500, 1507, 1508]
    assert made.t_n[[0, 1500, 1507]].tolist() == [3, 300, 1]
    expected = saturated(FEDERATION.counts(histories(7, 300)[0][6]))
    np.testing.assert_array_equal(made.counts[1506], expected)
    for message in made.messages([0, 1506, 1507]):
        FEDERATION.check(message)
    assert made.nbytes < 120 * len(made)


def test_the_first_agents_keep_their_names_and_share_memory(crowd: Population) -> None:
    few = crowd.first(10)
    assert len(few) == 10 and np.shares_memory(few.levels, crowd.levels)
    assert few.messages([7]) == crowd.messages([7])
    with pytest.raises(ValueError, match="n is 3001, expected 1 to 3000 agents"):
        crowd.first(3001)


def test_likeness_is_a_correlation_over_the_space(crowd: Population) -> None:
    own = crowd.messages([5])[0]
    points = FEDERATION.space.cover(1024)
    functions = FEDERATION.basis.coordinates(points) @ (crowd.levels[:50].T * 1.0)
    expected = np.corrcoef(functions.T)[5]
    found = crowd.likeness(own)
    np.testing.assert_allclose(found[:50], expected, atol=1e-4)
    assert found[5] == pytest.approx(1.0, abs=1e-5)


def test_who_is_heard(crowd: Population) -> None:
    own = crowd.messages([5])[0]
    sample = uniform(crowd, own, np.random.default_rng(0))
    assert len({*sample.tolist()}) == MOST and 1400 < sample.mean() < 1600
    chosen = alike(crowd, own, np.random.default_rng(0))
    found = crowd.likeness(own)
    others = np.setdiff1d(np.arange(3000), chosen)
    assert len(chosen) == MOST and found[chosen].min() >= found[others].max() and 5 in chosen
    np.testing.assert_array_equal(alike(crowd, None, np.random.default_rng(0)), sample)
    assert len(alike(crowd.first(100), own, np.random.default_rng(0))) == 100


def score(params: dict) -> float:
    return -((params["x"] - 0.3) ** 2)


def test_targets_hear_what_was_chosen_last(crowd: Population) -> None:
    """A rule that chooses other agents in each round, and knows the target's own message.

    The first time it chooses before the target's first trial.
    """
    owns: list[Message | None] = []

    def hear(population: Population, own: Message | None, rng: np.random.Generator) -> Rows:
        owns.append(own)
        return np.arange(4) + 2 * len(owns)

    agent = Agent(FEDERATION, name="target", seed=0)
    party = Party(agent=agent, objective=score)
    table = simulate([party], 4, every=2, population=crowd, hear=hear, seed=0)
    assert [0 if own is None else own.t_n for own in owns] == [0, 3, 5]
    assert {*agent.inbox.senders} == {f"agent-{row}" for row in range(6, 10)}
    size = crowd.messages([2])[0].nbytes
    assert table["bytes_received"].tolist() == [4 * size] * 3 + [6 * size] * 2 + [8 * size] * 2
    assert table["messages"].tolist() == [4] * 7


def test_a_newcomer_starts_with_tips(crowd: Population) -> None:
    party = Party(agent=Agent(FEDERATION, name="target", seed=0), objective=score)
    table = simulate([party], 1, population=crowd, seed=0)
    assert table["source"].tolist()[0] == "tip"
    first = party.agent.trials[0]
    assert first.credit and first.credit.keys() <= {f"agent-{row}" for row in range(3000)}


def test_tips_are_the_trials_with_the_highest_means() -> None:
    X, y = histories(50)
    y[7] = 1.0  # its scores are all equal, so it recommends nothing
    made = Population.from_histories(FEDERATION, [(X, y)], seed=0).messages(range(50))
    for i, message in enumerate(made):
        FEDERATION.check(message)
        regression = Regression(FEDERATION.phi, FEDERATION.noise_variance)
        regression.add(X[i])
        mean = FEDERATION.phi(X[i]) @ regression.posterior(standardised(y[i : i + 1])[0]).nu
        best = FEDERATION.lattice.pack(X[i, mean.argmax()])
        assert message.tip == (b"" if i == 7 else best)


def test_without_tips_there_are_none() -> None:
    silent = Federation(SPACE, features=40, tips=False)
    [message] = Population.from_histories(silent, [histories(1)]).messages([0])
    assert message.tip == b""
    silent.check(message)


def test_a_simulation_with_a_population_can_be_repeated(
    crowd: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(population, "MOST", 50)

    def points(seed: int) -> tuple[list[float], list[str]]:
        agents = [Agent(FEDERATION, name=name, seed=0) for name in "ab"]
        parties = [Party(agent=agent, objective=score) for agent in agents]
        table = simulate(parties, 2, every=1, population=crowd, seed=seed)
        assert len(agents[0].inbox) == 50 + 1
        assert {*agents[0].inbox.senders} != {*agents[1].inbox.senders}
        return table["param_x"].tolist(), agents[0].inbox.senders

    assert points(0) == points(0)
    assert points(0)[1] != points(1)[1]


def test_what_does_not_fit_is_refused(crowd: Population) -> None:
    X, y = histories(3)
    make = Population.from_histories
    with pytest.raises(ValueError, match="of kind 'weights', expected \"compact\""):
        make(Federation(SPACE, kind="weights"), [(X, y)])
    with pytest.raises(ValueError, match="of kind 'contribution'"):
        make(Federation(SPACE, privacy=Plan(epsilon=2.0, delta=1e-3)), [(X, y)])
    with pytest.raises(ValueError, match="histories is empty"):
        make(FEDERATION, [])
    with pytest.raises(ValueError, match=r"X of shape \(3, 8, 1\) .* expected \(n, t, 2\)"):
        make(FEDERATION, [(X[:, :, :1], y)])
    with pytest.raises(ValueError, match="y of shape"):
        make(FEDERATION, [(X, y[:, :2])])
    for bad_X, bad_y in ((X + 1.0, y), (X * np.nan, y), (X, y * np.inf)):
        with pytest.raises(ValueError, match="points of the unit cube and finite scores"):
            make(FEDERATION, [(bad_X, bad_y)])
    other = Agent(Federation(SPACE, features=50), name="target")
    with pytest.raises(FederationMismatch, match="the population are of different federations"):
        simulate([Party(agent=other, objective=score)], 1, population=crowd)


def test_points_of_discrete_spaces_are_those_of_the_cube() -> None:
    """Two choices take two dimensions: histories are given as the space encodes them."""
    federation = Federation({"kind": Categorical(["p", "q"]), "x": Float(0, 1)}, kind="compact")
    X = federation.space.sample(np.random.default_rng(0), 24).reshape(4, 6, -1)
    made = Population.from_histories(federation, [(X, X.sum(axis=2))], seed=0)
    agent = teller(federation, X[2], X[2].sum(axis=1))
    assert made.counts[2].tolist() == agent.message().counts.tolist()
