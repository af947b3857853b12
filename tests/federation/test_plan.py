"""The privacy plan of a federation: its limits, its table, and its place in the fingerprint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from contracts.releases import LINE

from fedbo import Federation, FederationMismatch
from fedbo.privacy import Plan
from fedbo.trust import KeyPair

PLAN = Plan(epsilon=2.0, delta=1e-3)
WHOLE = Plan(
    epsilon=0.5, delta=1e-6, releases=4, by="trustee", least_trials=5, least_members=20, days=1.5
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0 and delta is 0.001, expected epsilon from 1e-06"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"releases": 10_001}, "releases is 10001, expected 1"),
        ({"releases": 16**300}, "expected 1 to 10,000"),
        ({"least_trials": 0}, "least_trials is 0, expected 1"),
        ({"days": math.nan}, "days is nan, expected 0"),
        ({"by": "x" * 54}, "expected 1 to 53 bytes"),
        ({"by": "a/b"}, "without '/'"),
    ],
)
def test_absurd_plans_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Plan(**{"epsilon": 2.0, "delta": 1e-3} | given)
    table = {"epsilon": 2.0, "delta": 1e-3} | given
    with pytest.raises(ValueError, match=text):
        Federation(LINE, privacy=table)


# In the file


@pytest.mark.parametrize("plan", [PLAN, WHOLE])
def test_it_comes_back_from_the_file(plan: Plan, tmp_path: Path) -> None:
    agreed = Federation(LINE, privacy=plan)
    agreed.save(tmp_path / "federation.toml")
    again = Federation.load(tmp_path / "federation.toml")
    assert again == agreed and again.privacy == plan
    assert again.fingerprint == agreed.fingerprint
    assert again.to_toml() == agreed.to_toml()
    assert "[privacy]" in agreed.to_toml()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("epsilon = 2.0", r"\[privacy\]: Object missing required field `delta`"),
        ("epsilon = 2.0\ndelta = 1e-3\nsigma = 1", r"\[privacy\]: .*unknown field `sigma`"),
        ("epsilon = true\ndelta = 1e-3", r"\[privacy\]: Expected `float`, got `bool`"),
        (f"epsilon = 0x{'f' * 300}\ndelta = 1e-3", r"\[privacy\]: "),
        (f"epsilon = 2.0\ndelta = 1e-3\ndays = 0x{'f' * 300}", r"\[privacy\]: "),
    ],
)
def test_a_wrong_table_is_refused(lines: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Federation.from_toml(f"{Federation(LINE).to_toml()}\n[privacy]\n{lines}\n")


def test_whoever_makes_releases_must_be_listed() -> None:
    keys = KeyPair.generate()
    with pytest.raises(ValueError, match="'hub' makes the releases, but is not among the members"):
        Federation(LINE, privacy=PLAN, members={"site-a": str(keys)})
    listed = Federation(LINE, privacy=PLAN, members={"hub": str(keys)})
    assert Federation.from_toml(listed.to_toml()).members == {"hub": keys.public}


# In the fingerprint


CHANGES: list[dict[str, Any]] = [
    {"epsilon": 2.5},
    {"delta": 1e-4},
    {"releases": 2},
    {"by": "trustee"},
    {"least_trials": 2},
    {"least_members": 1},
    {"days": 1.0},
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_part_of_a_plan_is_in_the_fingerprint(change: dict[str, Any]) -> None:
    ours = Federation(LINE, privacy=PLAN)
    theirs = Federation(LINE, privacy=Plan(**{"epsilon": 2.0, "delta": 1e-3} | change))
    assert "foreign kind" in str(ours.fingerprint.mismatch(theirs.fingerprint))
    assert ours != theirs
    with pytest.raises(
        FederationMismatch, match=rf"privacy.{next(iter(change))} is .* here and .* there"
    ):
        ours.require_same(theirs)


def test_what_agents_send_follows_from_the_plan() -> None:
    ours, open_one = Federation(LINE, privacy=PLAN), Federation(LINE)
    assert (ours.sends, open_one.sends) == ("contribution", "compact")
    assert ours.require_plan() == PLAN
    with pytest.raises(ValueError, match="the federation has no privacy plan: make it with"):
        open_one.require_plan()
