"""One release in a federation: what members contribute, and what agents hear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedbo.agent import Agent
from fedbo.federation import Federation
from fedbo.policy import TipsThenPool
from fedbo.privacy import Plan
from fedbo.space import Float
from fedbo_paper.dp.comparison import Job, perform
from fedbo_paper.dp.methods import DELTA, ExpectedImprovement, Released
from fedbo_paper.problems.problems import Landmine

PLAN = Plan(epsilon=2.0, delta=DELTA)
FEDERATION = Federation({"x": Float(0, 1), "y": Float(0, 1)}, seed=3, privacy=PLAN)


@pytest.fixture
def agents() -> list[Agent]:
    """Six agents, which have tried ten random points of functions with maxima near each other."""
    found = []
    for n in range(6):
        rng = np.random.default_rng(n)
        agent = Agent(FEDERATION, TipsThenPool(), name=f"agent-{n}", seed=n, initial=[])
        for x, y in rng.random((10, 2)).tolist():
            agent.tell({"x": x, "y": y}, 5.0 - (x - 0.3 - 0.02 * n) ** 2 - (y - 0.6) ** 2)
        found.append(agent)
    return found


def heard(method: Released, agents: list[Agent], seed: int, t: int = 1) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [message.encode() for message in method.handed_out(t, agents, FEDERATION, rng)]


def test_a_release_is_heard_once_and_is_the_same_again(agents: list[Agent]) -> None:
    method = Released(name="release")
    [first] = method.handed_out(1, agents, FEDERATION, np.random.default_rng(5))
    assert (first.members, first.trials) == (6, 60)
    assert [first.encode()] == heard(method, agents, seed=5) != heard(method, agents, seed=6)
    assert heard(method, agents, seed=5, t=2) == []


def test_the_null_says_nothing_about_members(agents: list[Agent]) -> None:
    method = Released(name="null", is_empty=True)
    assert heard(method, agents[:3], seed=5) == heard(method, agents[3:], seed=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "sources"),
    [
        (ExpectedImprovement(name="EI"), {"own"}),
        (Released(name="release"), {"own", "pool"}),
        (Released(name="null", is_empty=True), {"own", "pool"}),
    ],
)
def test_a_run_is_complete_and_the_same_again(
    method: ExpectedImprovement | Released, sources: set[str], data: Path
) -> None:
    small = Job(problem=Landmine(), method=method, seed=0, agents=5, initial=4, rounds=4)
    table = perform(small, data)
    assert table.height == small.rows
    assert {*table.where(round=0)["source"].tolist()} == {"initial"}
    assert {*table["source"].tolist()} - {"initial"} <= sources
    assert table.csv() == perform(small, data).csv()
