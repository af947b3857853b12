"""``fedbo hub``: the commands that manage a hub through its database."""

from __future__ import annotations

import getpass
import json
import re
import time
from pathlib import Path

import pytest
from cli import terminal
from contracts.hub_rows import AGREED, GIVEN, all_rows, fill
from hub.world import contribution, private_federation

from fedbo import Federation
from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub import store
from fedbo.message.signed import key_text
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair

INVITATION = re.compile(r"[a-z0-9-]+\.[0-9a-f]{32}\.[\w-]{32}")
CREATED = """\
The federation 'liver' (FINGERPRINT) was created in DATABASE.
With this invitation 3 members can join until TIME. It is
not shown again; give it only to those who may join:

  INVITATION

Save it as invitation.txt (next time, --to FILE does so), and then:

  fedbo join https://hub.example.org --invite - < invitation.txt

"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FEDBO_HUB_CONFIG", raising=False)
    monkeypatch.setenv("FEDBO_HUB_DB", "sqlite:///hub.db")
    monkeypatch.chdir(tmp_path)
    AGREED.save(tmp_path / "federation.toml")
    return tmp_path


@pytest.fixture
def hub(place: Path) -> str:
    """A database with something in every table."""
    url = f"sqlite:///{place}/hub.db"
    engine = store.open_database(url)
    fill(engine)
    engine.dispose()
    return url


def run(*arguments: str, code: int = 0) -> str:
    return terminal.run("hub", *arguments, code=code)


def words(*arguments: str, code: int = 0) -> str:
    return " ".join(run(*arguments, code=code).split())


def create(name: str = "liver", *arguments: str, code: int = 0) -> str:
    return run("create", name, "--federation", "federation.toml", *arguments, code=code)


def test_create_prints_an_invitation_with_which_one_can_join(place: Path) -> None:
    (place / "hub.toml").write_text('public_url = "https://hub.example.org"')
    text = create("liver", "--uses", "3", "--config", "hub.toml")
    (invitation,) = INVITATION.findall(text)
    for pattern, name in (
        (invitation, "INVITATION"),
        (str(AGREED.fingerprint), "FINGERPRINT"),
        ("sqlite:///hub.db", "DATABASE"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d[+-]\d\d:\d\d", "TIME"),
    ):
        text = re.sub(pattern, name, text)
    assert " ".join(text.split()) == " ".join(CREATED.split())
    engine = store.open_database(f"sqlite:///{place}/hub.db")
    with store.begin(engine) as connection:
        secret, key = Invitation.parse(invitation).secret, keys_of("clinic").public
        enrolled = store.enrol(connection, secret, "clinic", key)
        assert Federation.from_toml(enrolled.file) == AGREED
    engine.dispose()
    create(code=1)
    create("LIVER", code=1)


def test_an_invitation_goes_to_a_file_that_nobody_else_can_read(place: Path) -> None:
    (place / "i.txt").touch(0o666)
    text = create("liver", "--to", "i.txt") + run("invite", "liver", "--to", "j.txt")
    assert not INVITATION.search(text) and "--invite - < j.txt" in text
    for name in ("i.txt", "j.txt"):
        assert INVITATION.fullmatch((place / name).read_text().strip())
        assert (place / name).stat().st_mode & 0o777 == 0o600
    create("other", "--to", "no/such/folder", code=2)
    assert "other" not in words("members")


def test_nothing_is_created_if_the_invitation_cannot_be_made(place: Path) -> None:
    create("liver", "--uses", "0", code=1)
    assert "There are no federations yet" in words("members")
    (place / "federation.toml").write_text("kind = 'x'")
    create(code=1)


def test_lines_to_copy_are_never_broken() -> None:
    create()
    lines = terminal.run("hub", "invite", "liver", columns=40).splitlines()
    assert [line for line in lines if INVITATION.fullmatch(line)]
    assert "  fedbo join http://127.0.0.1:8765 --invite - < invitation.txt" in lines


@pytest.mark.parametrize(
    "command",
    [
        ["members"],
        ["revoke", "liver", "clinic"],
        ["release", "liver"],
        ["audit"],
        ["backup", "b"],
    ],
)
def test_a_database_that_is_not_there_is_not_created(place: Path, command: list[str]) -> None:
    assert "check --db" in words(*command, "--db", "sqlite:///typo.db", code=1)
    assert not (place / "typo.db").exists()


def test_open_invitations_are_listed_and_cancelled() -> None:
    create("liver", "--uses", "3")
    run("invite", "liver", "--uses", "1200")
    text = run("invitations", "liver")
    assert not INVITATION.search(text)
    rows = [line.split() for line in text.splitlines()[2:]]
    assert [row[1] for row in rows] == ["3", "1,200"]
    for number in (row[0] for row in rows):
        run("invitations", "liver", "--cancel", number)
        run("invitations", "liver", "--cancel", number, code=1)
    assert "There are no open invitations to 'liver'" in words("invitations", "liver")


def test_members_are_listed_revoked_and_removed(hub: str) -> None:
    assert f"liver 2 4 {AGREED.fingerprint}" in words("members")
    text = words("members", "liver")
    for name in ("clinic", "Zürich 2"):
        assert re.search(rf"{name} 2 2 \d+ bytes 14 \d+ seconds? [\w-]{{8}}…", text)
    assert "left" not in text
    (row,) = run("invitations", "liver").splitlines()[2:]
    text = words("revoke", "liver", "Zürich 2")
    assert "fedbo hub remove liver 'Zürich 2'" in text
    assert "fedbo hub invitations liver --cancel NUMBER" in text and row.split()[0] in text
    assert "revoked" in words("members", "liver")
    run("remove", "liver", "Zürich 2")
    run("remove", "liver", "Zürich 2", code=1)
    assert "Zürich" not in words("members", "liver")
    last = json.loads(run("audit").splitlines()[-1])
    assert (last["actor"], last["action"], last["subject"]) == (
        *(f"command line/{getpass.getuser()}", "removed", "Zürich 2"),
    )


def test_the_list_of_members_can_change(hub: str, place: Path) -> None:
    members = {name: KeyPair.generate().public for name in ("clinic", "new")}
    Federation(AGREED.space, members=members, **GIVEN).save(place / "listed.toml")
    text = words("update", "liver", "--federation", "listed.toml")
    assert "now lists 2 members" in text
    assert "fedbo hub remove liver clinic" in text and "'clinic' was revoked: its key is" in text
    assert key_text(members["clinic"]) in text
    assert "'Zürich 2' is not listed, and was revoked" in text
    assert "Zürich 2 0 0" in words("members", "liver") and "clinic 0 0" in words("members", "liver")
    lines = [json.loads(line) for line in run("audit", "liver").splitlines()]
    detail = {line["subject"]: line["detail"] for line in lines if line["action"] == "revoked"}
    assert detail["clinic"]["listed"] == key_text(members["clinic"]) != detail["clinic"]["key"]
    assert detail["Zürich 2"]["listed"] == ""
    assert "now lists no members" in words("update", "liver", "--federation", "federation.toml")
    Federation(AGREED.space, **GIVEN | {"seed": 5}).save(place / "other.toml")
    words("update", "liver", "--federation", "other.toml", code=1)


def test_backup_and_restore(hub: str, place: Path) -> None:
    run("backup", "hub.backup")
    text = words("backup", "hub.backup")
    assert re.search(r"\b\d\d rows are in hub.backup \(\d+\.\d kB\)", text)
    run("revoke", "liver", "Zürich 2")
    text = words("restore", "hub.backup", "--db", "sqlite:///other.db", "--old", hub)
    assert "'liver': members Zürich 2, clinic; 4 messages." in text
    assert "revoked Zürich 2" in text
    other = ("--db", "sqlite:///other.db")
    assert "revoked" not in words("members", "liver", *other)
    assert "suspended" in words("members", "liver", *other)
    assert "add --yes" in words("admit", "liver", *other, code=1)
    text = words("admit", "liver", "--yes", *other)
    assert "Zürich 2" in text and "2 members of 'liver' can take part again." in text
    assert "suspended" not in words("members", "liver", *other)
    assert "0 members" in words("admit", "liver", "--yes", *other)
    run("admit", "liver", "nobody", *other, code=1)
    run("restore", "hub.backup", code=1)
    run("restore", "missing", "--db", "sqlite:///third.db", code=1)


def test_a_federation_is_deleted(hub: str) -> None:
    create("other")
    assert "add --yes" in words("delete", "liver", code=1)
    run("delete", "lever", "--yes", code=1)
    assert "'liver' is deleted" in words("delete", "liver", "--yes")
    assert "liver" not in words("members")
    engine = store.open_database(hub)
    rows = all_rows(engine)
    engine.dispose()
    filled = {name for name, found in rows.items() if found}
    assert filled == {"hub", "federation", "invitation", "audit"}
    assert [row[1] for row in rows["federation"]] == ["other"]
    last = json.loads(run("audit", "liver").splitlines()[-1])
    assert last["action"] == "deleted" and last["actor"].startswith("command line/")


def test_the_audit_log_is_pruned(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run("audit").splitlines()
    assert "0 lines" in words("prune", "--older-than", "90d")
    assert run("audit").splitlines() == before
    for wrong in ("90", "d", "-1d", "1y"):
        run("prune", f"--older-than={wrong}", code=2)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 91 * 86400)
    run("invite", "liver")
    assert f"{len(before)} lines" in words("prune", "--older-than", "90d")
    kept, summary = [json.loads(line) for line in run("audit").splitlines()]
    assert (kept["action"], summary["action"]) == ("invited", "pruned")
    assert summary["actor"] == f"command line/{getpass.getuser()}"
    assert summary["detail"]["lines"] == len(before)
    monkeypatch.setattr(time, "time", lambda: now + 300 * 86400)
    assert "1 line of" in words("prune", "--older-than", "90d")
    actions = [json.loads(line)["action"] for line in run("audit").splitlines()]
    assert actions == ["pruned", "pruned"]


def test_private_releases(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = private_federation()
    agreed.save(place / "federation.toml")
    (invitation,) = INVITATION.findall(create("lung"))
    engine = store.open_database(f"sqlite:///{place}/hub.db")
    with store.begin(engine) as connection:
        secret = Invitation.parse(invitation).secret
        enrolled = store.enrol(connection, secret, "a", keys_of("a").public)
        caller = store.by_token(connection, enrolled.token)
        assert caller is not None
        sent = contribution(agreed, "a")
        store.publish(connection, caller, sent, sent.encode())
    engine.dispose()
    assert "Releases made: 0 of 2;" in words("releases", "lung")
    assert "there is no terminal to ask at; add --yes" in words("release", "lung", code=1)
    with monkeypatch.context() as before:  # what was contributed since is not released unseen
        early = store.ledger
        nobody = {"contributed": 0, "trials": 0}
        before.setattr(store, "ledger", lambda *args: early(*args).model_copy(update=nobody))
        assert "just arrived" in words("release", "lung", "--yes", code=1)
    assert "Releases made: 0 of 2;" in words("releases", "lung")
    text = words("release", "lung", "--number", "1", "--yes")
    assert "Release 1 of 2 planned would sum up 1 member with 5 trials together." in text
    assert "This is mostly noise" in text
    assert "Release 1 of 'lung' has the contributions of 1 member, from 5 trials." in text
    run("release", "lung", "--number", "1", code=1)
    run("backup", "b")
    text = words("restore", "b", "--db", "sqlite:///restored.db")
    assert "fedbo hub admit lung --releases NUMBER" in text
    restored = ("--db", "sqlite:///restored.db")
    run("release", "lung", "--yes", *restored, code=1)
    assert "Recorded as spent: 1 release that the backup did not have" in words(
        "admit", "lung", "--releases", "2", "--yes", *restored
    )
    assert "lost" in words("releases", "lung", *restored)


def test_names_from_outside_cannot_move_the_cursor() -> None:
    create()
    assert "\x1b" not in words("members", "\x1b[2J", code=1)
    assert "\x1b" not in words("revoke", "liver", "\x1b[2J", code=1)
