"""What a private release is worth, on tiny tables and on invented regrets."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.federation import Plan
from fedbo_paper.contests import contest, grounds, private
from fedbo_paper.contests.contest import EI

SHORT = ("--seeds", 1, "--draws", 2, "--jobs", 1, "--trials", 5, "--history", 4)


def agreed(epsilon: float = 1.0) -> fedbo.Federation:
    plan = Plan(epsilon=epsilon, delta=1e-3)
    return fedbo.Federation({"x": fedbo.Float(0, 1)}, features=50, privacy=plan)


def contribution(x: float) -> fedbo.Message:
    agent = fedbo.Agent(agreed(), name=f"at {x}")
    agent.tell({"x": x}, 1.0)
    agent.tell({"x": 0.9}, 0.0)
    return agent.message()


def given(**changed: object) -> argparse.Namespace:
    usual = {"epsilon": [1.0, np.inf], "delta": 1e-3, "trials": 5, "history": 4}
    return argparse.Namespace(**usual | changed)


def test_a_table_from_file_to_json(path: Path, command: Any) -> None:
    out = path.with_name("out.json")
    command(
        private, path, *SHORT, "--members", "1", "--epsilon", "2,inf", "--messages", "--json", out
    )
    result = json.loads(out.read_text())
    assert (result["targets"], result["seeds"], result["draws"]) == (3, 1, 2)
    assert 0 < result["spent"]["2"] <= 2 and [*result["spent"]] == ["2"]
    assert [*result["members"]] == ["1"]
    found = result["members"]["1"]
    assert [*found["ratio_ei"]] == ["2", "inf", "messages"]
    assert [*found["ratio_null"]] == [*found["ratio_inf"]] == [*found["kept"]] == ["2"]
    assert [*found["ratio_messages"]] == [*found["spread"]] == ["2", "inf"]
    assert [*found["ratio_ei"]["2"]] == ["1", "2", "3", "5"]


def test_more_members_than_tasks_are_refused(path: Path, command: Any) -> None:
    with pytest.raises(SystemExit, match="--members has 3, but each of the 3 tasks of tiny has 2"):
        command(private, path, *SHORT, "--members", "2,3")


@pytest.mark.parametrize("text", ["0", "1,none", "-1", "nan"])
def test_only_numbers_above_0_are_an_epsilon(path: Path, command: Any, text: str) -> None:
    with pytest.raises(SystemExit):
        command(private, path, *SHORT, f"--epsilon={text}")


def test_synthetic_tables_have_as_many_tasks_as_the_largest_federation_needs() -> None:
    found = [*private.grounds(given(ground="synthetic", members=[3, 7]))]
    assert [ground.tasks for ground in found] == [8, 8, 8, 8]
    assert {ground.space.dimensions for ground in found} == {2, 4}


def test_one_draw_of_noise_serves_everybody() -> None:
    some = [contribution(x) for x in (0.1, 0.4, 0.6)]

    def noise(contributions: list, draw: int) -> np.ndarray:
        quiet, noisy = (
            private.publish(agreed(eps), contributions, [0, draw], 4) for eps in (1e6, 1.0)
        )
        return np.subtract(noisy.votes, quiet.votes)

    np.testing.assert_array_equal(noise(some[:2], 0), noise(some[1:], 0))
    assert (noise(some[:2], 0) != noise(some[:2], 1)).any()


def test_infinite_epsilon_leaves_the_votes_as_they_are() -> None:
    free = private.planned(Valley(), np.inf, 1e-3)
    alike = [contest.message(free, n, [({"x": 0.4}, 0.0)], 0) for n in range(3)]
    votes = private.publish(free, alike, [0, 0], 4).votes
    assert sorted(np.round(np.array(votes) / 64).tolist())[-2:] == [0, 3]


class Valley(grounds.Boxed):
    """One task, to be minimised: the lowest score is at 0.2."""

    def __init__(self) -> None:
        space = fedbo.Space({"x": fedbo.Float(0, 1)}, direction="minimize")
        super().__init__(space, 1, "valley", "")

    def score(self, task: int, params: dict) -> float:
        return float((params["x"] - 0.2) ** 2)


def test_a_member_that_minimises_votes_for_its_lowest_score() -> None:
    ground = Valley()
    here = private.planned(ground, 1.0, 1e-3)
    history = [({"x": x}, ground.score(0, {"x": x})) for x in (0.9, 0.2, 0.6)]
    assert contest.message(here, 0, history, 0).cell == here.cell(np.array([0.2]))


def test_a_newcomer_begins_in_the_cell_with_most_votes(ground: grounds.Listed) -> None:
    here = private.planned(ground, np.inf, 1e-3)
    history = [(ground.params(row), float(row == 7)) for row in range(10)]
    members = [contest.message(here, n, history, 0) for n in range(1, 5)]
    published = private.publish(here, members, [0, 0], 10)
    first, *_ = private.run(ground, here, published, 0, 0, 3)
    row = int(np.flatnonzero(ground.Y[0] == first)[0])
    assert here.cell(ground.X[row]) == here.cell(ground.X[7])


def test_a_score_is_computed_once() -> None:
    calls = []
    ground = grounds.Trained.__new__(grounds.Trained)
    ground._known = {}
    tasks = SimpleNamespace(objective=lambda task, seed: lambda params: calls.append(task) or 0.5)
    ground.problem = SimpleNamespace(tasks=lambda: tasks)
    scores = [ground.score(task, {"C": 1.0}) for task in (0, 0, 1)]
    assert scores == [0.5, 0.5, 0.5] and calls == [0, 1]


def test_ratios_gains_and_the_spread_of_invented_regrets() -> None:
    targets, seeds, draws = 4, 2, 3
    alone = np.full((targets, seeds, 8), 0.4)
    own = np.full((targets, seeds * draws, 8), 0.2) + np.tile([-0.1, 0.0, 0.1], seeds)[:, None]
    regret = {
        EI: alone,
        "1, 9 members": own,
        "inf, 9 members": np.full(own.shape, 0.1),
        "messages, 9 members": np.full(alone.shape, 0.3),
        "null 1, 9 members": np.full(own.shape, 0.4),
    }
    found = private.figures(regret, 9, given())
    ratios = {
        key: {eps: by_n["5"].value for eps, by_n in found[key].items()}
        for key in ("ratio_ei", "ratio_null", "ratio_inf", "ratio_messages", "kept")
    }
    assert ratios == {
        "ratio_ei": pytest.approx({"1": 1 / 2, "inf": 1 / 4, "messages": 3 / 4}),
        "ratio_null": pytest.approx({"1": 1 / 2}),
        "ratio_inf": pytest.approx({"1": 2.0}),
        "ratio_messages": pytest.approx({"1": 2 / 3, "inf": 1 / 3}),
        "kept": pytest.approx({"1": 2 / 3}),
    }
    assert found["spread"]["1"]["5"] == pytest.approx(0.1 / 0.4)
    assert found["spread"]["inf"]["5"] == pytest.approx(0.0)


def test_a_single_draw_has_no_spread() -> None:
    assert np.isnan(private.spread(np.ones((3, 2)), np.ones((3, 2))))
