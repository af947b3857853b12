"""Sites that start at once: who meets whom, and who knows what when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fedbo
from fedbo.exchange.timing import due
from fedbo_paper.contests import contest, grounds, table, together


class Curious(fedbo.TS, frozen=True):
    """Thompson sampling that notes how many messages its agent holds at each query."""

    held: ClassVar[list[int]] = []

    def query(self, target: fedbo.Target) -> fedbo.Query:
        self.held.append(len(target.inbox))
        return super().query(target)


@pytest.mark.parametrize(("targets", "k"), [([0, 1, 2, 3, 4], 2), ([1, 3], 3), ([0, 2, 4], 5)])
def test_groups_have_one_size_and_every_target_is_recorded_once(
    targets: list[int], k: int, ground: grounds.Listed
) -> None:
    for seed in range(5):
        found = together.groups(ground, targets, k, seed)
        assert sorted(task for _, recorded in found for task in recorded) == targets
        for group, recorded in found:
            assert len(group) == len({*group}) == k and {*recorded} <= {*group}
            assert {*group} <= {*range(5)}
    assert found == together.groups(ground, targets, k, 4)
    others = [together.groups(ground, targets, k, seed) for seed in range(20)]
    assert any(each != found for each in others)


def test_groups_are_filled_up_with_tasks_that_are_no_targets(ground: grounds.Listed) -> None:
    [(group, recorded)] = together.groups(ground, [1, 3], 4, 0)
    assert {*recorded} == {1, 3} and len({*group} & {0, 2, 4}) == 2


def test_sites_take_turns_and_hear_of_each_other_before_each_query(
    ground: grounds.Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, list[int]] = {}
    make = fedbo.Agent.message

    def message(agent: fedbo.Agent) -> fedbo.Message:
        made = make(agent)
        sent.setdefault(made.sender, []).append(made.sequence)
        return made

    monkeypatch.setattr(fedbo.Agent, "message", message)
    monkeypatch.setitem(contest.POLICIES, "curious", Curious)
    Curious.held.clear()
    scores = together.play(ground, "curious", [4, 0, 2], [4, 2], 6, 8)
    assert [*scores] == [("curious", 4, 6), ("curious", 2, 6)]
    assert Curious.held == [2] * 15  # everyone published after the first initial point
    for task in (4, 2):
        values = scores["curious", task, 6]
        assert len(values) == 8
        assert values[:3] == [ground.score(task, params) for params in ground.initial(task, 6)]
        assert sent[f"task-{task}"] == due(values)
    assert sent["task-0"][0] == 1


def test_a_site_holds_the_latest_message_of_each_other_site(
    ground: grounds.Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[dict[str, int]] = []
    receive = fedbo.Agent.receive

    def watched(agent: fedbo.Agent, messages: Any) -> int:
        held.append({message.sender: message.sequence for message in messages})
        return receive(agent, messages)

    monkeypatch.setattr(contest.fedbo.Agent, "receive", watched)
    together.play(ground, "FTS", [1, 3], [1, 3], 0, 4)
    turns = held[2:]  # after the two that `contest.site` makes
    assert turns[:3] == [{}, {"task-1": 1}, {"task-3": 1}]
    assert all(len(each) == 1 for each in turns[1:])


def test_alone_and_together_start_at_the_same_points(path: Path, command: Any) -> None:
    out = path.with_name("out.json")
    short = ("--seeds", 2, "--jobs", 1, "--trials", 8, "--policies", "FTS,random")
    command(table, path, *short, "--together", 2, "--json", out)
    result = json.loads(out.read_text())
    assert [*result["policies"]] == ["EI", "TS", "FTS", "random"]
    assert (result["peers"], result["history"], result["together"]) == (1, 0, 2)
    runs = {name: np.array(values) for name, values in result["runs"].items()}
    for values in runs.values():
        assert values.shape == (3, 2, 8)
        np.testing.assert_array_equal(values[:, :, 0], runs["EI"][:, :, 0])


def test_more_sites_than_tasks(path: Path, command: Any) -> None:
    with pytest.raises(SystemExit, match="--together is 4, but there are 3 tasks"):
        command(table, path, "--together", 4, "--policies", "FTS", "--jobs", 1)


@pytest.mark.slow
def test_optuna_is_not_needed() -> None:
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from fedbo_paper.contests import families, grounds, together\n"
        "ground = grounds.Listed(*families.make('similar', 1, tasks=2, points=20))\n"
        "print(len(together.play(ground, 'FTS', [0, 1], [0, 1], 0, 5)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
