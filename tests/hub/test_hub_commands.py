"""``fedbo hub``: the commands that manage a hub through its database."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from contracts.hub_rows import AGREED, all_rows, fill, share
from typer.testing import CliRunner

from fedbo import Federation
from fedbo.cli.app import app
from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub import admin
from fedbo.hub.database import begin, open_database
from fedbo.hub.tokens import digest
from fedbo.identity import KeyPair

INVITATION = re.compile(r"[a-z0-9-]+\.[0-9a-f]{32}\.[\w-]{32}")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("FEDBO_HUB_DB", "FEDBO_HUB_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    AGREED.save(tmp_path / "federation.toml")
    return tmp_path


@pytest.fixture
def db(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database, which the commands use by themselves."""
    monkeypatch.setenv("FEDBO_HUB_DB", database_url)
    return database_url


@pytest.fixture
def hub(db: str) -> str:
    """A database with something in every table."""
    engine = open_database(db)
    fill(engine)
    engine.dispose()
    return db


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["hub", *arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def words(*arguments: str, code: int = 0) -> str:
    return " ".join(run(*arguments, code=code).split())


def create(name: str = "liver", *arguments: str, code: int = 0) -> str:
    return words("create", name, "--federation", "federation.toml", *arguments, code=code)


def test_create_prints_an_invitation_with_which_one_can_join(db: str) -> None:
    text = create("liver", "--uses", "3", "--days", "2", "--address", "https://hub.example.org/")
    assert str(AGREED.fingerprint) in text and "3 members can join until 20" in text
    (first,) = INVITATION.findall(text)
    assert "fedbo join https://hub.example.org --invite - < invitation.txt" in text
    engine = open_database(db)
    with begin(engine) as connection:
        done = admin.enrol(connection, Invitation.parse(first).secret, "clinic")
        assert Federation.from_toml(done.file) == AGREED
        (left,) = admin.invitations(connection, "liver")
        assert left.uses == 2 and 1.9 * 86400 < left.expires - left.created < 2.1 * 86400
    engine.dispose()
    assert "this hub has a federation 'liver' already" in create(code=1)
    assert "expected 1 to 63 small letters" in create("LIVER", code=1)


def test_a_line_to_copy_is_never_broken(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = run("create", "liver", "--federation", "federation.toml").splitlines()
    assert [line for line in lines if re.fullmatch(rf"  {INVITATION.pattern}", line)]
    assert "  fedbo join http://127.0.0.1:8765 --invite - < invitation.txt" in lines


def test_nothing_is_created_if_the_invitation_cannot_be_made(db: str) -> None:
    assert "uses is 0, expected 1 to 100,000" in create("liver", "--uses", "0", code=1)
    assert "days is 0.0, expected above 0" in create("liver", "--days", "0", code=1)
    assert "There are no federations yet" in words("members")


def test_federation_files_that_cannot_be_read(place: Path, db: str) -> None:
    (place / "federation.toml").write_text("epoch = 'x'")
    assert "federation.toml: " in create(code=1)
    (place / "federation.toml").unlink()
    assert "cannot be read" in create(code=2)


def test_the_address_comes_from_the_settings(db: str, place: Path) -> None:
    create()
    (place / "hub.toml").write_text('public_url = "https://hub.example.org"\n')
    assert "fedbo join https://hub.example.org --invite" in words(
        "invite", "liver", "--config", "hub.toml"
    )
    (place / "hub.toml").write_text(
        'host = "::1"\nport = 443\ntls_certificate = "c.pem"\ntls_key = "k.pem"\n'
    )
    assert "fedbo join 'https://[::1]:443' --invite" in words(
        "invite", "liver", "--config", "hub.toml"
    )
    (place / "hub.toml").write_text('host = "0.0.0.0"\nplain = true\n')
    assert "0.0.0.0" not in words("invite", "liver", "--config", "hub.toml")


def test_where_the_database_is_given(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create()
    (place / "hub.toml").write_text('db = "sqlite:///config.db"\n')
    create("liver", "--config", "hub.toml")
    monkeypatch.setenv("FEDBO_HUB_DB", "sqlite:///variable.db")
    create("liver", "--config", "hub.toml")
    create("liver", "--config", "hub.toml", "--db", "sqlite:///flag.db")
    found = {path.name for path in place.glob("*.db")}
    assert found == {"fedbo.db", "config.db", "variable.db", "flag.db"}


@pytest.mark.parametrize(
    "command",
    [
        ["invite", "liver"],
        ["invitations", "liver"],
        ["members"],
        ["revoke", "liver", "clinic"],
        ["remove", "liver", "clinic"],
        ["epoch", "liver", "--agree"],
        ["operator", "list"],
        ["operator", "drop", "anna"],
        ["audit"],
        ["backup", "b"],
    ],
)
def test_a_database_that_is_not_there_is_not_created(place: Path, command: list[str]) -> None:
    text = words(*command, "--db", "sqlite:///typo.db", code=1)
    assert "there is no file" in text and "check --db" in text
    assert not (place / "typo.db").exists()


def test_what_cannot_be_opened_is_explained_without_the_password(place: Path) -> None:
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/x"
    for command in (["members"], ["restore", "b"], ["operator", "add", "anna"]):
        text = words(*command, "--db", url, code=1)
        assert "secret" not in text
    assert "me:***@127.0.0.1:1/x cannot be reached" in words("members", "--db", url, code=1)
    (place / "notes.txt").write_text("notes " * 1000)
    text = words("members", "--db", "sqlite:///notes.txt", code=1)
    assert "is not a SQLite database" in text
    assert "not the address of a database" in words("members", "--db", "fedbo.db", code=1)
    assert "did you mean" in words("members", "--config", write(place, "prot = 1"), code=1)


def write(place: Path, text: str) -> str:
    (place / "hub.toml").write_text(text)
    return "hub.toml"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo.cli.checks.find_spec", lambda name: None)
    assert "pip install 'fedbo[hub]'" in words("members", code=1)


def test_invite(hub: str) -> None:
    text = words("invite", "liver", "--uses", "1")
    assert "one member can join" in text and INVITATION.search(text)
    assert "this hub has no federation 'lung'" in words("invite", "lung", code=1)


def test_open_invitations_are_listed_and_cancelled(db: str) -> None:
    create("liver", "--uses", "3")
    run("invite", "liver", "--uses", "1200")
    text = run("invitations", "liver")
    assert not INVITATION.search(text)
    rows = [line.split() for line in text.splitlines()[2:]]
    assert [row[1] for row in rows] == ["3", "1,200"]
    assert all(re.fullmatch(r"\d\d:\d\d[+-]\d\d:\d\d", row[3]) for row in rows)
    first, second = (row[0] for row in rows)
    assert f"Invitation {first} to 'liver' is cancelled" in words(
        "invitations", "liver", "--cancel", first
    )
    assert f"there is no invitation {first} to 'liver'" in words(
        "invitations", "liver", "--cancel", first, code=1
    )
    assert [line.split()[0] for line in run("invitations", "liver").splitlines()[2:]] == [second]
    run("invitations", "liver", "--cancel", second)
    assert "There are no open invitations to 'liver'" in words("invitations", "liver")
    assert "no federation 'lung'" in words("invitations", "lung", code=1)


def test_who_is_revoked_could_come_back_with_an_open_invitation(hub: str) -> None:
    [row] = run("invitations", "liver").splitlines()[2:]
    command = f"fedbo hub invitations liver --cancel {row.split()[0]}"
    for _ in range(2):  # also if it was revoked already
        text = words("revoke", "liver", "Zürich 2")
        assert "can join again under another name" in text and command in text
    run("invite", "liver")
    assert "fedbo hub invitations liver --cancel NUMBER" in words("remove", "liver", "Zürich 2")
    for row in run("invitations", "liver").splitlines()[2:]:
        run("invitations", "liver", "--cancel", row.split()[0])
    assert "invitation" not in words("remove", "liver", "clinic")


def test_members(hub: str) -> None:
    assert f"liver 0 2 4 {AGREED.fingerprint}" in words("members")
    text = words("members", "liver")
    assert "Zürich 2 2 2 200 bytes 14" in text and "not signed" in text
    assert re.search(r"clinic 2 2 200 bytes 14 \d+ seconds? [\w-]{8}…", text)
    assert "left" not in text
    assert "no federation 'lung'" in words("members", "lung", code=1)


def test_revoke_and_remove(hub: str) -> None:
    text = words("revoke", "liver", "Zürich 2")
    assert "fedbo hub remove liver 'Zürich 2'" in text
    assert "was revoked already" in words("revoke", "liver", "Zürich 2")
    assert "Zürich 2 0 0 0 bytes 0 " in words("members", "liver")
    assert "revoked" in words("members", "liver")
    assert "its name is free" in words("remove", "liver", "Zürich 2")
    assert "has no member 'Zürich 2'" in words("remove", "liver", "Zürich 2", code=1)
    assert "Zürich" not in words("members", "liver")
    last = json.loads(run("audit").splitlines()[-1])
    assert (last["actor"], last["action"], last["subject"]) == (
        *("command line", "removed", "Zürich 2"),
    )


def test_epoch_by_a_file(hub: str, place: Path) -> None:
    AGREED.next_epoch(length_scale=0.7).save(place / "later.toml")
    text = words("epoch", "liver", "--federation", "later.toml")
    assert "Epoch 1 of 'liver' has begun, with length scale 0.7" in text
    text = words("epoch", "liver", "--federation", "later.toml")
    assert "'liver' is in epoch 1 already" in text
    text = words("epoch", "liver", "--federation", "federation.toml", code=1)
    assert "is of epoch 0, and 'liver' is in epoch 1" in text
    assert "give one of the two" in words("epoch", "liver", code=2)
    both = ("epoch", "liver", "--agree", "--federation", "later.toml")
    assert "give one of the two" in words(*both, code=2)


def test_the_list_of_members_can_change(hub: str, place: Path) -> None:
    key = KeyPair.generate().public
    listed = Federation(AGREED.space, features=20, members={"clinic": key, "new": key})
    listed.save(place / "listed.toml")
    text = words("epoch", "liver", "--federation", "listed.toml")
    assert "now lists 2 members; its epoch is still 0" in text
    assert "fedbo hub revoke liver clinic" in text
    assert "fedbo hub revoke liver 'Zürich 2'" in text
    text = words("epoch", "liver", "--federation", "federation.toml")
    assert "now lists no members" in text and "revoke" not in text


def test_epoch_by_agreement(hub: str) -> None:
    assert "stays in its epoch" in words("epoch", "liver", "--agree")
    engine = open_database(hub)
    with begin(engine) as connection:
        secret = admin.invite(connection, "liver", actor="test").invitation.secret
        for name in "abc":
            share(connection, admin.enrol(connection, secret, name).member, name, 1.1, 20)
    engine.dispose()
    assert "Epoch 1 of 'liver' has begun, with length scale 0.5" in words(
        "epoch", "liver", "--agree"
    )


def test_operators(db: str) -> None:
    text = words("operator", "add", "anna")
    (token,) = re.findall(r"fedbo-o-[\w-]{43}", text)
    engine = open_database(db)
    assert all_rows(engine)["operator"][0][2] == digest(token)
    engine.dispose()
    assert "already" in words("operator", "add", "anna", code=1)
    assert 'has a "/"' in words("operator", "add", "a/b", code=1)
    assert "anna 20" in words("operator", "list")
    assert "no longer an operator" in words("operator", "drop", "anna")
    assert "has no operator 'anna'" in words("operator", "drop", "anna", code=1)
    assert "There are no operators yet" in words("operator", "list")


def test_the_audit_log(hub: str, place: Path) -> None:
    lines = [*map(json.loads, run("audit").splitlines())]
    assert len(lines) == 7 and lines[0]["action"] == "created"
    assert len(run("audit", "liver").splitlines()) == 6
    assert "no federation 'lung'" in words("audit", "lung", code=1)
    assert "7 lines of the audit log are in log.jsonl" in words("audit", "--out", "log.jsonl")
    assert [*map(json.loads, (place / "log.jsonl").read_text().splitlines())] == lines
    assert (place / "log.jsonl").stat().st_mode & 0o777 == 0o600
    assert "is a folder" in words("audit", "--out", str(place), code=2)
    assert "does not exist" in words("audit", "--out", "no/log.jsonl", code=2)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_backup_and_restore(
    hub: str, place: Path, new_database: Callable[[str], str], kind: str
) -> None:
    assert run("backup", "hub.backup").splitlines()[0]
    text = words("backup", "hub.backup")
    assert re.search(r"\b\d\d rows are in hub.backup \(\d+\.\d kB\)", text)
    assert (place / "hub.backup").stat().st_mode & 0o777 == 0o600
    url = new_database(kind)
    text = words("restore", "hub.backup", "--db", url)
    assert re.search(r"\b\d\d rows are in (sqlite|postgresql\+psycopg):", text)
    assert words("members", "--db", url) == words("members")
    assert "is not empty" in words("restore", "hub.backup", code=1)
    assert "is not a backup" in words("backup", "federation.toml", code=1)
    assert "is not a backup" in words("restore", "federation.toml", "--db", url, code=1)
    assert "there is no file" in words("restore", "missing", "--db", url, code=1)


def test_names_from_outside_cannot_move_the_cursor(db: str) -> None:
    assert "\x1b" not in words("members", "\x1b[2J", code=1)
    create()
    assert "\x1b" not in words("revoke", "liver", "\x1b[2J", code=1)
    assert "\x1b" not in words("operator", "add", "\x1b[2J", code=1)


def test_help_lists_the_commands() -> None:
    text = words("--help")
    for name in ("create", "invite", "invitations", "members", "revoke", "remove", "epoch"):
        assert name in text
    assert all(name in text for name in ("operator", "audit", "backup", "restore"))
    assert "hub" in CliRunner().invoke(app, ["--help"]).output
