"""Private federations on the command line: the file, releases, and what they cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from contracts.releases import contribution, released
from typer.testing import CliRunner, Result

from fedbo import Agent, Federation, Float, Settings
from fedbo.cli.app import app
from fedbo.exchange import FolderExchange, Ledger
from fedbo.identity import KeyPair
from fedbo.privacy import Plan, Release, spent

PLAN = Plan(epsilon=2.0, delta=1e-3, releases=2)
OURS = Federation({"x": Float(0, 1)}, privacy=PLAN)
SPACE = 'x = { type = "float", low = 0.0, high = 1.0 }\n'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderExchange:
    """A folder with the contributions of five sites, and the federation file."""
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    OURS.save("federation.toml")
    exchange = FolderExchange("exchange")
    for i in range(5):
        exchange.publish(contribution(OURS, f"site-{i}"))
    return exchange


def invoke(*args: str, columns: int = 100) -> Result:
    wide = {"COLUMNS": f"{columns}", "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner().invoke(app, list(args), env=wide)


def said(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def release(*args: str, code: int = 0) -> str:
    result = invoke("release", "exchange", "--federation", "federation.toml", *args)
    assert result.exit_code == code, result.output
    return said(result)


def published(place: FolderExchange) -> Release:
    [one] = place.fetch(OURS)
    assert isinstance(one, Release)
    return one


# The federation file


def test_a_new_federation_has_the_plan_that_was_asked_for() -> None:
    Path("space.toml").write_text(SPACE)
    options = ["--epsilon", "2", "--delta", "1e-3", "--releases", "4", "--by", "trustee"]
    more = ["--least-trials", "6", "--least-members", "20", "--days", "1.5"]
    result = invoke("federation", "new", "--from-space", "space.toml", *options, *more, "--force")
    assert result.exit_code == 0, result.output
    plan = Plan(epsilon=2.0, delta=1e-3, releases=4, by="trustee", least_trials=6,
                least_members=20, days=1.5)  # fmt: skip
    assert Federation.load("federation.toml") == Federation({"x": Float(0, 1)}, privacy=plan)


@pytest.mark.parametrize("options", [("--epsilon", "0"), ("--epsilon", "1", "--delta", "2")])
def test_an_absurd_plan_is_refused(options: tuple[str, ...]) -> None:
    Path("space.toml").write_text(SPACE)
    result = invoke("federation", "new", "other.toml", "--from-space", "space.toml", *options)
    assert result.exit_code != 0
    assert "expected epsilon from 1e-06" in said(result)
    assert not Path("other.toml").exists()


# Releases


def test_a_release_is_made_and_published(place: FolderExchange) -> None:
    text = release("--unsigned")
    one = published(place)
    assert (one.sequence, one.members, one.trials, one.key) == (1, 5, 50, b"")
    assert f"Release 1 of 5 members was made, and is in {place.address}." in text
    assert f"at most ε = {spent([one]):.3f} at δ = 0.001" in text
    assert Ledger().releases(OURS) == [one]


def test_when_all_planned_releases_were_made_another_one_is_refused(place: FolderExchange) -> None:
    release()
    release()
    last = published(place)
    assert last.sequence == 2
    text = release(code=1)
    assert "all planned releases were made, so there cannot be another one" in text
    assert "the last one is number 2 of 2 planned" in text
    assert published(place) == last


def test_only_whoever_is_listed_can_make_releases(place: FolderExchange) -> None:
    other = KeyPair.generate()
    Federation(OURS.space, privacy=PLAN, members={"hub": str(other)}).save("federation.toml")
    assert f"'hub', who makes releases, with the key {other}" in release(code=1)
    assert "there is no key to sign it with" in release("--unsigned", code=1)
    assert place.fetch(OURS) == []
    assert Ledger().releases(OURS) == []


def test_a_hub_makes_its_own() -> None:
    result = invoke("release", "https://hub.example", "--federation", "federation.toml")
    assert result.exit_code != 0
    assert "a hub makes its own releases: fedbo hub release" in said(result)


# The ledger


def test_it_shows_a_release_and_prints_it_as_json(place: FolderExchange) -> None:
    release("--unsigned")
    one = published(place)
    text = said(invoke("ledger", "--show", "2", columns=200))
    for part in (
        "release 1 of 2 planned",
        "5, with 50 trials together",
        "ε = 2 at δ = 0.001 for all planned releases",
        "one member's contribution is replaced by an empty one",
        ", ".join(map(str, one.votes)),
    ):
        assert part in text
    rows = json.loads(invoke("ledger", "--json").stdout)
    assert [(row["action"], row["kind"]) for row in rows] == [
        ("handed out", "release"),
        ("sent", "release"),
    ]
    assert [entry.message() for entry in Ledger().read()] == [one, one]


@pytest.mark.filterwarnings("ignore::fedbo.exchange.ExchangeWarning")
def test_it_says_that_a_promise_was_broken() -> None:
    for seed in (0, 1):
        Ledger().receive(released(OURS, seed=seed))
    text = said(invoke("ledger", columns=200))
    assert "The promise is broken: 'hub' has made 2 different releases with the number 1" in text


def test_it_shows_contributions(place: FolderExchange) -> None:
    ledger = Ledger()
    ledger.publish(place, contribution(OURS, sequence=11, cell=3))
    ledger.publish(place, contribution(OURS, sequence=12, cell=3, epsilon=1.5))
    text = said(invoke("ledger", "--show", "1", columns=200))
    assert "cell 3, which holds the best trial" in text and "y, the shape of the mean" in text
    assert "8 numbers (contribution)" in text
    text = said(invoke("ledger", "--show", "2", columns=200))
    assert "cell 3, randomised with ε = 1.5" in text


def test_it_adds_up_the_votes_of_all_agents(place: FolderExchange) -> None:
    """The votes of one agent are the same, however many are sent; each agent has its own."""
    for name in ("clinic/a", "clinic/b"):
        settings = Settings(local_epsilon=2.0)
        agent = Agent(OURS, name=name, seed=0, settings=settings)
        for score in range(3):
            agent.tell({"x": 0.2}, float(score))
            Ledger().publish(place, agent.message())
    text = said(invoke("ledger", columns=200))
    assert f"Randomised votes in the federation {OURS.fingerprint}" in text
    assert "with ε = 4 for 2 votes" in text
    assert "more than a factor of 54.6" in text


def test_a_damaged_entry_does_not_end_the_list(place: FolderExchange) -> None:
    release("--unsigned")
    path = Ledger().path
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["content"] = "AAAA"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = invoke("ledger", columns=200)
    assert result.exit_code == 0, result.output
    assert "1 release is recorded here" in said(result)


# The place
