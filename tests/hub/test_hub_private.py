"""A federation with a privacy plan, as members and whoever runs the hub use it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from contracts.hub import HubProcess, Office
from hub.private import contribution, federation
from sqlalchemy import Connection, insert, update
from typer.testing import CliRunner

from fedbo.agent import Agent
from fedbo.cli.app import app
from fedbo.exchange import ExchangeError, ExchangeWarning, Ledger
from fedbo.exchange.hub.client import HubRefused
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.progress import Progress
from fedbo.federation import Plan
from fedbo.hub import admin, schema
from fedbo.hub.backup import backup
from fedbo.hub.database import begin, open_database
from fedbo.identity import KeyPair
from fedbo.message import Message, Release
from fedbo.optuna import FederatedSampler
from fedbo.privacy.release import release

PLAN = Plan(epsilon=2.0, delta=1e-3, releases=3, by="trusted")
AGREED = federation(PLAN)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    """A hub of its own for each test, because a hub has one federation for each plan."""
    with HubProcess(f"sqlite:///{tmp_path}/served.db") as running:
        yield running


@pytest.fixture
def place(hub: HubProcess) -> str:
    """The address of a new federation at the hub, of which this user is the members a and b."""
    office = Office(hub.db)
    office.create("lung", AGREED)
    for who in ("a", "b"):
        office.enrol(hub.address, "lung", who)
    return f"{hub.address}/lung"


def _release(hub: HubProcess, place: str) -> None:
    with begin(Office(hub.db).engine) as connection:
        admin.make_release(connection, place.rpartition("/")[2], actor=admin.COMMAND_LINE)


def test_agents_contribute_and_hear_releases(hub: HubProcess, place: str) -> None:
    exchange = HubExchange(place)
    for i, name in enumerate(("a", "b", "a/2")):
        agent = Agent(AGREED, name=name, seed=i)
        for _ in range(3):
            trial = agent.ask()
            agent.tell(trial, trial.params["x"])
        assert exchange.publish(agent.message())
    assert exchange.fetch(AGREED) == []
    _release(hub, place)
    (published,) = exchange.fetch(AGREED)
    assert isinstance(published, Release)
    assert (published.sender, published.members) == ("trusted", 2)
    assert exchange.fetch(AGREED) == [published]  # nothing has changed
    assert Agent(AGREED, name="new", seed=9).receive([published]) == 1
    _release(hub, place)
    assert [one.sequence for one in exchange.fetch(AGREED)] == [2]
    assert [one.sequence for one in HubExchange(place).fetch(AGREED)] == [2]


def test_a_study_contributes_and_hears_a_release(
    hub: HubProcess, place: str, patient: None
) -> None:
    def tune(name: str, n_trials: int) -> optuna.Study:
        sampler = FederatedSampler(AGREED, exchange=place, name=name, seed=1)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(lambda trial: -abs(trial.suggest_float("x", 0, 1) - 0.3)
                       - trial.suggest_float("y", 0, 1), n_trials=n_trials)  # fmt: skip
        sampler.flush(60.0)
        return study

    with warnings.catch_warnings():
        warnings.simplefilter("error", ExchangeWarning)
        tune("first", 6)
        _release(hub, place)
        tune("second", 4)
    (published,) = HubExchange(place).fetch(AGREED)
    assert isinstance(published, Release) and published.members == 1
    assert published in Ledger().releases(AGREED)  # what the member has heard


def test_what_a_member_can_list_and_withdraw(hub: HubProcess, place: str) -> None:
    exchange = HubExchange(place)
    for name in ("a", "b"):
        assert exchange.publish(contribution(AGREED, name))
    _release(hub, place)
    senders = sorted(one.message.sender for one in exchange.holdings() if one.message)
    assert len(senders) == 2 and "trusted" in senders  # the other one is of the latest membership
    assert exchange.withdraw(AGREED, "a")
    assert not exchange.withdraw(AGREED, "a")
    _release(hub, place)
    (published,) = exchange.fetch(AGREED)
    assert isinstance(published, Release) and published.members == 1


def test_what_the_hub_refuses(place: str) -> None:
    exchange = HubExchange(place)
    with pytest.raises(ExchangeError, match=r"made by the hub itself.*fedbo hub release"):
        exchange.publish(release(AGREED, [contribution(AGREED, "a")]))
    report = Progress(fingerprint=AGREED.fingerprint, sender="a", trials=3, best=0.5)
    with pytest.raises(HubRefused, match="report no progress"):
        exchange.report(report)


def test_a_hub_that_hands_out_contributions_is_not_heard(hub: HubProcess, place: str) -> None:
    exchange = HubExchange(place)
    assert exchange.publish(contribution(AGREED, "b"))
    name = place.rpartition("/")[2]
    with begin(Office(hub.db).engine) as connection:
        row = update(schema.federation).where(schema.federation.c.name == name)
        connection.execute(row.values(is_private=False))
    with pytest.warns(ExchangeWarning, match="is a contribution, which no member should be"):
        assert exchange.fetch(AGREED) == []


def test_a_release_with_another_key_is_refused(hub: HubProcess, place: str) -> None:
    exchange, name = HubExchange(place), place.rpartition("/")[2]
    assert exchange.publish(contribution(AGREED, "a"))
    first, other = KeyPair.generate(), KeyPair.generate()
    with begin(Office(hub.db).engine) as connection:
        admin.make_release(connection, name, actor=admin.COMMAND_LINE, keys=first)
    assert [one.key for one in exchange.fetch(AGREED)] == [first.public]
    with begin(Office(hub.db).engine) as connection:
        admin.make_release(connection, name, actor=admin.COMMAND_LINE, keys=other)
    with pytest.warns(ExchangeWarning, match="key"):
        assert exchange.fetch(AGREED) == []


# The command line


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with a federation whose only member has contributed."""
    url = f"sqlite:///{tmp_path}/hub.db"
    for name, value in {"FEDBO_HUB_DB": url, "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FEDBO_HUB_CONFIG", raising=False)
    engine = open_database(url)
    with begin(engine) as connection:
        admin.create_federation(connection, "lung", AGREED, actor=admin.COMMAND_LINE)
        invited = admin.invite(connection, "lung", actor=admin.COMMAND_LINE)
        made = admin.enrol(connection, invited.invitation.secret, "a").member
        _put(connection, made, contribution(AGREED, "a"))
    engine.dispose()
    return url


def _put(connection: Connection, own: admin.MemberRow, sent: Message) -> None:
    (cursor,) = admin.take_cursors(connection, own.federation)
    row = {"federation": own.federation, "member": own.id, "epoch": 0, "sender": sent.sender}
    counts = {"sequence": sent.sequence, "t_n": sent.t_n, "cursor": cursor, "changed": 0.0}
    content = {"key": b"", "is_out": True, "content": sent.encode()}
    connection.execute(insert(schema.message).values(**row, **counts, **content))


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["hub", *arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def test_releases_from_the_command_line(db: str) -> None:
    assert "0 of 3 planned releases were made; so far they cost each member ε = 0." in run(
        "releases", "lung"
    )
    text = run("release", "lung")
    assert "Release 1 of 'lung' has the contributions of 1 member, from 5 trials." in text
    assert "1 of 3 planned releases was made; so far they cost each member ε = 0." in text
    assert "at most ε = 2 with δ = 0.001" in text
    assert "release 1 of 'lung' was made already" in run("release", "lung", "--number", "1", code=1)
    listed = run("releases", "lung")
    assert "number made epoch members trials" in listed
    assert "1 member contributed from 1 trial or more in the current epoch." in listed
    run("release", "lung")
    run("release", "lung", "--number", "3")
    assert "all 3 releases that 'lung' plans for ε = 2 were made" in run("release", "lung", code=1)
    assert "members of 'lung' share no scalars" in run("epoch", "lung", "--agree", code=1)


def test_a_restore_from_the_command_line(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("release", "lung")
    engine = open_database(db)
    backup(engine, tmp_path / "b")
    engine.dispose()
    monkeypatch.setenv("FEDBO_HUB_DB", f"sqlite:///{tmp_path}/restored.db")
    text = run("restore", str(tmp_path / "b"))
    assert "'lung' has a privacy plan" in text
    assert "fedbo hub reconcile lung --releases NUMBER" in text
    assert "this hub was restored from a backup" in run("release", "lung", code=1)
    assert "no release can be made before" in run("releases", "lung")
    assert "expected 1 to 3" in run("reconcile", "lung", "--releases", "0", code=1)
    text = run("reconcile", "lung", "--releases", "2")
    assert "1 release that the backup did not have is recorded as spent." in text
    assert "lost" in run("releases", "lung")
    assert "Release 3 of 'lung'" in run("release", "lung")


def test_a_key_for_releases_from_the_settings(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBO_HUB_RELEASE_KEY", str(tmp_path / "nowhere.pem"))
    assert "release_key: " in run("release", "lung", code=1)
