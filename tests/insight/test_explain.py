"""The explanation of an agent's queries, its peers, and the trials that it saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from msgspec.structs import replace

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
from fedbo.insight.trials_saved import Saving, compare
from fedbo.model.gp import Hyper, Waves
from fedbo.model.kernel import Array
from fedbo.model.surrogate import Raw

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


def saving(together: Any, alone: Any, sign: float = 1.0) -> Saving:
    together = np.array(together, dtype=float)
    return compare(together[0], together, np.array(alone, dtype=float), Raw(together[0]), sign)


def test_trials_saved_are_how_much_later_a_solo_agent_is_on_average() -> None:
    """The first one reaches 0.5 two trials later and 1 three trials later; the others never."""
    together = [[0.0, 1.0, 1.0, 1.0, 1.0]] * 3
    alone = [[0.0, 0.0, 0.0, 0.5, 1.0], [0.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]]
    saved = saving(together, alone)
    assert (saved.low, saved.median, saved.high) == (0.0, 2.5, 4.0)
    assert saved.gains["saved"].tolist() == [0.0, 2.5]
    assert (saved.gains["ahead"][-1], saved.ahead) == (pytest.approx(2 / 3), 2.0)
    assert saving([[0.0, 1.0, 1.0]], [[0.5, 0.5, 1.0]]).median == pytest.approx(0.0)
    assert saving([[-3.0, -1.0]], [[-3.0, -2.0]], -1.0).gains["alone"].tolist() == [3.0, 2.0]


@settings(max_examples=200)
@given(arrays(np.int8, (2, 7, 12), elements=st.integers(0, 6)))
def test_the_verdict_is_the_last_line_of_the_table(values: Array) -> None:
    together, alone = np.maximum.accumulate(values, axis=2).astype(float)
    saved = saving(together, alone)
    assert saved.gains["saved"][-1] == saved.median
    if (together <= alone).all():
        assert saved.high <= 0.0 and "paid" not in str(saved)
    if (together[:, 1:] > alone[:, 1:]).all() and (together >= alone).all():
        assert saved.low > 0.0 and "Collaborating paid" in str(saved)
    other = saving(alone, together)
    assert other.high == pytest.approx(-saved.low) and other.median == pytest.approx(-saved.median)


def test_a_loss_is_said_plainly() -> None:
    assert str(saving([[0.0, 0.0, 0.0, 1.0]], [[0.0, 1.0, 1.0, 1.0]])) == (
        "About −2.0 trials saved (90 %: −2.0 to −2.0). "
        "Collaborating cost trials: alone, the agent would have been faster."
    )


@pytest.mark.parametrize(
    ("medians", "rest"),
    [
        ([-0.5, 0.5, 1.0], "it takes about 4 more trials to tell"),  # 1.0 of 0.5 + 0.5
        ([-1.0, 0.01, 1.0], "even 200 trials would not tell"),
        ([-2.0, -1.5, 0.5], "it takes about 2 more trials to tell"),
        ([-1.0, 0.0, 1.0], "even 200 trials would not tell"),
    ],
)
def test_what_is_undecided_says_how_many_more_trials_it_takes(
    medians: list[float], rest: str
) -> None:
    """With twice as many trials, the median is twice as far from 0 beside its interval."""
    low, median, high = medians
    nothing = saving([[0.0] * 4], [[0.0] * 4])
    undecided = replace(nothing, low=low, median=median, high=high)
    text = str(undecided)
    assert text.endswith(f"It may have made no difference: at this rate, {rest}.")


def test_a_first_trial_from_peers_is_compared_with_a_design_point() -> None:
    """A tip that nothing beats for 13 trials saves trials, and its peer gained all of it."""
    federation, f = Federation(SPACE), wave(4)
    agent = Agent(federation, EI(), name="a", seed=0)
    grid = np.random.default_rng(0).random((2000, 2))
    best = grid[f(grid).argmax()]
    tip = agent.adopt({"a": best[0], "b": best[1]}, origin=Origin("tip", credit={"x": 1.0}))
    agent.tell(tip, float(f(best[None])[0]))
    for point in grid[:13]:
        trial = agent.adopt({"a": point[0], "b": point[1]}, origin=Origin("own"), t=1)
        agent.tell(trial, float(f(point[None])[0]))
    explained = agent.explain(draws=8)
    assert explained.saved is not None and explained.saved.median > 1.0
    gained = explained.best - explained.saved.first
    assert gained > 1.0
    for table in (explained.peers, explained.sources, explained.queries):
        assert table["gained"].tolist()[0] == pytest.approx(gained)


def test_no_replay_is_better_than_the_best_score() -> None:
    """The lowest error is 0.1 in half of the space: draws of the model would go far below it."""
    agent = Agent(Federation(Space(SPACE, direction="minimize")), name="a", seed=0)
    for a, b in np.random.default_rng(0).random((12, 2)):
        trial = agent.adopt({"a": a, "b": b}, origin=Origin("tip", credit={"x": 1.0}))
        agent.tell(trial, max(0.1, 2 * a - 0.9))
    saved = agent.explain(draws=16).saved
    assert saved is not None
    assert min(saved.curves["low"]) >= saved.curves["agent"][-1] == 0.1


def test_no_solo_agent_takes_a_point_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins with a design of its own; the agent began with tips."""
    federation, f = Federation(SPACE), wave(4)
    agent = Agent(federation, TipsThenPool(), name="a", seed=6)
    agent.receive(peers(f, federation, 0.3, count=4))
    run(agent, f, 12)
    places: dict[Solo, list[Array]] = {}
    tell = Solo.tell

    def listen(self: Solo, x: Array, score: float) -> None:
        places.setdefault(self, []).append(x)
        tell(self, x, score)

    monkeypatch.setattr(Solo, "tell", listen)
    agent.explain(draws=4)
    assert {len(points) for points in places.values()} == {12}
    assert len({tuple(x) for points in places.values() for x in points[:3]}) == 12
    for points in map(np.array, places.values()):
        gaps = np.abs(points[3:, None] - points[:3]).max(axis=2)
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
def test_verdicts_are_right_or_undecided(policy: Policy, without_peers: Policy) -> None:
    """Against real runs with and without peers, which are good in every other federation.

    At most 1 verdict of 12 contradicts what is saved on average; 3 of 4 real solo runs, or more,
    lie inside the interval; and where peers clearly help, some verdicts say so. As in a replay, a
    solo run counts as no better than the best of the agent. With FTS, agents begin with initial
    points, which are the same for all.
    """
    trials, federation = 20, Federation(SPACE)
    wrong, held, clear = 0, [], []

    def curve(with_policy: Policy, seed: int, mail: list[Message]) -> tuple[Agent, Array]:
        start = None if policy.begins else [dict(a=x, b=y) for x, y in points.tolist()]
        agent = Agent(federation, with_policy, name="a", seed=seed, initial=start)
        agent.receive(mail)
        return agent, np.maximum.accumulate(f(run(agent, f, trials)))

    for k in range(12):
        f, points = wave(50 + k), np.random.default_rng(k).random((3, 2))
        mail = peers(f, federation, strangeness=0.3 if k % 2 else 1.0)
        agents = [curve(policy, 100 * k + seed, mail) for seed in range(4)]
        solos = [curve(without_peers, 100 * k + 50 + seed, [])[1] for seed in range(4)]
        real = np.array(
            [[saving([a], [np.minimum(u, a[-1])]).median for u in solos] for _, a in agents]
        )
        saved = agents[0][0].explain(draws=24).saved
        assert saved is not None
        verdict = (saved.low > 0) - (saved.high < 0)
        wrong += bool(verdict * real.mean() < 0)
        held += [saved.low <= one <= saved.high for one in real[0]]
        clear += [verdict > 0] if real.mean() > 3.0 else []
    assert wrong <= 1
    assert np.mean(held) > 0.75
    assert len(clear) >= 3 and any(clear)


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
    left = figure.draw(replace(explained, agent="$$"), tmp_path / "p.png").axes[0]
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
