"""A budget: what was planned is released, nothing else, and nothing is forgotten."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedbo.federation import Federation
from fedbo.files import FileRefused
from fedbo.privacy import Budget, BudgetSpent, Contribution, Plan, epsilon, mechanisms
from fedbo.space import Float

SPACE = {"x": Float(0, 1)}
PLAN = Plan(epsilon=2.0, delta=1e-3, releases=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.json"


def test_releases_are_numbered_and_the_last_planned_one_is_the_last(path: Path) -> None:
    budget = Budget(path, Federation(SPACE), PLAN)
    made = [budget.release([None] * 20, trials=100) for _ in range(3)]
    assert [one.sequence for one in made] == [1, 2, 3]
    assert [entry.members for entry in budget.entries] == [20, 20, 20]
    with pytest.raises(
        BudgetSpent, match=r"3 of 3 releases were made. .* of at most ε = 2 for all"
    ):
        budget.release([None] * 20, trials=100)
    assert len(budget.entries) == 3


def test_what_is_recorded_is_what_is_released(path: Path) -> None:
    budget = Budget(path, Federation(SPACE), PLAN)
    for members in (20, 400):  # whose second moments have other weights
        made = budget.release([None] * members, trials=100)
        assert mechanisms(made) == (budget.entries[-1].votes, budget.entries[-1].sums)
        assert (made.epsilon, made.delta, made.releases) == (2.0, 1e-3, 3)


@pytest.mark.parametrize("releases", [1, 2, 5])
def test_all_planned_releases_cost_no_more_than_planned(path: Path, releases: int) -> None:
    plan = Plan(epsilon=2.0, delta=1e-3, releases=releases)
    budget = Budget(path, Federation(SPACE), plan)
    spent = [budget.spent()]
    for _ in range(releases):
        budget.release([None] * 20, trials=100)
        spent.append(budget.spent())
    assert spent[0] == 0.0 and spent == sorted(spent)
    assert 1.5 < spent[-1] <= 2.0  # the more releases, the more is lost by adding up the votes
    each = [m for entry in budget.entries for m in (entry.votes, entry.sums)]
    assert spent[-1] == epsilon(each, 1e-3)


@pytest.mark.parametrize(
    "given",
    [
        {"contributions": []},
        {"contributions": [Contribution(0, np.full(7, np.nan))]},
        {"contributions": [Contribution(99, np.ones(7))]},
        {"trials": -1},
        {"sender": "x" * 60},
    ],
)
def test_what_is_refused_costs_nothing(path: Path, given: dict) -> None:
    budget = Budget(path, Federation(SPACE), PLAN)
    with pytest.raises(ValueError):
        budget.release(**{"contributions": [None] * 20, "trials": 100} | given)
    assert not budget.entries


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Budget(tmp_path / "nowhere" / "budget.json", Federation(SPACE), PLAN)


def test_a_later_version_of_the_file_is_refused(path: Path) -> None:
    Budget(path, Federation(SPACE), PLAN)
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(FileRefused, match="has version 2"):
        Budget(path, Federation(SPACE))


def test_it_is_kept_in_its_file(path: Path) -> None:
    Budget(path, Federation(SPACE), PLAN).release([None] * 20, trials=100)
    again = Budget(path, Federation(SPACE))
    assert again.plan == PLAN
    assert again.release([None] * 20, trials=100).sequence == 2
    assert path.stat().st_mode & 0o077 == 0


def test_a_plan_cannot_be_changed(path: Path) -> None:
    Budget(path, Federation(SPACE), PLAN)
    with pytest.raises(ValueError, match="a plan cannot be changed"):
        Budget(path, Federation(SPACE), Plan(epsilon=4.0, delta=1e-3))


def test_a_new_budget_needs_a_plan(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="give the plan to create it"):
        Budget(path, Federation(SPACE))
    assert not path.exists()


def test_that_of_another_federation_is_refused(path: Path) -> None:
    Budget(path, Federation(SPACE), PLAN)
    with pytest.raises(FileRefused, match="is the budget of the federation"):
        Budget(path, Federation(SPACE, seed=1))


@pytest.mark.parametrize("content", [b"", b"{}", b'{"federation": "x"}', b"\x00" * 100])
def test_a_damaged_file_releases_nothing(path: Path, content: bytes) -> None:
    budget = Budget(path, Federation(SPACE), PLAN)
    path.write_bytes(content)
    with pytest.raises(FileRefused, match="restore it from a copy"):
        budget.release([None] * 20, trials=100)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ((0.0, 1e-3), "epsilon is 0.0"),
        ((1.0, 0.0), "delta is 0.0"),
        ((1.0, 1.0), "delta is 1.0"),
        ((1.0, 1e-3, 0), "releases is 0, expected 1"),
    ],
)
def test_absurd_plans_are_refused(plan: tuple, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Plan(*plan)


SPENDING = """
import sys
from fedbo import Federation, Float
from fedbo.privacy import Budget
budget = Budget(sys.argv[1], Federation({"x": Float(0, 1)}))
print("ready", flush=True)
while True:
    made = budget.release([None] * 5, trials=10)
    print(made.sequence, flush=True)
"""


def spending(path: Path) -> subprocess.Popen[str]:
    """Start a process that makes releases until the budget is spent, and prints their numbers."""
    command = [sys.executable, "-c", SPENDING, str(path)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_processes_that_spend_at_once_share_one_budget(path: Path) -> None:
    Budget(path, Federation(SPACE), Plan(epsilon=2.0, delta=1e-3, releases=20))
    outputs = [process.communicate(timeout=60) for process in [spending(path) for _ in range(3)]]
    made = [int(line) for out, _ in outputs for line in out.split()]
    assert sorted(made) == list(range(1, 21))
    assert all("BudgetSpent: no further release" in error for _, error in outputs)


@pytest.mark.slow
def test_a_kill_never_loses_a_release(path: Path) -> None:
    """Kill the process at a random moment; what it printed is recorded, and it goes on after."""
    federation = Federation(SPACE)
    Budget(path, federation, Plan(epsilon=2.0, delta=1e-3, releases=10_000))
    rng, last = random.Random(0), 0
    for _ in range(8):
        process = spending(path)
        time.sleep(rng.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        out = process.communicate(timeout=60)[0]
        printed = [int(line) for line in out.splitlines(keepends=True) if line.endswith("\n")]
        recorded = [entry.sequence for entry in Budget(path, federation).entries]
        assert recorded == list(range(1, len(recorded) + 1))
        assert {*printed} <= {*recorded[last:]}
        last = len(recorded)
    assert last > 8
