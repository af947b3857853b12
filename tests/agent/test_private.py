"""Agents in a private federation: what they contribute, and what they hear."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from contracts.releases import contribution, private, released

from fedbo import Agent, Federation, FileRefused, Float, Settings
from fedbo.message import MessageRefused, Release
from fedbo.privacy import Plan
from fedbo.privacy.release import voted_points

SQUARE = {"x": Float(0, 1), "y": Float(0, 1)}
PLAN = Plan(epsilon=20.0, delta=1e-2, releases=2)
OURS = private(SQUARE, PLAN)
FIRST, SECOND = 5, 40  # the cells that most members vote for
LOCAL = Settings(local_epsilon=2.0)


def voted(
    agreed: Federation = OURS, sequence: int = 1, cells: tuple[int, int] = (5, 40)
) -> Release:
    """A release with 30 votes for one cell and 15 for another."""
    many = [cells[0]] * 30 + [cells[1]] * 15
    sent = [contribution(agreed, f"site-{i}", cell=cell) for i, cell in enumerate(many)]
    return released(agreed, sent, sequence=sequence)


def params(agreed: Federation, cell: int) -> dict[str, object]:
    return agreed.space.decode(agreed.cells[cell])


def taught(agreed: Federation = OURS, n: int = 6, seed: int = 0, **given: object) -> Agent:
    """An agent with some scores, which are best near (0.2, 0.7)."""
    agent = Agent(agreed, name="site-a", seed=seed, **given)  # type: ignore[arg-type]
    for x, y in np.random.default_rng(seed).random((n, 2)).tolist():
        agent.tell({"x": x, "y": y}, -((x - 0.2) ** 2) - (y - 0.7) ** 2)
    return agent


# What it sends


def test_nobody_learns_how_many_trials_were_feasible() -> None:
    for bad in range(4):
        agent = Agent(OURS, name="site-a", seed=0)
        for i in range(3):
            agent.tell({"x": 0.1, "y": 0.3 * i}, i, [1.0 if 3 - i <= bad else -1.0])
            [sent] = Agent.messages([agent])
            assert (sent.t_n, sent.sequence) == (i + 1, i + 1)
        OURS.check(sent)
    assert not sent.y.any()


def test_its_message_is_a_contribution() -> None:
    agent = taught()
    sent = agent.message()
    assert (sent.kind, sent.t_n, sent.sequence, sent.local_epsilon) == ("contribution", 6, 6, None)
    best = max(agent.trials, key=lambda trial: trial.score or -9)
    assert sent.cell == OURS.cell(OURS.space.encode(best.params))
    assert np.linalg.norm(sent.y) == pytest.approx(1.0, abs=1e-6)
    OURS.check(sent)
    assert agent.account.sent.messages == 1


# What it hears


def test_contributions_are_refused() -> None:
    agent = Agent(OURS, name="site-b", seed=0)
    sent = taught().message()
    for given in (sent, sent.encode(), [voted(), sent]):
        with pytest.raises(MessageRefused, match="is a contribution, which is for 'hub' only"):
            agent.receive(given)
    assert len(agent.inbox) == 0
    assert agent.ask().params != params(OURS, FIRST)


def test_the_first_trials_are_the_cells_with_most_votes() -> None:
    agent = Agent(OURS, seed=0)
    assert agent.receive(voted()) == 1
    first = agent.ask()
    assert (first.source, first.credit) == ("tip", {"hub": pytest.approx(1.0)})
    assert OURS.cell(OURS.space.encode(first.params)) in (FIRST, SECOND)


def test_votes_outside_of_its_ranges_are_left_out() -> None:
    x = float(OURS.cells[SECOND][0])
    within = {"x": Float(max(0.0, x - 0.01), min(1.0, x + 0.01))}
    agent = Agent(OURS, seed=0, within=within)
    agent.receive(voted())
    for trial in agent.ask(4):
        assert trial.params != params(OURS, FIRST)
        assert abs(float(trial.params["x"]) - x) < 0.01 + 1e-9


def test_a_later_release_has_the_last_word() -> None:
    agent = Agent(OURS, seed=0)
    agent.receive(voted())
    later = voted(sequence=2, cells=(20, 30))
    agent.receive(later)
    assert agent.receive(voted()) == 0
    assert OURS.space.encode(agent.ask().params) in voted_points(OURS, later)


def test_a_forgotten_release_leaves_no_votes() -> None:
    agent = Agent(OURS, seed=0)
    agent.receive(voted())
    agent.forget(["hub"])
    assert agent.ask().params == Agent(OURS, seed=0).ask().params


# Randomised votes


def local(least_trials: int, epsilon: float = 2.0) -> Federation:
    return private(SQUARE, Plan(epsilon=epsilon, delta=1e-3, least_trials=least_trials))


def test_an_agent_that_trusts_nobody_sends_a_vote_only() -> None:
    sent = taught(settings=LOCAL).message()
    assert sent.local_epsilon == 2.0 and not sent.y.any()
    OURS.check(sent)


def test_its_vote_never_changes(tmp_path: Path) -> None:
    """Over scores, save and load, for 20 agents with little privacy and much noise."""
    agreed = local(3)
    for seed in range(20):
        agent = taught(agreed, n=3, seed=seed, settings=LOCAL)
        cell = agent.message().cell
        for i, point in enumerate(np.random.default_rng(99 - seed).random((5, 2)).tolist()):
            agent.tell({"x": point[0], "y": point[1]}, 10.0 * (i + 1))
            assert agent.message().cell == cell
        agent.save(tmp_path / "agent")
        again = Agent.load(tmp_path / "agent")
        again.tell({"x": 0.5, "y": 0.5}, 1e6)
        assert again.message().cell == cell


def test_its_vote_stays_when_later_scores_make_the_first_ones_look_alike() -> None:
    """Bad scores are compressed: the first five would all be the worst of a hundred."""
    agreed = local(5)
    agent = Agent(agreed, name="site-a", seed=3, settings=Settings(local_epsilon=50.0))
    for i in range(5):
        agent.tell({"x": 0.02 + 0.2 * i, "y": 0.5}, -1e9 + 1e-3 * i)
    cell = agent.message().cell
    assert cell == agreed.cell(np.array([0.82, 0.5]))
    for i, x in enumerate(np.linspace(0, 1, 120).tolist()):
        agent.tell({"x": x, "y": 0.9}, float(i % 7))
    assert agent.message().cell == cell


def test_it_votes_when_it_has_as_many_scores_as_the_plan_asks_for() -> None:
    agreed = local(3)
    agent = Agent(agreed, name="site-a", seed=0, settings=Settings(local_epsilon=50.0))
    for i in range(3):
        with pytest.raises(ValueError, match=r"nothing to hand out yet: .* least_trials, 3, first"):
            agent.message()
        assert Agent.messages([agent]) == []
        agent.tell({"x": 0.1, "y": 0.1}, float(i))
    assert agent.message().cell == agreed.cell(np.array([0.1, 0.1]))


@pytest.mark.parametrize(
    ("first", "second"),
    [((0.05, 1.0), (0.95, 1.0)), ((0.05, 0.5), (0.05, 1.0))],
    ids=["another cell", "another epsilon"],
)
def test_a_vote_that_changes_is_not_the_truth_for_sure(
    first: tuple[float, float], second: tuple[float, float]
) -> None:
    """Two votes of an agent are randomised independently, so that their costs add up."""
    truth, changed, true = private().cell(np.array([second[0]])), 0, 0
    for seed in range(100):
        votes = []
        for x, epsilon in (first, second):
            settings = Settings(local_epsilon=epsilon)
            agent = Agent(private(), name="site-a", seed=seed, settings=settings)
            agent.tell({"x": x}, 1.0)
            votes.append(agent.message().cell)
        changed += votes[0] != votes[1]
        true += votes[0] != votes[1] == truth
    assert 0 < true < 0.6 * changed


def test_a_saved_agent_gives_no_vote_with_another_epsilon(tmp_path: Path) -> None:
    agent = taught(settings=LOCAL)
    agent.save(tmp_path / "agent")
    more = Settings(local_epsilon=4.0)
    assert Agent.load(tmp_path / "agent", settings=more).settings == more  # it has not voted yet
    vote = agent.message()
    agent.save(tmp_path / "agent")
    for settings in (more, Settings()):
        with pytest.raises(FileRefused, match=r"a vote with local_epsilon = 2\.0"):
            Agent.load(tmp_path / "agent", settings=settings)
    assert Agent.load(tmp_path / "agent").message() == vote


def test_votes_of_many_agents_are_randomised_as_they_should_be() -> None:
    """Of 600 agents with one best cell, the share that names it, within 4.5 standard errors."""
    line = private(plan=Plan(epsilon=2.0, delta=1e-3))
    n, e = len(line.cells), np.exp(2.0)
    right = e / (e + n - 1)
    votes: Counter[int | None] = Counter()
    for seed in range(600):
        agent = Agent(line, name="site-a", seed=seed, settings=LOCAL)
        agent.tell({"x": 0.3}, 1.0)
        votes[agent.message().cell] += 1
    share = votes[line.cell(np.array([0.3]))] / 600
    assert share == pytest.approx(right, abs=4.5 * np.sqrt(right * (1 - right) / 600))
    assert len(votes) == n


def test_federations_get_other_votes() -> None:
    """Else two federations together would tell no more, but one could be told by the other."""
    cells = []
    for seed in (0, 1):
        agreed = private(SQUARE, Plan(epsilon=2.0, delta=1e-3), seed=seed)
        agents = [taught(agreed, seed=i, settings=Settings(local_epsilon=0.1)) for i in range(20)]
        cells.append([agent.message().cell for agent in agents])
    assert cells[0] != cells[1]


def test_without_a_plan_nobody_is_left_to_believe_in_local_privacy() -> None:
    """An ordinary message would leave."""
    with pytest.raises(ValueError, match=r"local_epsilon is 2.0, but .* has no privacy plan"):
        Agent(Federation(SQUARE), name="site-a", settings=LOCAL)
