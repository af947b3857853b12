"""Agents in a private federation: what they contribute, and what they hear."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.releases import contribution, private, released

from fedbo import Agent, Federation, Float
from fedbo.federation.shared import Shared
from fedbo.message import MessageRefused, Release
from fedbo.privacy import Plan
from fedbo.privacy.release import voted_points
from fedbo.testing.keys import keys_of

SQUARE = {"x": Float(0, 1), "y": Float(0, 1)}
PLAN = Plan(epsilon=20.0, delta=1e-2, releases=2)
OURS = private(SQUARE, PLAN)
SHARED = Shared.of(OURS)
FIRST, SECOND = 5, 40  # the cells that most members vote for


def voted(
    agreed: Federation = OURS, sequence: int = 1, cells: tuple[int, int] = (5, 40)
) -> Release:
    """A release with 30 votes for one cell and 15 for another."""
    many = [cells[0]] * 30 + [cells[1]] * 15
    sent = [contribution(agreed, f"site-{i}", cell=cell) for i, cell in enumerate(many)]
    return released(agreed, sent, sequence=sequence)


def params(agreed: Federation, cell: int) -> dict[str, object]:
    return agreed.space.decode(Shared.of(agreed).cells[cell])


def taught(agreed: Federation = OURS, n: int = 6, seed: int = 0, **given: object) -> Agent:
    """An agent with some scores, which are best near (0.2, 0.7)."""
    agent = Agent(agreed, name="site-a", seed=seed, **given)  # type: ignore[arg-type]
    for x, y in np.random.default_rng(seed).random((n, 2)).tolist():
        agent.tell({"x": x, "y": y}, -((x - 0.2) ** 2) - (y - 0.7) ** 2)
    return agent


# What it sends


def test_nobody_learns_how_many_trials_were_feasible() -> None:
    for bad in range(4):
        agent, cells = Agent(OURS, name="site-a", seed=0), set()
        for i in range(3):
            agent.tell({"x": 0.1, "y": 0.3 * i}, i, [1.0 if 3 - i <= bad else -1.0])
            [sent] = Agent.messages([agent])
            assert (sent.t_n, sent.sequence) == (i + 1, i + 1)
            cells.add(sent.body.cell)
        SHARED.check(sent)
    assert not sent.body.y.any()
    assert len(cells) == 1  # without a feasible trial, it votes for any cell, always for the same


def test_without_a_feasible_trial_it_votes_for_any_cell() -> None:
    cells = set()
    for seed in range(200):
        agent = Agent(OURS, name="site-a", seed=seed)
        agent.tell({"x": 0.1, "y": 0.3}, 1.0, [1.0])
        cells.add(agent.message().body.cell)
    assert len(cells) > 0.8 * len(SHARED.cells)


def test_its_message_is_a_contribution() -> None:
    agent = taught()
    sent = agent.message()
    assert (sent.kind, sent.t_n, sent.sequence) == ("contribution", 6, 6)
    best = max(agent.trials, key=lambda trial: trial.score or -9)
    assert sent.body.cell == SHARED.cell(OURS.space.encode(best.params))
    assert np.linalg.norm(sent.body.y) == pytest.approx(1.0, abs=1e-6)
    SHARED.check(sent)
    assert agent.account.sent.messages == 1


# What it hears


def test_contributions_are_refused() -> None:
    agent = Agent(OURS, name="site-b", seed=0)
    sent = taught(keys=keys_of("site-a")).message()
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
    assert SHARED.cell(OURS.space.encode(first.params)) in (FIRST, SECOND)


def test_votes_outside_of_its_ranges_are_left_out() -> None:
    x = float(SHARED.cells[SECOND][0])
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
    with pytest.raises(MessageRefused, match="a later one of this sender was heard here"):
        agent.receive(voted())
    assert OURS.space.encode(agent.ask().params) in voted_points(SHARED, later)


def test_a_forgotten_release_leaves_no_votes() -> None:
    agent = Agent(OURS, seed=0)
    agent.receive(voted())
    agent.forget(["hub"])
    assert agent.ask().params == Agent(OURS, seed=0).ask().params
