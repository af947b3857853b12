"""The budget of private releases: when one is due, whose contributions count, and how many."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from contracts.releases import contribution, private, released
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo import Federation, Float
from fedbo.federation.calibration import STEP
from fedbo.federation.shared import Shared
from fedbo.message import Message
from fedbo.privacy import BudgetSpent, Plan, Release, next_release, one_each, signal, spent
from fedbo.privacy.budget import is_due, releases_made
from fedbo.privacy.release import STEPS
from fedbo.testing.keys import new_keys
from fedbo.trust import KeyRefused, verify

PLAN = Plan(epsilon=2.0, delta=1e-3, releases=3)
OURS = private(plan=PLAN)
NOBODY = (None,) * 20
DAY = 86400.0
KEYS = new_keys()


# When a release is due


@pytest.mark.parametrize(
    ("least_members", "days", "members", "passed", "is_time"),
    [
        (4, 0.0, 4, 0.0, True),
        (4, 0.0, 3, 99.0, False),
        (4, 7.0, 4, 6.99, False),
        (4, 7.0, 4, 7.0, True),
        (4, 7.0, 9, -1.0, False),  # the clock was set back
        (1, 0.0, 0, 99.0, False),  # nobody has anything new
        (0, 0.0, 9, 99.0, False),  # somebody makes them by hand
    ],
)
def test_a_release_is_due_when_enough_members_have_something_new_and_days_have_passed(
    least_members: int, days: float, members: int, passed: float, is_time: bool
) -> None:
    """How many trials or agents a member claims does not matter."""
    plan = Plan(epsilon=2.0, delta=1e-3, least_trials=5, least_members=least_members, days=days)
    agreed = private(plan=plan)
    new = [contribution(agreed, f"site-{n}") for n in range(members)]
    new += [contribution(agreed, f"site-0/{n}", t_n=2**31 - 1) for n in range(9) if members]
    new += [contribution(agreed, f"young-{n}", t_n=4) for n in range(9)]
    assert is_due(agreed, new, last=1e9, now=1e9 + passed * DAY) is is_time


# How many there are


@pytest.mark.parametrize(
    ("numbers", "lost", "made"),
    [
        ([], 0, 0),
        ([1, 2], 0, 2),
        ([3], 0, 3),  # earlier ones were made, and are not known here
        ([1, 1], 0, 2),  # two different ones have one number
        ([1, 1, 3], 0, 4),
        ([], 2, 2),
        ([1], 2, 3),
        ([1, 4], 2, 4),  # two of those before the last one are lost
    ],
)
def test_every_release_counts_that_may_have_been_made(
    numbers: list[int], lost: int, made: int
) -> None:
    known = [released(OURS, sequence=n, seed=i) for i, n in enumerate(numbers)]
    assert releases_made(known, lost) == made
    plan = Plan(epsilon=2.0, delta=1e-3, releases=made + 1)
    assert (
        next_release(private(plan=plan), known, NOBODY, keys=KEYS, lost=lost).sequence == made + 1
    )
    if made:
        with pytest.raises(BudgetSpent):
            spent_plan = Plan(epsilon=2.0, delta=1e-3, releases=made)
            next_release(private(plan=spent_plan), known, NOBODY, keys=KEYS, lost=lost)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32))
def test_a_budget_is_never_overspent_whatever_is_forgotten(releases: int, seed: int) -> None:
    """A party that forgets all but the last release and some others never makes too many."""
    federation, rng = (
        private(plan=Plan(epsilon=2.0, delta=1e-3, releases=releases)),
        random.Random(seed),
    )
    made: list[Release] = []
    while True:
        known = [release for release in made[:-1] if rng.random() < 0.5] + made[-1:]
        try:
            made.append(next_release(federation, known, NOBODY, keys=KEYS))
        except BudgetSpent:
            break
    assert [release.sequence for release in made] == [*range(1, releases + 1)]
    assert spent(made) <= 2.0


# What is refused, and costs nothing


@pytest.mark.parametrize(
    "given",
    [
        {"contributions": []},
        {
            "contributions": [
                contribution(OURS, y=np.full(Shared.of(OURS).shape_coordinates, np.nan))
            ]
        },
        {"contributions": [contribution(OURS, cell=99)]},
        {"contributions": [contribution(private(plan=PLAN, seed=1))]},
        {"contributions": [contribution(OURS, "clinic/a"), contribution(OURS, "clinic/b")]},
        {"contributions": [contribution(OURS, name, keys=KEYS) for name in ("a", "b")]},
    ],
)
def test_what_is_no_contribution_of_a_member_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        next_release(OURS, **{"released": [], "contributions": NOBODY, "keys": KEYS} | given)


def test_a_release_that_members_would_refuse_is_not_made() -> None:
    keys, other = new_keys(), new_keys()
    listed = private(plan=PLAN, members={"hub": str(keys)})
    with pytest.raises(KeyRefused, match="only the holder of the listed private key"):
        next_release(listed, [], NOBODY, keys=other)
    release = next_release(listed, [], NOBODY, keys=keys)
    verify(release)
    assert release.key == keys.public


# One contribution of each member


def senders(agreed: Federation, given: list[Message]) -> list[str]:
    return [one.sender for one in one_each(agreed, given)]


def test_each_member_contributes_once() -> None:
    """The agent with most trials speaks for its member, who has one key or one name."""
    given = [
        contribution(OURS, "clinic/lung", t_n=20),
        contribution(OURS, "clinic/liver", t_n=30),
        contribution(OURS, "clinic", t_n=5),
        contribution(OURS, "atelier", t_n=1),
        contribution(OURS, "clinic-2", t_n=2),
        *(contribution(OURS, f"run-{n}", t_n=3 + n, keys=KEYS) for n in range(3)),
    ]
    right = ["atelier", "clinic/liver", "clinic-2", "run-2"]
    assert senders(OURS, given) == senders(OURS, given[::-1]) == right
    assert one_each(OURS, []) == []


def test_what_does_not_fit_is_left_out_and_stops_nobody() -> None:
    given = [
        contribution(OURS, "a"),
        contribution(OURS, "b", cell=99),
        contribution(OURS, "c", basis=b"abcd"),
        contribution(OURS, "d/one", y=np.full(Shared.of(OURS).shape_coordinates, np.nan), t_n=9),
        contribution(OURS, "d/two", t_n=5),
    ]
    assert senders(OURS, given) == ["a", "d/two"]


def test_the_choice_does_not_depend_on_what_is_contributed() -> None:
    for cell in range(4):
        given = [contribution(OURS, "clinic/a", cell=cell), contribution(OURS, "clinic/b")]
        assert senders(OURS, given) == ["clinic/b"]


def test_too_few_trials_are_left_out() -> None:
    strict = private(plan=Plan(epsilon=2.0, delta=1e-3, least_trials=5))
    given = [contribution(strict, name, t_n=t_n) for name, t_n in (("a", 4), ("b", 5), ("c", 6))]
    assert senders(strict, given) == ["b", "c"]


# What is left beside the noise


@pytest.mark.parametrize("members", [5, 10, 40])
def test_the_signal_that_is_announced_is_what_releases_have(members: int) -> None:
    """All members agree: their shape is (1, 0, …, 0), and their best trials lie in one cell."""
    agreed = private({"x": Float(0, 1), "y": Float(0, 1)}, Plan(epsilon=2.0, delta=1e-3))
    announced = signal(agreed, members)
    same = [contribution(agreed, f"site-{n}", cell=5) for n in range(members)]
    made = [released(agreed, same, seed=seed) for seed in range(40)]
    means = np.array([np.array(one.sums[: one.coordinates]) * STEP / members for one in made])
    noise = np.square(means - np.eye(means.shape[1])[0]).sum(axis=1).mean()
    assert announced.share == pytest.approx(1.0 / (1.0 + noise), rel=0.15)
    others = np.array([np.delete(one.votes, 5).max() for one in made]) / STEPS
    assert announced.votes == pytest.approx(np.median(others), abs=0.6)


def test_a_plan_waits_by_default_for_members_enough_that_a_release_is_not_mostly_noise() -> None:
    for epsilon, releases, members in ((2.0, 1, 10), (2.0, 4, 40), (1e9, 1, 2), (1e-6, 1, 10**6)):
        plan = Plan(epsilon=epsilon, delta=1e-3, releases=releases)
        assert plan.least_members == members
        assert Plan.from_table(plan.table) == plan
    assert Plan(epsilon=2.0, delta=1e-3, least_members=0).least_members == 0
    assert ["mostly noise" in str(signal(private(), n)) for n in (9, 10)] == [True, False]
