"""The agent as its user meets it: asking, telling, messages, files, and all that goes wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbo
from fedbo import (
    FTS,
    TS,
    Agent,
    Categorical,
    Federation,
    FederationMismatch,
    Float,
    Int,
    Origin,
    Settings,
    TipsThenPool,
)
from fedbo.federation.shared import Shared
from fedbo.message import Kind
from fedbo.trust import KeyPair
from fedbo_paper.preset import PaperSettings

SPACE = {"C": Float(1e-4, 10, log=True), "gamma": Float(1e-2, 10, log=True)}
MIXED = {
    "rate": Float(1e-3, 1, log=True),
    "layers": Int(1, 5),
    "batch": Int(16, 256, step=16),
    "kind": Categorical(["a", "b", "c"]),
}


def score(params: dict) -> float:
    return -sum((math.log10(value) - 0.3) ** 2 for value in params.values())


def run(agent: Agent, n: int, objective=score) -> Agent:
    for _ in range(n):
        trial = agent.ask()
        agent.tell(trial, objective(trial.params))
    return agent


def peers(federation: Federation, n: int = 4) -> list[fedbo.Message]:
    return [run(Agent(federation, TS(), name=f"p{i}", seed=i), 6).message() for i in range(n)]


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(SPACE, seed=7)


@pytest.fixture(scope="module")
def messages(federation: Federation) -> list[fedbo.Message]:
    return peers(federation)


def others(federation: Federation, objective: Any) -> list[Agent]:
    return [run(Agent(federation, TS(), name=f"p{i}", seed=i), 8, objective) for i in range(3)]


def numbers(agent: Agent) -> list[np.ndarray]:
    """What the agent's message says: the weights, or their mean and covariance."""
    message = agent.message()
    names = {"weights": ["omega"], "compact": ["nu", "counts"]}
    return [getattr(message.body, name) for name in names.get(message.kind, ["nu", "covariance"])]


def queries(agent: Agent) -> list[tuple]:
    return [(tuple(t.params.items()), t.source, t.peer, t.t) for t in agent.trials]


class TestAskAndTell:
    def test_a_failed_initial_point_is_replaced_by_another(self, federation: Federation) -> None:
        agent = Agent(federation, seed=0)
        failed = agent.tell(agent.ask(), None)
        run(agent, 3)
        assert [t.source for t in agent.trials] == ["initial"] * 4
        assert failed.params not in [t.params for t in agent.trials[1:]]
        assert agent.ask().source == "own"

    def test_a_new_message_makes_its_peer_drawable_again(self, federation: Federation) -> None:
        keys = KeyPair.generate()
        peer = run(Agent(federation, name="peer", seed=1, keys=keys), 5)
        agent = Agent(federation, FTS(schedule=1e-9), name="me", seed=0)
        agent.receive(peer.message())
        run(agent, 5)
        assert agent.receive(peer.message()) == 0  # the same message again
        assert run(agent, 1).trials[-1].source == "own"
        run(peer, 1)
        assert agent.receive(peer.message().encode()) == 1
        assert run(agent, 1).trials[-1].peer == "peer"


class TestMessages:
    @pytest.mark.parametrize("kind", get_args(Kind))
    def test_the_same_message_until_a_new_score(self, kind: Kind) -> None:
        agent = run(Agent(Federation(SPACE, seed=7, kind=kind), seed=0), 4)
        first = agent.message()
        trial = agent.ask()
        assert agent.message() == first
        agent.tell(trial, None)
        assert agent.message() == first
        run(agent, 1)
        assert agent.message().sequence > first.sequence
        name = "omega" if kind == "weights" else "nu"
        assert not np.array_equal(getattr(agent.message().body, name), getattr(first.body, name))

    @pytest.mark.parametrize("kind", ["weights", "belief"])
    def test_units_of_the_scores_do_not_matter(self, kind: Kind) -> None:
        federation = Federation(SPACE, seed=7, kind=kind)
        plain = run(Agent(federation, seed=0, name="a"), 8)
        scaled = Agent(federation, seed=0, name="a")
        for trial in plain.trials:
            scaled.tell(trial.params, 1e6 + 250.0 * trial.score)
        for one, other in zip(numbers(plain), numbers(scaled), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)

    @pytest.mark.parametrize("kind", get_args(Kind))
    def test_a_message_says_where_the_agent_did_well(self, kind: Kind) -> None:
        federation = Federation({"x": Float(0, 1)}, features=100, kind=kind)
        agent = Agent(federation, name="a", seed=0)
        for x in np.linspace(0, 1, 30):
            agent.tell({"x": float(x)}, -abs(x - 0.7))
        grid = np.linspace(0, 1, 501)[:, None]
        at = (
            Shared.of(federation).basis.coordinates(grid)
            if federation.is_compact
            else Shared.of(federation).phi(grid)
        )
        values = at @ numbers(agent)[0]
        assert abs(grid[np.argmax(values), 0] - 0.7) < 0.1

    def test_nothing_to_hand_out_yet(self, federation: Federation) -> None:
        with pytest.raises(ValueError, match=r"'me' has nothing to hand out yet"):
            Agent(federation, name="me").message()


class TestBadInput:
    @pytest.mark.parametrize(
        "bad",
        [
            float("nan"),
            -float("inf"),
            "high",
            True,
            1 + 0j,
            np.array([1.0]),
            np.timedelta64(3, "s"),
            10**400,
        ],
    )
    @pytest.mark.filterwarnings("error")
    def test_a_score_that_is_no_number(self, federation: Federation, bad: object) -> None:
        agent = run(Agent(federation, seed=0), 2)
        trial = agent.ask()
        with pytest.raises(ValueError, match=r"trial 2 with .* was told"):
            agent.tell(trial, bad)
        with pytest.raises(ValueError, match=r"trial 3 with .* was told"):
            agent.tell({"C": 1.0, "gamma": 1.0}, bad)
        assert len(agent.trials) == 3
        agent.tell(trial, 1.0)
        assert agent.best.score == 1.0

    @pytest.mark.parametrize("good", [2, np.int8(2), np.uint64(2), np.float32(2), np.array(2.0)])
    def test_a_score_of_any_real_type(self, federation: Federation, good: Any) -> None:
        trial = Agent(federation, seed=0).tell({"C": 1.0, "gamma": 1.0}, good)
        assert trial.score == 2.0 and type(trial.score) is float

    @pytest.mark.parametrize("changed", [{"C": 1.25}, {"c": 1}])
    def test_a_trial_whose_params_were_changed(
        self, federation: Federation, changed: dict[str, Any]
    ) -> None:
        agent = Agent(federation, seed=0)
        trial = agent.ask()
        asked = dict(trial.params)
        trial.params |= changed
        with pytest.raises(ValueError, match=r"trial 0 was asked with .* tell\(params, score\)"):
            agent.tell(trial, 1.0)
        trial.params = asked
        assert agent.tell(trial, 1.0).score == 1.0

    def test_a_trial_is_told_once(self, federation: Federation) -> None:
        agent = Agent(federation, seed=0)
        trial = agent.tell(agent.ask(), 0.5)
        with pytest.raises(ValueError, match=r"trial 0 was told already: it scored 0.5"):
            agent.tell(trial, 0.7)

    def test_a_foreign_trial(self, federation: Federation) -> None:
        trial = Agent(federation, seed=1).ask()
        with pytest.raises(ValueError, match=r"trial 0 .* was not asked of agent 'me'"):
            Agent(federation, name="me").tell(trial, 0.5)

    @pytest.mark.parametrize(("policy", "near"), [(TS(), 5), (TipsThenPool(), 1)])
    def test_two_thousand_observations(self, policy: fedbo.Policy, near: int) -> None:
        """Expected improvement soon finds nothing left around the best of so many points."""
        federation = Federation({"x": Float(0, 1), "z": Float(0, 1)})
        agent, rng = Agent(federation, policy, seed=0), np.random.default_rng(0)
        for x, z in rng.random((2000, 2)):
            agent.tell({"x": float(x), "z": float(z)}, float(-((x - 0.3) ** 2) - (z - 0.6) ** 2))
        run(agent, 5, lambda p: -((p["x"] - 0.3) ** 2) - (p["z"] - 0.6) ** 2)
        asked = np.array([[t.params["x"], t.params["z"]] for t in agent.trials[2000:][:near]])
        assert np.abs(asked - [0.3, 0.6]).max() < 0.15
        assert agent.message().t_n == 2005

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=12))
    def test_any_scores_give_a_query(self, scores: list[float]) -> None:
        federation = Federation({"x": Float(0, 1), "n": Int(1, 4)}, features=20)
        agent = Agent(federation, seed=0)
        for value in scores:
            agent.tell(agent.ask(), value)
        federation.space.encode(agent.ask().params)
        Shared.of(federation).check(agent.message())


class TestNothingIsLost:
    """What a caller does with a trial, or hands in as numbers, must not harm the agent."""

    def test_a_caller_may_change_the_trial_it_was_given(
        self, federation: Federation, tmp_path: Path
    ) -> None:
        agent = run(Agent(federation, seed=0), 3)
        trial = agent.ask()
        asked = dict(trial.params)
        told = agent.tell(trial, 9.0)
        trial.params.pop("C")
        told.params.clear()
        assert agent.best.params == asked
        agent.best.params.clear()
        agent.message()
        agent.save(tmp_path / "a")
        loaded = Agent.load(tmp_path / "a")
        assert loaded.best.params == asked
        assert loaded.ask() == agent.ask()

    def test_one_bad_chance_takes_no_message(self, federation: Federation, messages: list) -> None:
        class Wild(FTS, frozen=True):
            def chance(self, sender: str) -> float:
                return float("nan") if sender == "p2" else 1.0

        agent = Agent(federation, Wild(), seed=0)
        with pytest.raises(ValueError, match=r"Wild\.chance\('p2'\) is nan, expected"):
            agent.receive(messages)
        assert (len(agent.inbox), agent.account.received.messages) == (0, 0)


class TestFiles:
    def test_all_of_it(self, messages: list, tmp_path: Path) -> None:
        space = {**SPACE, "depth": Categorical(["None", None, 3])}
        agent = Agent(Federation(space), FTS(P_N={"p1": 2.0, "p2": 1.0}), seed=3)
        agent.tell({"C": 1.0, "gamma": 1.0, "depth": None}, 9.0)
        run(agent, 6, lambda p: p["C"])
        pending = agent.ask()
        agent.tell(agent.ask(), None)
        agent.save(tmp_path / "a")
        loaded = Agent.load(tmp_path / "a")
        assert loaded.trials == agent.trials and loaded.federation == agent.federation
        for name in ("name", "policy", "settings"):
            assert getattr(loaded, name) == getattr(agent, name)
        loaded.tell(pending, 0.0)
        assert loaded.best.params == {"C": 1.0, "gamma": 1.0, "depth": None}


class TestRepeats:
    """What becomes of a query at exactly the place of an earlier one."""

    @pytest.mark.parametrize("repeats", ["avoid", "allow"])
    def test_in_a_box_a_draw_may_be_largest_where_it_was_before(self, repeats: Any) -> None:
        federation, setting = Federation({"x": Float(0, 1)}, features=30), Settings(repeats=repeats)
        again = []
        for seed in range(8):
            agent = Agent(federation, TS(beta=0.0), seed=seed, settings=setting)
            for x in (0.0, 0.5, 1.0):
                agent.tell({"x": x}, x)
            first, second = (trial.params["x"] for trial in agent.ask(2))
            assert first == 1.0  # which has a score, but no trial is open there
            again.append(second == 1.0)
        assert all(again) == (repeats == "allow")  # a fresh own draw is sometimes largest there too


class TestPoliciesThatBegin:
    """A policy may choose the first trials too, and take initial points later or never."""

    class Hesitant(TS, frozen=True):
        """One initial point, one query of its own, and then the other initial points."""

        begins = True

        def query(self, target: fedbo.policy.Target) -> fedbo.Query:
            if target.initial is None or len(target.y) == 1:
                return super().query(target)
            return fedbo.Query(target.initial, Origin("initial"))

    def test_they_are_those_of_the_design(self, federation: Federation) -> None:
        whole = run(Agent(federation, TS(), seed=4), 3)
        agent = run(Agent(federation, self.Hesitant(), seed=4), 6)
        sources = [t.source for t in agent.trials]
        assert sources == ["initial", "own", "initial", "initial", "own", "own"]
        assert [t.t for t in agent.trials] == [None, 1, None, None, 2, 3]
        design = [t.params for t in agent.trials if t.source == "initial"]
        assert design == [t.params for t in whole.trials]


class TestAskingWithAKey:
    def test_randomness_is_the_keys_alone(self, federation: Federation) -> None:
        def asked(key: int, before: int) -> dict:
            agent = Agent(federation, TS(), seed=0)
            for i in range(5):
                agent.tell({"C": 0.01 * 4**i, "gamma": 0.3 + i}, float(i % 3))
            agent._rng.random(before)  # whatever it was asked for before
            return agent.ask(key=key).params

        assert asked(7, 0) == asked(7, 100)
        assert asked(7, 0) != asked(8, 0)

    def test_workers_that_start_together_start_apart(self, federation: Federation) -> None:
        """None of them sees what the others are trying."""
        first = [Agent(federation, seed=0).ask(key=key).params["C"] for key in range(4)]
        assert len({*first}) == 4
        one = Agent(federation, seed=0)
        assert [one.ask(key=key).params["C"] for key in (2, 0, 1)] == [first[2], first[0], first[1]]


class TestNarrowerRanges:
    WITHIN: ClassVar = {"rate": Float(0.01, 0.1, log=True), "layers": Int(2, 3)}

    @pytest.mark.parametrize(
        "policy", [TS(), FTS(), fedbo.TipsThenPool()], ids=lambda p: type(p).__name__
    )
    @pytest.mark.parametrize("maximiser", ["refine", "direct"])
    def test_it_asks_inside_them_only(self, policy: fedbo.Policy, maximiser: Any) -> None:
        federation = Federation(MIXED)
        agent = Agent(
            federation,
            policy,
            seed=0,
            within=self.WITHIN,
            settings=PaperSettings(direct=maximiser == "direct", repeats="allow"),
        )

        def outside_is_better(params: dict) -> float:
            return params["rate"] - params["layers"] + (params["kind"] == "a")

        agent.receive([peer.message() for peer in others(federation, outside_is_better)])
        agent.tell({"rate": 1.0, "layers": 1, "batch": 16, "kind": "a"}, 1.0)  # an old trial
        run(agent, 12, outside_is_better)
        asked = [trial.params for trial in agent.trials if trial.source != "told"]
        assert all(0.01 <= p["rate"] <= 0.1 and p["layers"] in (2, 3) for p in asked)
        assert {p["kind"] for p in asked} > {"a"} or len({p["batch"] for p in asked}) > 2

    @pytest.mark.parametrize(
        ("within", "why"),
        [
            ({"rate": Float(0.01, 2, log=True)}, "not all inside"),
            ({"rate": Float(0.01, 0.1)}, "expected a narrower range of"),
            ({"kind": Categorical(["a", "b"])}, "expected a narrower range of"),
            ({"momentum": Float(0, 1)}, "'momentum' is not in the space"),
            ({"batch": Int(20, 52, step=16)}, "not all inside"),
        ],
    )
    def test_what_is_not_narrower(self, within: dict, why: str) -> None:
        with pytest.raises(ValueError, match=why):
            Agent(Federation(MIXED), within=within)


class TestMembers:
    def test_a_new_list_is_taken_over(self) -> None:
        old, new = (Federation(SPACE, features=20, members={"a": bytes([i] * 32)}) for i in (1, 2))
        agent = run(Agent(old, name="a", seed=0), 2)
        message = agent.message()
        agent.set_members(new)
        assert agent.federation.members == new.members
        assert len(agent.trials) == 2 and agent.message() == message
        with pytest.raises(FederationMismatch, match="length_scale"):
            agent.set_members(Federation(SPACE, features=20, length_scale=0.5))
