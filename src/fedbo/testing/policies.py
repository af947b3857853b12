"""What every policy must do, as tests. The contract in words is `fedbo.Policy`."""

from __future__ import annotations

import contextlib
import copy
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
import threadpoolctl  # type: ignore[import-untyped]

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.agent.trial import Trial
from fedbo.errors import FileRefused, MessageRefused
from fedbo.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message import Kind
from fedbo.model.surrogate import SurrogateSettings
from fedbo.policy import Policy, Query, Source
from fedbo.space import Direction, Space
from fedbo.testing.bad_messages import BAD, hostile
from fedbo.testing.parties import (
    LISTED,
    LISTED_POINTS,
    MIXED,
    PLANE,
    M,
    asked,
    bowl,
    bump,
    cube,
    learn,
    messages,
    peer,
    run,
)

ROUNDS = 8  # trials of a short run: at most four tips and initial points, then queries
# About 1e-9, 1e9 and 1e300; powers of two, so that scaling is exact.
TINY, HUGE, VAST = 2.0**-30, 2.0**30, 2.0**997


class PolicyContract:
    """The tests of a policy: inherit them, and override the fixture `policy`.

    They take some ten seconds.

    Attributes:
        kind: The kind of message of the federations ("compact"). "weights" or "belief" for a policy
            that cannot use compact ones.
        listens: Whether messages of peers may change its queries (True).
        in_file: Whether `fedbo.Agent.save` writes the policy itself (False). It does so for fedbo's
            own policies only.
        sources: Where its queries may come from ("own" and "peer").

    ```python
    import pytest
    from fedbo.testing import PolicyContract

    class TestMine(PolicyContract):
        kind = "weights"

        @pytest.fixture
        def policy(self):
            return Mine
    ```
    """

    kind: Kind = "compact"
    listens = True
    in_file = False
    sources: frozenset[Source] = frozenset({"own", "peer"})

    @pytest.fixture
    def policy(self) -> Callable[[], Policy]:
        """Return a function that makes the policy under test, such as its class."""
        name = type(self).__name__
        raise NotImplementedError(
            f"{name} has no fixture that names its policy: override policy(self), marked with "
            "@pytest.fixture, and return the policy's class"
        )

    @pytest.fixture(autouse=True)
    def _take_policy(self, policy: Callable[[], Policy]) -> None:
        self._new = policy

    # What the tests are built from

    def federation(self, space: Any = PLANE, **agreed: Any) -> Federation:
        return Federation(space, **{"features": M, "seed": 7, "kind": self.kind, **agreed})

    def agent(
        self,
        federation: Federation | None = None,
        peers: int = 3,
        *,
        policy: Policy | None = None,
        seed: int = 5,
        **options: Any,
    ) -> Agent:
        """An agent with the policy, and with the messages of so many peers."""
        federation = self.federation() if federation is None else federation
        policy = self._new() if policy is None else policy
        agent = Agent(federation, policy, name="me", seed=seed, **options)
        assert agent.receive(messages(federation, peers)) == peers
        return agent

    def reloaded(self, agent: Agent, path: Path) -> Agent:
        """The agent after a way through a file."""
        agent.save(path)
        if self.in_file:
            return Agent.load(path)
        with pytest.raises(FileRefused, match="policy"):
            Agent.load(path)
        return Agent.load(path, policy=self._new())

    def starts(self, agent: Agent) -> int:
        """How many initial points come before the policy is called at all."""
        return 0 if agent.policy.begins else len(agent.initial_design(0))

    def check_sources(self, agent: Agent) -> None:
        """Initial points come first, and only queries of the policy are numbered, from 1.

        A failed trial does not count. Trials must not be told in another order than asked for.
        """
        t, first = 1, self.starts(agent)
        assert [trial.source for trial in agent.trials[:first]] == ["initial"] * first
        for trial in agent.trials:
            self.comes_from_somewhere(trial, agent)
            if trial.t is not None:
                assert trial.t == t
                t += trial.state != "failed"

    def goes_on(self, agent: Agent, n: int = 3) -> None:
        """The agent makes n more queries, all of them allowed points, and hands out a message."""
        space, first = agent.federation.space, len(agent.trials)
        run(agent, n)
        for trial in agent.trials[first:]:
            self.comes_from_somewhere(trial, agent)
            assert space.decode(space.encode(trial.params)) == trial.params
        Shared.of(agent.federation).check(agent.message())

    def comes_from_somewhere(self, trial: Trial, agent: Agent) -> None:
        """A trial says truly who proposed it."""
        peers = {agent.inbox.sender(row) for row in range(len(agent.inbox))}
        assert trial.source in {"initial", *self.sources}
        assert (trial.t is None) == (trial.source in ("initial", "tip"))
        if trial.source == "peer":
            assert trial.peer in peers
            assert trial.credit == {trial.peer: 1.0}
            return
        assert trial.peer is None
        if trial.source in ("tip", "pool"):
            assert trial.credit.keys() <= peers
            assert trial.credit, (
                "a query of a tip or the pool has the shares of its peers as credit"
            )
            assert min(trial.credit.values()) > 0.0
            assert sum(trial.credit.values()) <= 1.0 + 1e-9
        else:
            assert trial.credit == {}

    # The same seed and the same answers give the same queries

    def test_a_file_at_every_step_changes_nothing(self, tmp_path: Path) -> None:
        straight = run(self.agent(), ROUNDS)
        agent = self.agent()
        score = bowl(agent.federation)
        for _ in range(ROUNDS):
            agent = self.reloaded(agent, tmp_path / "agent")
            trial = agent.ask()
            agent = self.reloaded(agent, tmp_path / "agent")
            agent.tell(trial, score(trial.params))
        assert asked(agent) == asked(straight)
        assert agent.policy == straight.policy == self._new()
        assert agent.message() == straight.message()

    def test_a_file_amid_parallel_asks_and_new_messages(self, tmp_path: Path) -> None:
        def story(way: Callable[[Agent], Agent]) -> Agent:
            agent = run(way(self.agent()), 5)
            trials = [agent.ask(), agent.ask()]
            agent = way(agent)
            agent.receive([peer(agent.federation, i, trials=9).message() for i in (1, 5)])
            agent = way(agent)
            trials.append(agent.ask())
            agent = way(agent)
            agent.tell(trials[2], 0.0)
            agent.tell(trials[1], -1.0)
            agent.tell(trials[0], None)
            return run(way(agent), 3)

        through_files = story(lambda agent: self.reloaded(agent, tmp_path / "agent"))
        assert asked(through_files) == asked(story(lambda agent: agent))

    def test_handing_out_messages_does_not_disturb_queries(self) -> None:
        quiet, talking = run(self.agent(), ROUNDS), self.agent()
        for _ in range(ROUNDS):
            run(talking, 1)
            first = talking.message()
            assert talking.message() == first
        assert asked(quiet) == asked(talking)

    def test_no_randomness_but_the_agents_own(self) -> None:
        before = random.getstate(), np.random.get_state()
        run(self.agent(), 6)
        after = random.getstate(), np.random.get_state()
        assert before[0] == after[0]
        assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))

    def test_a_policy_keeps_no_state(self) -> None:
        """One object shared by two agents, turn by turn, is as good as two objects."""
        shared, first = self._new(), copy.deepcopy(self._new())
        apart: list[Agent] = []
        together: list[Agent] = []
        for policy, agents in ((None, apart), (shared, together)):
            for seed, space in ((1, PLANE), (2, cube(3))):
                agents.append(self.agent(self.federation(space), policy=policy, seed=seed))
        for agent in apart:
            run(agent, ROUNDS)
        for _ in range(ROUNDS):
            for agent in together:
                run(agent, 1)
        assert [asked(agent) for agent in together] == [asked(agent) for agent in apart]
        assert shared == first
        assert repr(shared) == repr(first)

    # Messages

    def test_peers_that_know_nothing_much_or_the_same(self) -> None:
        """One trial, constant scores, more trials than features, two that are one."""
        agent = self.agent(peers=0)
        federation = agent.federation
        mail = [peer(federation, i, trials).message() for i, trials in enumerate((1, 2, 3 * M))]
        mail.append(peer(federation, 3, objective=lambda params: 1.0).message())
        mail += [msgspec.structs.replace(mail[2], sender=f"peer-{i}") for i in (4, 5)]
        assert agent.receive(mail) == 6
        run(agent, 3)
        self.goes_on(agent, 6)

    def test_whether_it_listens(self) -> None:
        alone, helped = run(self.agent(peers=0), 10), run(self.agent(peers=3), 10)
        assert (asked(alone) != asked(helped)) == self.listens

    @pytest.mark.parametrize("kind", get_args(Kind))
    def test_kinds_of_messages(self, kind: Kind) -> None:
        """A kind that the policy can use works; any other is refused before anything is asked."""
        federation = self.federation(kind=kind)
        if kind in self._new().kinds:
            self.goes_on(run(self.agent(federation), 3), 2)
        else:
            assert kind != self.kind
            with pytest.raises(ValueError, match=re.escape(f"'{kind}'")):
                Agent(federation, self._new())

    def test_a_new_message_amid_a_run(self) -> None:
        agent, same = run(self.agent(), 5), run(self.agent(), 5)
        sender = peer(agent.federation, 0)
        old = sender.message()
        new = learn(sender, 5, bowl(agent.federation, 0.8)).message()
        assert agent.receive(new) == 1
        for stale in (new, old):
            assert agent.receive(stale) == 0  # twice, or overtaken: as if it had never come
        assert same.receive(new) == 1
        assert len(agent.inbox) == len(same.inbox) == 3
        assert asked(run(agent, 4)) == asked(run(same, 4))
        self.goes_on(agent)

    @pytest.mark.parametrize("fault", BAD)
    def test_a_bad_message_is_refused_and_changes_nothing(self, fault: str, tmp_path: Path) -> None:
        agent = run(self.agent(), 4)
        good = messages(agent.federation, 5)
        before, tried = saved(agent, tmp_path), 0
        for bad in BAD[fault](agent.federation):
            with pytest.raises(MessageRefused):
                agent.receive(bad)
            with pytest.raises(MessageRefused):
                agent.receive([*good, bad])
            assert saved(agent, tmp_path) == before
            tried += 1
        assert tried
        self.goes_on(agent, 1)

    def test_hostile_numbers_do_no_harm(self) -> None:
        """Whatever is not refused must leave the policy able to ask."""
        agent = run(self.agent(), 3)
        for data in hostile(agent.federation):
            with contextlib.suppress(MessageRefused):
                agent.receive(data)
        self.goes_on(agent, 5)

    # Trials that end in another way

    def test_failed_trials(self) -> None:
        agent = run(self.agent(), 4)
        for _ in range(4):
            failed = agent.tell(agent.ask(), None)
            assert (failed.state, failed.score) == ("failed", None)
            run(agent, 1)
        self.check_sources(agent)
        self.goes_on(agent)

    def test_nothing_but_failures(self) -> None:
        """Given initial points are not replaced: the policy is asked without any observation."""
        points = [{"x": 0.1, "rate": 1.0}, {"x": 0.9, "rate": 0.1}]
        agent = self.agent(initial=points)
        for _ in range(8):
            agent.tell(agent.ask(), None)
        assert agent.best is None
        self.check_sources(agent)
        initial = [trial.params for trial in agent.trials if trial.source == "initial"]
        assert initial == points
        self.goes_on(agent)

    @pytest.mark.parametrize("told", [0, 3])
    def test_parallel_asks_told_in_reverse(self, told: int) -> None:
        agents = [run(self.agent(), told) for _ in range(2)]
        for agent in agents:
            score = bowl(agent.federation)
            for size in (4, 3):
                batch = [agent.ask() for _ in range(size)]
                assert len({tuple(trial.params.values()) for trial in batch}) == size
                for trial in reversed(batch):
                    agent.tell(trial, score(trial.params))
        assert asked(agents[0]) == asked(agents[1])
        self.check_sources(agents[0])
        self.goes_on(agents[0])

    @pytest.mark.parametrize("peers", [0, 3])
    def test_it_does_not_insist_on_a_point_that_fails(self, peers: int) -> None:
        agent = run(self.agent(peers=peers), 5)
        points = [tuple(agent.tell(agent.ask(), None).params.values()) for _ in range(4)]
        assert len({*points}) == 4

    def test_told_trials(self) -> None:
        """Trials from elsewhere count as initial points, and say as much as asked ones."""
        donor = run(self.agent(), 6)
        agent = self.agent()
        for trial in donor.trials:
            agent.tell(trial.params, trial.score)
        assert [trial.source for trial in agent.trials] == ["told"] * 6
        assert agent.ask().source in self.sources - {"initial"}
        learn(agent, 3, bowl(agent.federation))
        self.goes_on(agent)

    # Spaces

    @pytest.mark.parametrize("peers", [0, 3])
    def test_no_listed_point_twice_until_all_were_tried(self, peers: int) -> None:
        """Pending, failed and told ones are tried as well."""
        space = Space(PLANE, points=LISTED_POINTS[:11])
        agent = self.agent(self.federation(space), peers, settings=Settings(n_initial=1))
        agent.tell(LISTED_POINTS[4], -0.5)
        batch = [agent.ask() for _ in range(3)]
        agent.tell(batch[1], None)
        run(agent, 7)
        seen = [tuple(trial.params.values()) for trial in agent.trials]
        assert len({*seen}) == len(seen) == 11
        self.goes_on(agent)

    @pytest.mark.parametrize("direction", ["maximize", "minimize"])
    def test_a_mixed_space(self, direction: Direction) -> None:
        agent = run(self.agent(self.federation(Space(MIXED, direction=direction))), 4)
        self.goes_on(agent, 5)
        types = {name: type(value) for name, value in agent.trials[-1].params.items()}
        assert types["layers"] is types["batch"] is types["width"] is int
        assert types["rate"] is types["momentum"] is float
        assert (types["bias"], types["kind"]) == (bool, str)

    def test_minimising_is_maximising_upside_down(self) -> None:
        directions: tuple[Direction, ...] = ("maximize", "minimize")
        up, down = (
            run(self.agent(self.federation(Space(PLANE, direction=direction))), ROUNDS)
            for direction in directions
        )
        assert asked(up) == asked(down)
        assert scores(up) == [-score for score in scores(down)]
        assert best(down) == min(scores(down))

    def test_queries_are_allowed_points_and_targets_stay_as_they_are(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = expected = 0
        real = type(self._new()).query

        def query(policy: Policy, target: Any) -> Query:
            nonlocal seen
            X, y = target.X.copy(), target.y.copy()
            answer = real(policy, target)
            assert np.array_equal(target.X, X)
            assert np.array_equal(target.y, y)
            assert isinstance(answer, Query)
            assert answer.x.shape == (target.space.dimensions,)
            assert answer.x.dtype == np.float64
            assert np.all((answer.x >= 0.0) & (answer.x <= 1.0))
            np.testing.assert_allclose(answer.x, target.space.snap(answer.x[None])[0], atol=1e-6)
            seen += 1
            return answer

        monkeypatch.setattr(type(self._new()), "query", query)
        for space in (PLANE, MIXED, LISTED):
            agent = run(self.agent(self.federation(space)), 6)
            expected += 6 - self.starts(agent)
        assert seen == expected >= 9

    # Scores of all sorts

    @pytest.mark.parametrize("scale", [TINY, HUGE, VAST], ids=["tiny", "huge", "vast"])
    def test_the_unit_of_scores_does_not_matter(self, scale: float) -> None:
        agent, reference = self.agent(), run(self.agent(), ROUNDS)
        score = bowl(agent.federation)
        run(agent, ROUNDS, lambda params: scale * score(params))
        assert asked(agent) == asked(reference)

    @pytest.mark.parametrize("value", [0.0, -1e9])
    def test_constant_scores(self, value: float) -> None:
        agent = run(self.agent(), 6, lambda params: value)
        self.goes_on(agent)

    # Settings of the agent

    def test_beyond_the_exact_limit(self, tmp_path: Path) -> None:
        """The own belief is no longer an exact GP; files still change nothing."""
        settings = Settings(surrogate=SurrogateSettings(exact_limit=6, refit_every=2))
        agent = run(self.agent(settings=settings), 9)
        again = self.reloaded(agent, tmp_path / "agent")
        assert asked(run(again, 3)) == asked(run(agent, 3))

    # Manners

    @pytest.mark.parametrize("n_initial", [0, 1, 3, 7])
    @pytest.mark.parametrize("peers", [0, 3])
    def test_as_many_initial_points_as_the_settings_say(self, n_initial: int, peers: int) -> None:
        """A policy that begins by itself may replace some of them if there are messages."""
        agent = self.agent(peers=peers, settings=Settings(n_initial=n_initial))
        for i in range(n_initial + 2):
            assert agent.starting == (i < n_initial)
            run(agent, 1)
        self.check_sources(agent)
        sources = [trial.source for trial in agent.trials]
        if agent.policy.begins and peers:
            assert sources.count("initial") <= n_initial
        else:
            assert sources[:n_initial] == ["initial"] * n_initial
            assert "initial" not in sources[n_initial:]

    def test_the_limit_on_threads_is_given_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inside: list[int] = []
        real = type(self._new()).query

        def query(policy: Policy, target: Any) -> Query:
            answer = real(policy, target)
            inside.extend(blas_threads())
            return answer

        def broken(policy: Policy, target: Any) -> Query:
            raise RuntimeError("no idea")

        agent = run(self.agent(), 3)
        with threadpoolctl.threadpool_limits(2, user_api="blas"):
            before = [*blas_threads()]
            monkeypatch.setattr(type(self._new()), "query", query)
            run(agent, 2)
            assert [*blas_threads()] == before
            monkeypatch.setattr(type(self._new()), "query", broken)
            with pytest.raises(RuntimeError, match="no idea"):
                agent.ask()
            assert [*blas_threads()] == before
        assert {*inside} == {1}

    # It is good for something

    @pytest.mark.parametrize(
        "advice, margin, runs",
        [(0, 0.15, 8), (1, 0.15, 8), (-1, 0.35, 32)],
        ids=["alone", "good", "bad"],
    )
    def test_it_beats_random_search(self, advice: int, margin: float, runs: int) -> None:
        """After 12 trials the mean regret is at most so much of what random search leaves.

        Without peers, with three that know nearly the same objective, or its opposite: that may
        cost one run much and another nothing, so it takes more of them.
        """
        federation = self.federation()
        score, rng = bump(federation), np.random.default_rng(0)
        helpers = [
            peer(federation, i, trials=12, objective=bump(federation, 0.02 * (i - 1), advice))
            for i in range(3 * abs(advice))
        ]
        regrets = []
        for seed in range(runs):
            agent = self.agent(federation, 0, seed=seed)
            agent.receive([helper.message() for helper in helpers])
            regrets.append(1.0 - best(run(agent, 12, score)))
        X = federation.space.sample(rng, 12 * 400)
        values = np.array([score(federation.space.decode(x)) for x in X])
        by_chance = 1.0 - values.reshape(400, 12).max(axis=1).mean()
        assert np.mean(regrets) < margin * by_chance


class BetaContract(PolicyContract):
    """The tests of a policy with a field ``beta``, β_t: those of `PolicyContract`, and one more."""

    def with_beta(self, beta: float | Sequence[float]) -> Policy:
        return msgspec.structs.replace(self._new(), beta=beta)

    def test_beta_scales_how_far_queries_scatter(self) -> None:
        """Without peers β = 0 asks at the mean's maximum, whatever the seed; β = 5 all over."""
        federation = self.federation(cube(1))
        points = [{"x0": x} for x in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)]
        spread = {}
        for beta in (0.0, 5.0):
            queries = []
            for seed in range(6):
                agent = self.agent(federation, 0, policy=self.with_beta(beta), seed=seed)
                for point in points:
                    agent.tell(point, bowl(federation)(point))
                queries.append(federation.space.encode(agent.ask().params)[0])
            spread[beta] = np.std(queries)
        assert spread[0.0] < 0.01
        assert spread[5.0] > 10 * spread[0.0]


def scores(agent: Agent) -> list[float]:
    """The scores of the trials that have one."""
    return [trial.score for trial in agent.trials if trial.score is not None]


def best(agent: Agent) -> float:
    """The best score."""
    assert agent.best is not None and agent.best.score is not None
    return agent.best.score


def saved(agent: Agent, folder: Path) -> bytes:
    """All of the agent's state, as its file has it."""
    agent.save(folder / "agent")
    return (folder / "agent").read_bytes()


def blas_threads() -> Iterator[int]:
    """How many threads each loaded BLAS may use now."""
    for library in threadpoolctl.threadpool_info():
        if library["user_api"] == "blas":
            yield library["num_threads"]
