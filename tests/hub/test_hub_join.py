"""`fedbo join` at a hub, and `fedbo hub` for its members: as a person runs them."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contracts.exchange import OTHERS, OURS, message, new_keys, sequences
from contracts.hub import HubProcess, Office, free_port
from contracts.parties import PLANE
from typer.testing import CliRunner, Result

from fedbo import Federation
from fedbo.cli import app as cli
from fedbo.exchange import Ledger, Progress, exchange_at
from fedbo.exchange.hub.memberships import Memberships
from fedbo.federation.scalars import Scalars
from fedbo.hub import admin
from fedbo.hub.database import begin
from fedbo.identity import KeyPair

FILE = Path("federation.toml")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as running:
        yield running


class Liver:
    """A new federation at the hub."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub, self.office = hub.address, Office(hub.db)
        self.name = f"liver-{secrets.token_hex(6)}"
        self.office.create(self.name, OURS)
        self.place = f"{self.hub}/{self.name}"

    @property
    def invitation(self) -> str:
        return str(self.office.invite(self.name))


@pytest.fixture
def liver(hub: HubProcess) -> Liver:
    return Liver(hub)


@pytest.fixture(autouse=True)
def _a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("COLUMNS", "200")


def invoke(*args: object, stdin: str = "") -> Result:
    return CliRunner().invoke(cli.app, [str(arg) for arg in args], input=stdin)


def said(result: Result) -> str:
    return " ".join((result.stdout + result.stderr).replace("│", " ").split())


def joined(liver: Liver, *args: object) -> str:
    result = invoke("join", liver.hub, "--invite", liver.invitation, *args)
    assert result.exit_code == 0, result.output
    return said(result)


def test_an_invitation_makes_a_member_and_says_what_to_do_next(liver: Liver) -> None:
    text = joined(liver, "--name", "clinic")
    [mine] = Memberships().all()
    assert (mine.place, mine.member, mine.key) == (liver.place, "clinic", str(KeyPair.load()))
    assert Federation.load(FILE) == OURS
    assert f"You are now the member 'clinic' of {liver.place}" in text
    assert f"signed with the key {mine.key}" in text and "was written to federation.toml" in text
    assert f"fedbo join {liver.hub} --storage sqlite:///site.db --objective" in text
    assert mine.token not in text


def test_an_invitation_may_come_from_standard_input(liver: Liver) -> None:
    result = invoke("join", liver.hub, "--invite", "-", "--unsigned", stdin=f"{liver.invitation}\n")
    assert result.exit_code == 0, result.output
    [mine] = Memberships().all()
    assert mine.key == "" and mine.member.startswith("site-")
    assert "Your messages will be not signed" in said(result)


def test_an_invitation_may_be_in_a_file(liver: Liver) -> None:
    Path("invitation.txt").write_text(f"{liver.invitation}\n")
    result = invoke("join", liver.hub, "--invite", "invitation.txt", "--name", "clinic")
    assert result.exit_code == 0, result.output
    Path("invitation.txt").write_bytes(b"\xff\xfe")
    result = invoke("join", liver.hub, "--invite", "invitation.txt", "--name", "lab")
    assert result.exit_code == 1 and "this is not an invitation" in said(result)
    result = invoke("join", liver.hub, "--invite", "invitatoin.txt", "--name", "lab")
    assert result.exit_code == 1 and "no file of this name" in said(result)


def test_a_second_name_in_one_federation_is_pointed_out(liver: Liver) -> None:
    assert "Warning" not in joined(liver, "--name", "clinic")
    text = joined(liver, "--name", "lab")
    assert "you are also the member 'clinic' there" in text
    assert f"fedbo hub leave {liver.place} --name clinic" in text
    assert {one.member for one in Memberships().all()} == {"clinic", "lab"}


def test_a_file_may_have_another_name(liver: Liver) -> None:
    text = joined(liver, "--federation", "liver.toml")
    assert Federation.load("liver.toml") == OURS and not FILE.exists()
    assert f"fedbo join {liver.hub} --federation liver.toml --storage" in text


def test_the_same_file_is_fine_and_another_is_not_overwritten(liver: Liver) -> None:
    OTHERS["seed"].save(FILE)
    result = invoke("join", liver.hub, "--invite", liver.invitation)
    assert result.exit_code == 1
    assert "is not the federation at" in said(result) and "was not overwritten" in said(result)
    assert "You have not joined, and the invitation is still valid" in said(result)
    assert f"--invite - --federation {liver.name}.toml < invitation.txt" in said(result)
    assert Memberships().all() == [] and Federation.load(FILE) == OTHERS["seed"]
    OURS.save(FILE)
    before = FILE.stat().st_mtime_ns
    joined(liver)
    assert FILE.stat().st_mtime_ns == before


def test_to_join_again_changes_nothing(liver: Liver) -> None:
    joined(liver, "--name", "clinic")
    before = Memberships().all()
    invited = liver.office.invite(liver.name)._replace(secret="x" * 32)  # it is not needed
    result = invoke("join", liver.hub, "--invite", invited, "--name", "clinic")
    assert result.exit_code == 0, result.output
    assert f"You are the member 'clinic' of {liver.place} already." in said(result)
    assert Memberships().all() == before


def test_who_was_removed_joins_again_with_a_new_invitation(liver: Liver) -> None:
    joined(liver, "--name", "clinic")
    (before,) = Memberships().all()
    with begin(liver.office.engine) as connection:
        admin.remove(connection, liver.name, "clinic", actor="test")
    time.sleep(1.1)  # a token is believed for a second
    result = invoke(
        "join", liver.hub, "--invite", liver.office.invite(liver.name), "--name", "clinic"
    )
    assert result.exit_code == 0 and "You are now the member 'clinic'" in said(result)
    (after,) = Memberships().all()
    assert after.token != before.token


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["HUB", "--invite", "nonsense"], "this is not an invitation"),
        (["folder", "--invite", "x"], "an invitation is for a hub"),
        (["http://hub.example.org"], "is not encrypted"),
        (["HUB"], "you are not a member of a federation at"),
        (["HUB", "--objective", "a:b"], "--storage: give where the study keeps its trials"),
        (["HUB", "--storage", "sqlite:///s.db"], "--objective: give the function to tune"),
        (["HUB", "--storage", "sqlite:///s.db", "--preview"], "you are not a member"),
        (["folder"], "--objective: give the function to tune"),
    ],
)
def test_errors_come_first_and_are_clear(liver: Liver, args: list[str], complaint: str) -> None:
    result = invoke("join", *(liver.hub if arg == "HUB" else arg for arg in args))
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert complaint in said(result)
    assert not [*Path().iterdir()]


def test_a_name_that_is_taken_is_refused(
    liver: Liver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    joined(liver, "--name", "clinic")
    FILE.unlink()
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "another"))
    result = invoke("join", liver.hub, "--invite", liver.invitation, "--name", "clinic/b")
    assert result.exit_code == 1 and "The name is taken" in said(result)
    assert not FILE.exists()


def test_the_federation_file_is_fetched_and_kept_up_to_date(liver: Liver) -> None:
    joined(liver)
    FILE.unlink()
    result = invoke("join", liver.hub)
    assert result.exit_code == 0, result.output
    assert Federation.load(FILE) == OURS and "was written to federation.toml" in said(result)
    later = OURS.next_epoch(length_scale=0.7)
    liver.office.begin_epoch(liver.name, later)
    result = invoke("join", liver.place)
    assert result.exit_code == 0, result.output
    assert "Epoch 1 of the federation has begun, and federation.toml was of epoch 0" in said(result)
    assert Federation.load(FILE) == later
    OTHERS["kind"].save(FILE)
    result = invoke("join", liver.hub)
    assert result.exit_code == 1 and "but this is another federation" in said(result)
    assert Federation.load(FILE) == OTHERS["kind"]


def test_a_list_of_members_is_not_replaced(liver: Liver) -> None:
    joined(liver)
    listed = Federation(PLANE, features=5, seed=7, members={"a": str(new_keys())})
    listed.save(FILE)
    result = invoke("join", liver.hub)
    assert result.exit_code == 0 and "does not list the same members" in said(result)
    assert Federation.load(FILE).members == listed.members
    liver.office.begin_epoch(liver.name, OURS.next_epoch())
    result = invoke("join", liver.hub)
    assert result.exit_code == 0, result.output
    assert "does not list the keys of its members any more" in said(result)
    assert Federation.load(FILE).epoch == 0


def test_a_name_that_was_dropped_from_the_list_is_dropped_by_hand(liver: Liver) -> None:
    """Otherwise a hub could drop a member in one epoch, and list another key in the next."""
    joined(liver)
    kept, gone, other = (str(new_keys()) for _ in range(3))
    given: dict[str, Any] = {"features": 5, "seed": 7}
    Federation(PLANE, **given, members={"a": kept, "clinic": gone}).save(FILE)
    for epoch, members, fault in (
        (1, {"a": kept}, "does not list 'clinic'"),
        (2, {"a": kept, "clinic": other}, "lists another key for 'clinic'"),
        (3, {"a": kept}, "does not list 'clinic'"),
    ):
        later = Federation(PLANE, **given, members=members, epoch=epoch)
        liver.office.begin_epoch(liver.name, later)
        result = invoke("join", liver.place)
        assert result.exit_code == 0, result.output
        assert fault in said(result) and "going on with federation.toml" in said(result)
        assert Federation.load(FILE).epoch == 0
    assert f"fedbo join {liver.place} --federation NEW" in said(result)
    result = invoke("join", liver.place, "--federation", "NEW")
    assert result.exit_code == 0, result.output
    Path("NEW").replace(FILE)
    result = invoke("join", liver.place)
    assert result.exit_code == 0 and "Warning" not in said(result)
    assert Federation.load(FILE).members == later.members


def test_a_hub_that_is_away_does_not_stop_anyone(
    liver: Liver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.exchange.hub.client.BUDGET", 0.1)
    joined(liver)
    away = f"http://127.0.0.1:{free_port()}"
    [mine] = Memberships().all()
    book = Memberships().path
    book.write_text(book.read_text().replace(mine.address, away))
    result = invoke("join", away)
    assert result.exit_code == 0, result.output
    assert "cannot be reached" in said(result) and "going on with federation.toml" in said(result)
    FILE.unlink()
    result = invoke("join", away)
    assert result.exit_code == 1 and "cannot be reached" in said(result)


@pytest.mark.usefixtures("patient")
def test_a_site_joins_and_tunes_in_one_command(liver: Liver) -> None:
    liver.office.enrol(liver.hub, liver.name, "peer")
    exchange = exchange_at(liver.place)
    exchange.publish(message(sender="peer"))
    Memberships().remove(Memberships().all()[0])
    Path("tuned_here.py").write_text("def score(x, rate):\n    return -((x - 0.3) ** 2)\n")
    command = ["join", liver.hub, "--invite", liver.invitation, "--name", "clinic"]
    command += ["--storage", "sqlite:///site.db", "--objective", "tuned_here:score"]
    result = invoke(*command, "--trials", 4)
    assert result.exit_code == 0, result.output
    assert "Peers know it as 'clinic'" in said(result)
    assert "received from 1 peer" in said(result)
    assert sequences(exchange).keys() == {"clinic", "peer"}
    assert {entry.to for entry in Ledger().read()} == {liver.hub}
    result = invoke(*command, "--trials", 6)
    assert result.exit_code == 0, result.output
    result = invoke("join", liver.hub, "--storage", "sqlite:///site.db", "--withdraw")
    assert result.exit_code == 0, result.output
    assert sequences(exchange).keys() == {"peer"}


# What members do


def test_memberships_are_listed_without_tokens(liver: Liver) -> None:
    assert "You are not a member of any hub" in said(invoke("hub", "memberships"))
    joined(liver, "--name", "clinic")
    result = invoke("hub", "memberships")
    [mine] = Memberships().all()
    assert result.exit_code == 0
    assert all(part in said(result) for part in (mine.place, "clinic", mine.key, "hubs.json"))
    assert mine.token not in result.output


def test_a_token_is_rotated_and_not_shown(liver: Liver) -> None:
    joined(liver, "--name", "clinic", "--unsigned")
    [before] = Memberships().all()
    result = invoke("hub", "rotate", liver.hub)
    [after] = Memberships().all()
    assert result.exit_code == 0 and "'clinic' has a new token" in said(result)
    assert before.token != after.token
    assert before.token not in result.output and after.token not in result.output
    assert exchange_at(liver.hub).publish(message(sender="clinic")) is True


def test_a_key_is_replaced(liver: Liver) -> None:
    joined(liver, "--name", "clinic", "--unsigned")
    result = invoke("hub", "rekey", liver.hub)
    assert result.exit_code == 0, result.output
    assert f"signed with {KeyPair.load()}" in said(result)
    sent = KeyPair.load().sign(message(sender="clinic"))
    assert exchange_at(liver.hub).publish(sent) is True


def test_whoever_leaves_has_left(liver: Liver) -> None:
    joined(liver, "--name", "clinic", "--unsigned")
    exchange_at(liver.hub).publish(message(sender="clinic"))
    before = Memberships().all()[0]
    result = invoke("hub", "leave", liver.hub)
    assert result.exit_code == 0 and f"You have left {liver.place}" in said(result)
    assert Memberships().all() == []
    Memberships().add(before)
    result = invoke("hub", "leave", liver.hub)
    assert result.exit_code == 0 and "did not know 'clinic' any more" in said(result)
    assert Memberships().all() == []
    result = invoke("hub", "leave", liver.hub)
    assert result.exit_code == 1 and "you are not a member of" in said(result)
    liver.office.enrol(liver.hub, liver.name, "watcher")
    assert sequences(exchange_at(liver.hub)) == {}


def test_of_several_memberships_one_is_named(liver: Liver) -> None:
    for name in ("clinic", "lab"):
        joined(liver, "--name", name, "--unsigned")
    result = invoke("hub", "leave", liver.place)
    assert result.exit_code == 1 and "you have 2 memberships" in said(result)
    assert f"{liver.place} --name lab" in said(result)
    assert invoke("hub", "leave", liver.place, "--name", "lab").exit_code == 0
    assert [one.member for one in Memberships().all()] == ["clinic"]


def test_the_status_of_a_hub_is_shown(liver: Liver) -> None:
    joined(liver, "--name", "clinic", "--unsigned")
    exchange_at(liver.hub).publish(message(sender="clinic/a"))
    result = invoke("exchange", "status", liver.hub, "--federation", FILE)
    assert result.exit_code == 0, result.output
    assert f"Exchange {liver.hub}" in said(result)
    assert f"The federation '{liver.name}', where you are the member 'clinic'" in said(result)
    assert "clinic/a" in said(result) and "accepted" in said(result)
    Memberships().remove(Memberships().all()[0])
    result = invoke("exchange", "status", liver.hub)
    assert result.exit_code == 1 and "you are not a member" in said(result)


def test_a_status_that_cannot_be_got_takes_one_line(liver: Liver) -> None:
    joined(liver, "--name", "clinic", "--unsigned")
    with begin(liver.office.engine) as connection:
        admin.revoke(connection, liver.name, "clinic", actor="test")
    time.sleep(1.1)  # a token is believed for a second
    result = invoke("exchange", "status", liver.hub)
    assert result.exit_code == 1 and len(result.output.splitlines()) == 1
    assert "does not accept your token" in said(result) and "Usage" not in said(result)


def test_a_token_that_was_not_rotated(liver: Liver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo.exchange.hub.client.BUDGET", 0.1)
    joined(liver, "--name", "clinic", "--unsigned")
    away, book = f"http://127.0.0.1:{free_port()}", Memberships().path
    book.write_text(book.read_text().replace(liver.hub, away))
    result = invoke("hub", "rotate", away)
    assert result.exit_code == 1 and "cannot be reached" in said(result)
    assert said(result).endswith("The token is unchanged.")


def test_the_ledger_lists_scalars_and_progress(liver: Liver) -> None:
    joined(liver, "--name", "clinic", "--unsigned")
    place, ledger = exchange_at(liver.hub), Ledger()
    agreed = {"fingerprint": OURS.fingerprint, "sender": "clinic"}
    fitted = {"length_scales": (0.5, 0.25), "noise_variance": 0.01, "t_n": 12}
    ledger.publish(place, message(sender="clinic"))
    ledger.share(place, Scalars(**agreed, **fitted))
    for best in (0.5, None):
        ledger.report(place, Progress(**agreed, trials=12, best=best))
    text = said(invoke("ledger"))
    assert "scalars sent" in text and "progress sent" in text
    text = said(invoke("ledger", "--show", 2))
    assert "length scales 0.5, 0.25" in text and "noise variance 0.01" in text
    assert "best score 0.5" in said(invoke("ledger", "--show", 3))
    assert "best score not reported" in said(invoke("ledger", "--show", 4))
    assert '"kind": "progress"' in invoke("ledger", "--json").stdout
