"""Private federations on the command line: the file, releases, and what they cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.terminal import said
from contracts.exchange import heard
from contracts.releases import contribution, released

from fedbo import Federation, Float
from fedbo.exchange import FolderExchange, Ledger
from fedbo.privacy import Plan, Release, spent
from fedbo.trust import KeyPair

PLAN = Plan(epsilon=2.0, delta=1e-3, releases=2)
OURS = Federation({"x": Float(0, 1)}, privacy=PLAN)
SPACE = 'x = { type = "float", low = 0.0, high = 1.0 }\n'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderExchange:
    """A folder with the contributions of five sites, and the federation file."""
    monkeypatch.chdir(tmp_path)
    OURS.save("federation.toml")
    exchange = FolderExchange("exchange")
    for i in range(5):
        exchange.publish(contribution(OURS, f"site-{i}"))
    return exchange


def release(*args: str, code: int = 0) -> str:
    options = ("--federation", "federation.toml", "--yes", *args)
    return said("release", "exchange", *options, code=code)


def published(place: FolderExchange) -> Release:
    [latest] = heard(place, OURS)
    assert isinstance(latest, Release)
    return latest


def test_a_new_federation_has_the_plan_that_was_asked_for() -> None:
    Path("space.toml").write_text(SPACE)
    new = ("federation", "new", "--from-space", "space.toml", "--force")
    said(*new, "--epsilon", 2, "--delta", "1e-3", "--least-trials", 6)
    plan = Plan(epsilon=2.0, delta=1e-3, least_trials=6)
    assert Federation.load("federation.toml") == Federation({"x": Float(0, 1)}, privacy=plan)
    assert "expected epsilon from 1e-06" in said(*new, "--epsilon", 1, "--delta", 2, code=1)
    assert Federation.load("federation.toml").privacy == plan


def test_releases_are_made_and_published_until_the_budget_is_spent(place: FolderExchange) -> None:
    text, first = release(), published(place)
    assert (first.sequence, first.members, first.trials) == (1, 5, 50)
    assert first.key == KeyPair.load().public
    assert f"Release 1 of 5 members was made, and is in {place.address}." in text
    assert f"at most ε = {spent([first]):.3f} at δ = 0.001" in text
    assert Ledger().releases(OURS) == [first]
    release()
    last = published(place)
    assert last.sequence == 2
    spent_text = release(code=1)
    assert "all planned releases were made" in spent_text
    assert "would sum up" not in spent_text  # nothing is offered that cannot be made
    assert published(place) == last
    assert "2 messages left this machine" in said("ledger")  # one for each release


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)])
def test_a_release_is_shown_before_it_is_spent(
    place: FolderExchange, answer: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("release", "exchange", "--federation", "federation.toml")
    assert "there is no terminal to ask at; add --yes" in said(*command, code=1)
    assert Ledger().releases(OURS) == [] and heard(place, OURS) == []
    monkeypatch.setattr("fedbo.cli.checks._is_terminal", lambda: True)
    text = said(*command, code=code, stdin=answer)
    assert "Release 1 of 2 planned would sum up 5 members with 50 trials together." in text
    assert "This is mostly noise: it takes 20 members to be more." in text
    assert "from ε = 0 to 1.1 (δ = 0.001), and cannot be taken back." in text
    assert len(Ledger().releases(OURS)) == (answer == "y\n")


def test_only_whoever_is_listed_can_make_releases(place: FolderExchange) -> None:
    other = KeyPair.generate()
    Federation(OURS.space, privacy=PLAN, members={"hub": str(other)}).save("federation.toml")
    assert "lists a key of 'hub', and its private key is not on this machine" in release(code=1)
    assert heard(place, OURS) == [] and Ledger().releases(OURS) == []


def test_a_hub_makes_its_own() -> None:
    text = said("release", "https://hub.example", "--federation", "federation.toml", code=2)
    assert "a hub makes its own releases: fedbo hub release" in text


# The ledger


def test_it_shows_releases_and_contributions(place: FolderExchange) -> None:
    release()
    text, made = said("ledger", "--show", 2), published(place)
    for part in (
        "release 1 of 2 planned",
        "5, with 50 trials together",
        "ε = 2 at δ = 0.001 for all planned releases",
        "one member's contribution is replaced by an empty one",
        ", ".join(map(str, made.votes)),
    ):
        assert part in text
    Ledger().publish(place, contribution(OURS, sequence=11, cell=3))
    text = said("ledger", "--show", 3)
    assert "cell 3, which holds the best trial" in text and "y, the shape of the mean" in text


@pytest.mark.filterwarnings("ignore::fedbo.exchange.ExchangeWarning")
def test_it_says_that_a_promise_was_broken() -> None:
    for seed in (0, 1):
        Ledger().receive(released(OURS, seed=seed))
    text = said("ledger")
    assert "The promise is broken: 'hub' has made 2 different releases with the number 1" in text


def test_a_damaged_entry_does_not_end_the_list(place: FolderExchange) -> None:
    release()
    path = Ledger().path
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["content"] = "AAAA"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "1 release is recorded here" in said("ledger")
