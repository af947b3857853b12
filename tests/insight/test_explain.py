"""The explanation of an agent's queries, its peers, and the trials that it saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedbo import (
    EI,
    FTS,
    TS,
    Agent,
    Categorical,
    Federation,
    Float,
    Int,
    Message,
    Origin,
    Policy,
    Space,
    TipsThenPool,
)
from fedbo.insight import figure
from fedbo.insight.explain import CAVEAT, Explanation, explain
from fedbo.insight.replay import Solo
from fedbo.insight.trials_saved import compare
from fedbo.model.gp import Hyper, Waves
from fedbo.model.kernel import Array

SPACE = {"a": Float(0, 1), "b": Float(0, 1)}
LENGTH_SCALE = 0.2


def wave(seed: int, dimensions: int = 2) -> Waves:
    """A function drawn from a GP, known to the objective only."""
    hyper = Hyper(length_scales=(LENGTH_SCALE,) * dimensions)
    return Waves(hyper, np.random.default_rng(seed), 256)


def peers(f: Waves, federation: Federation, strangeness: float, count: int = 8) -> list[Message]:
    """Messages of peers whose functions are f mixed with one of their own."""
    messages = []
    for n in range(count):
        g, peer = wave(1000 + n), Agent(federation, TS(), name=f"peer-{n}", seed=n)
        for x in np.random.default_rng(n).random((40, 2)):
            score = np.sqrt(1 - strangeness**2) * f(x[None]) + strangeness * g(x[None])
            peer.tell({"a": x[0], "b": x[1]}, float(score[0]))
        messages.append(peer.message())
    return messages


def run(agent: Agent, f: Waves, trials: int) -> Array:
    """Run trials with f as the objective, and return all points."""
    space = agent.federation.space
    for _ in range(trials):
        trial = agent.ask()
        agent.tell(trial, space.sign * float(f(space.encode(trial.params)[None])[0]))
    return np.array([space.encode(trial.params) for trial in agent.trials])


@pytest.fixture(scope="module")
def helped() -> Agent:
    """An agent with good peers after 20 trials."""
    federation, f = Federation(SPACE), wave(4)
    agent = Agent(federation, FTS(), name="helped", seed=6)
    agent.receive(peers(f, federation, strangeness=0.3))
    run(agent, f, 20)
    return agent


@pytest.fixture(scope="module")
def explanation(helped: Agent) -> Explanation:
    return helped.explain(draws=8)


# What is counted


def test_every_trial_has_a_row_with_its_source_and_the_best_so_far(
    helped: Agent, explanation: Explanation
) -> None:
    queries, scores = explanation.queries, np.array([trial.score for trial in helped.trials])
    assert queries["trial"].tolist() == list(range(20))
    assert queries["source"].tolist() == [trial.source for trial in helped.trials]
    assert queries["peers"].tolist() == [trial.peer or "" for trial in helped.trials]
    assert np.array_equal(queries["best"], np.maximum.accumulate(scores))
    assert np.allclose(queries["gained"].sum(), scores.max() - scores[0])


def test_gains_of_sources_and_peers_add_up(explanation: Explanation) -> None:
    sources, by_peers = explanation.sources, explanation.peers
    assert sources["queries"].sum() == 20
    assert np.isclose(sources["gained"].sum(), explanation.queries["gained"].sum())
    from_peers = sources.where(source="peer")
    assert np.isclose(by_peers["gained"].sum(), from_peers["gained"][0])
    assert by_peers["share"].sum() == from_peers["queries"][0]
    assert by_peers["best"].max() == from_peers["best"][0]
    assert (np.diff(by_peers["gained"]) <= 0).all()


def test_smaller_scores_are_better_where_the_space_says_so() -> None:
    agent = Agent(Federation(Space({"a": Float(0, 1)}, direction="minimize")), name="a", seed=0)
    for score in (3.0, 5.0, 1.0, 2.0):
        agent.tell({"a": score / 10}, score)
    explained = agent.explain()
    assert explained.queries["best"].tolist() == [3.0, 3.0, 1.0, 1.0]
    assert explained.queries["gained"].tolist() == [0.0, 0.0, 2.0, 0.0]
    assert (explained.best, explained.best_trial) == (1.0, 2)
    assert explained.sources["best"].tolist() == [1.0]


def test_failed_and_pending_trials_are_rows_without_a_score() -> None:
    agent = Agent(Federation(SPACE), name="a", seed=0)
    agent.tell(agent.ask(), 1.0)
    agent.tell(agent.ask(), None)
    agent.ask()
    queries = agent.explain().queries
    assert queries["state"].tolist() == ["complete", "failed", "pending"]
    assert np.isnan(queries["score"][1:]).all()
    assert queries["best"].tolist() == [1.0, 1.0, 1.0]


def test_a_gain_is_divided_among_peers_as_the_credit_is() -> None:
    agent = Agent(Federation({"a": Float(0, 1)}), name="a", seed=0)
    for i, (score, credit) in enumerate(
        [(1.0, {}), (3.0, {"x": 0.75, "y": 0.25}), (4.0, {"y": 0.5}), (2.0, {"z": 1.0})]
    ):
        origin = Origin("pool" if credit else "initial", credit=credit)
        agent.tell(agent.adopt({"a": i / 4}, origin=origin), score)
    explained = agent.explain(draws=1)
    assert explained.peers["peer"].tolist() == ["x", "y", "z"]
    assert explained.peers["gained"].tolist() == [1.5, 1.0, 0.0]
    assert explained.peers["share"].tolist() == [0.75, 0.75, 1.0]
    assert explained.peers["best"].tolist() == [3.0, 4.0, 2.0]
    assert explained.queries["peers"].tolist() == ["", "x 75%, y 25%", "y 50%", "z"]
    assert explained.sources["source"].tolist() == ["initial", "pool"]


# When nothing can be said


def test_without_scores_there_is_nothing_to_explain() -> None:
    with pytest.raises(ValueError, match=r"'a' has no scores yet.*tell"):
        Agent(Federation(SPACE), name="a").explain()


def test_without_queries_from_peers_nothing_was_saved() -> None:
    agent = Agent(Federation(SPACE), TS(), name="a", seed=0)
    run(agent, wave(0), 10)
    explained = agent.explain()
    assert explained.saved is None
    assert "None of the 10 queries came from peers" in str(explained)
    assert not explained.peers.height


# What is estimated


def test_trials_saved_are_those_of_the_replays_less_the_agents() -> None:
    together = np.array([[0.0, 1.0, 1.0, 1.0]] * 3)
    alone = np.array([[0.0, 0.96, 1.0, 1.0], [0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.9]])
    saved = compare(together[0], together, alone, start=1)
    assert (saved.low, saved.median, saved.high) == (0, 2, 3)
    assert saved.at_least == (False, False, True)
    assert str(saved).startswith("About 2 trials saved (90 %: 0 to at least 3). The interval")
    assert saved.gains["gain"].tolist() == [0.0]


def test_a_loss_is_said_plainly() -> None:
    together, alone = np.array([[0.0, 0.0, 0.0, 1.0]]), np.array([[0.0, 1.0, 1.0, 1.0]])
    saved = compare(together[0], together, alone, start=1)
    assert str(saved) == (
        "About −2 trials saved (90 %: −2). "
        "Collaborating cost trials: alone, the agent would have been faster."
    )


def test_a_solo_agent_takes_no_initial_point_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent begins with tips, and takes one initial point after them."""
    federation, f = Federation(SPACE), wave(4)
    agent = Agent(federation, TipsThenPool(), name="a", seed=6)
    agent.receive(peers(f, federation, 0.3, count=4))
    run(agent, f, 12)
    sources = [trial.source for trial in agent.trials]
    assert sources[:2] == ["tip", "tip"] and sources.count("initial") == 1
    places: dict[Solo, list[Array]] = {}
    tell = Solo.tell

    def listen(self: Solo, x: Array, score: float) -> None:
        places.setdefault(self, []).append(x)
        tell(self, x, score)

    monkeypatch.setattr(Solo, "tell", listen)
    explanation = agent.explain(draws=4)
    first = explanation.queries.where(trial=0)
    assert first["source"][0] == "tip" and "peer-" in first["peers"][0]
    assert explanation.sources.where(source="tip")["queries"] == sources.count("tip")
    assert len(places) == 4
    for points in places.values():
        design = np.array(agent.initial_design())
        assert len(points) == 12 and np.allclose(points[:3], design)
        gaps = np.abs(np.array(points[3:])[:, None] - design).max(axis=2)
        assert gaps.min() > 1e-6  # own draws may be largest at the same corner twice


def test_it_is_the_same_each_time(helped: Agent, explanation: Explanation, tmp_path: Path) -> None:
    helped.save(tmp_path / "agent")
    assert str(Agent.load(tmp_path / "agent").explain(draws=8)) == str(explanation)


def test_explaining_changes_no_query() -> None:
    federation, f = Federation(SPACE), wave(4)
    ways = []
    for is_explained in (False, True):
        agent = Agent(federation, FTS(), name="a", seed=1)
        agent.receive(peers(f, federation, 0.3))
        for t in range(50):
            run(agent, f, 1)
            if is_explained and t % 16 == 10:
                agent.explain(draws=2)
        ways.append([trial.params for trial in agent.trials])
    assert ways[0] == ways[1]


@pytest.mark.parametrize(
    "space",
    [
        Space({"a": Float(0, 1)}, points=[{"a": i / 30} for i in range(31)]),
        Space({"n": Int(1, 9), "kind": Categorical(["x", "y", "z"]), "a": Float(0, 1)}),
        Space({"a": Float(1e-3, 1, log=True)}, direction="minimize"),
    ],
    ids=["listed", "levels", "log"],
)
def test_spaces_of_every_kind_are_replayed(space: Space) -> None:
    federation = Federation(space)
    f = wave(2, space.dimensions)
    messages = []
    for n in range(4):
        peer = Agent(federation, TS(), name=f"peer-{n}", seed=n)
        run(peer, f, 6)
        messages.append(peer.message())
    agent = Agent(federation, FTS(schedule=0.5), name="a", seed=0)
    agent.receive(messages)
    run(agent, f, 14)
    saved = agent.explain(draws=4).saved
    assert saved is not None
    assert np.isfinite(saved.curves["alone"]).all()
    assert -14 <= saved.low <= saved.median <= saved.high <= 14


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "without_peers"), [(TipsThenPool(), EI()), (FTS(), TS())])
def test_estimates_agree_with_what_solo_agents_really_do(
    policy: Policy, without_peers: Policy
) -> None:
    """On average, relative to the interval; and intervals contain about 90 % of real solo runs."""
    trials, federation = 16, Federation(SPACE)
    errors, widths, held = [], [], []
    for k in range(8):
        f = wave(50 + k)
        agent = Agent(federation, policy, name="a", seed=k)
        agent.receive(peers(f, federation, strangeness=0.3 if k % 2 else 1.0))
        together = np.maximum.accumulate(f(run(agent, f, trials)))
        saved = agent.explain(draws=16).saved
        assert saved is not None
        start = [federation.space.decode(x) for x in agent.initial_design()]
        real = []
        for seed in range(3):
            solo = Agent(federation, without_peers, name="solo", seed=100 + seed, initial=start)
            alone = np.maximum.accumulate(f(run(solo, f, trials)))
            real.append(compare(together, together[None], alone[None], start=3).median)
        errors.append(saved.median - np.mean(real))
        widths.append(saved.high - saved.low)
        held += [saved.low <= r <= saved.high for r in real]
    assert abs(np.mean(errors)) < 0.25 * np.mean(widths)
    assert np.mean(held) > 0.75


# How it is shown


def test_its_text_is_a_page(explanation: Explanation) -> None:
    lines = str(explanation).splitlines()
    assert 15 <= len(lines) <= 35
    assert max(map(len, lines)) <= 100
    text = " ".join(str(explanation).split())
    for part in ("Agent helped: 20 trials", "saved (90 %:", "peer-", CAVEAT):
        assert part in text


def test_the_picture_numbers_trials_as_the_text_does(tmp_path: Path) -> None:
    federation, f = Federation(SPACE), wave(4)
    agent = Agent(federation, FTS(), name="a", seed=6)
    agent.receive(peers(f, federation, 0.3))
    agent.tell(agent.ask(), None)
    run(agent, f, 5)
    agent.tell(agent.ask(), None)
    run(agent, f, 5)
    explained = agent.explain(draws=2)
    assert explained.saved is not None and f"trial {explained.best_trial}," in str(explained)
    left = figure.draw(explained, tmp_path / "p.png").axes[0]
    numbers = [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    best = next(line for line in left.lines if line.get_label() == "best so far")
    alone = next(line for line in left.lines if line.get_label() == "its median")
    assert list(best.get_xdata()) == list(alone.get_xdata()) == numbers
    points = np.concatenate([np.asarray(dots.get_offsets()) for dots in left.collections[1:]])
    assert sorted(points[:, 0]) == numbers
    assert points[points[:, 0] == explained.best_trial, 1] == explained.best


def test_numbers_of_a_study_replace_those_of_the_agent() -> None:
    agent = Agent(Federation({"a": Float(0, 1)}), name="a", seed=0)
    for score in (3.0, 1.0, 2.0):
        agent.tell({"a": score / 10}, score)
    explained = explain(agent, numbers={7: 0, 2: 2})
    assert explained.queries["trial"].tolist() == [2, 7]
    assert explained.queries["score"].tolist() == [2.0, 3.0]
    assert (explained.best, explained.best_trial) == (3.0, 7)
    assert "trial 7, told" in explained.heading()
