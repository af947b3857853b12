"""Backups: complete while others write, restored into either database, and safe from damage."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from contracts.hub_rows import ACTOR, AGREED, Filled, all_rows, fill, message
from hub.world import HERE, World, newcomer, problem
from sqlalchemy import Engine

from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub import store
from fedbo.hub.names import command_line
from fedbo.hub.store import HubError, begin, open_database
from fedbo.hub.store.backup import backup, restore
from fedbo.message import Message
from fedbo.testing.keys import keys_of

#: Each transaction adds one member, and takes one cursor; a backup must not show half of it.
WRITE = """
import hashlib, sys
from fedbo.hub import store
from fedbo.hub.names import command_line
engine = store.open_database(sys.argv[1])
for i in range(100_000):
    with store.begin(engine) as connection:
        store.take_cursors(connection, 1)
        name = f"new-{i}"
        store.enrol(connection, sys.argv[2], name, hashlib.sha256(name.encode()).digest())
    print(i, flush=True)
"""


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Filled, Path]:
    engine = open_database(f"sqlite:///{tmp_path}/saved.db")
    filled = fill(engine)
    backup(engine, tmp_path / "hub.backup")
    engine.dispose()
    return filled, tmp_path / "hub.backup"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_can_be_restored_into_either_database(
    engine: Engine, tmp_path: Path, new_database: Callable[[str], str], kind: str
) -> None:
    filled = fill(engine)
    file, url = tmp_path / "hub.backup", new_database(kind)
    rows = backup(engine, file)
    before = all_rows(engine)
    assert rows == sum(map(len, before.values()))
    assert restore(file, url) == rows
    other = open_database(url)
    after = all_rows(other)
    assert all(before.values()) and before.keys() == after.keys()
    for name in before.keys() - {"hub", "audit", "member", "invitation", "session"}:
        assert after[name] == before[name]
    assert after["invitation"] == after["session"] == []
    assert after["member"] == [(*row[:-1], True) for row in before["member"]]
    assert after["audit"][:-1] == before["audit"]
    assert after["audit"][-1][3:6] == (command_line(), "restored", "")
    (old,), (new,) = before["hub"], after["hub"]
    assert old[1] != new[1] and old[2] == new[2]  # the generation
    with begin(other) as connection:  # it goes on: rows are numbered after those restored
        invited = store.invite(connection, "liver", actor=ACTOR).invitation
        key = keys_of("another").public
        store.enrol(connection, Invitation.parse(invited).secret, "another", key)
        assert store.by_token(connection, filled.tokens["clinic"]) is not None
        store.create_federation(connection, "lung", AGREED, actor=ACTOR)
    assert all_rows(other)["member"][-1][0] > max(row[0] for row in before["member"])
    other.dispose()
    with pytest.raises(HubError, match="is not empty"):
        restore(file, url)


def test_only_this_user_can_read_a_backup(saved: tuple[Filled, Path]) -> None:
    filled, file = saved
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_bytes()
    for secret in (filled.secret, *filled.tokens.values()):
        assert secret[8:].encode() not in content


def test_nobody_takes_part_after_a_restore_until_admitted(engine: Engine, tmp_path: Path) -> None:
    """Members that were revoked since the backup are back, and so is all else."""
    filled, url = fill(engine), f"sqlite:///{tmp_path}/restored.db"
    backup(engine, tmp_path / "b")
    with begin(engine) as connection:
        store.revoke(connection, "liver", "Zürich 2", actor=ACTOR)
    restore(tmp_path / "b", url)
    token, other = filled.tokens["Zürich 2"], filled.tokens["clinic"]
    with World(url) as world:

        def answers() -> list[httpx2.Response]:
            return [
                world.put(message("Zürich 2", 2), token),
                world.ask("POST", HERE + "/fetch", token, content=b"\x90"),
                world.ask("GET", HERE + "/overview", token),
            ]

        def admit(name: str) -> None:
            with begin(world.engine) as connection:
                assert store.admit(connection, "liver", [name], actor=ACTOR) == 0

        assert [problem(answer) for answer in answers()] == ["suspended"] * 3
        body = newcomer(filled.secret, "new")
        assert problem(world.ask("POST", "/v1/members", json=body)) == "not-invited"
        admit("clinic")
        first = world.fetch(other)  # of itself only: nobody hears who is suspended
        assert {Message.decode(each.content).sender for each in first.handed} == {
            *("clinic", "clinic/a"),
        }
        admit("Zürich 2")
        news = world.fetch(other, first.cursor)
        assert {Message.decode(each.content).sender for each in news.handed} == {
            *("Zürich 2", "Zürich 2/a"),
        }
        assert [answer.status_code for answer in answers()] == [200, 200, 200]
        assert [line["subject"] for line in world.audit("admitted")] == ["clinic", "Zürich 2"]


def test_a_backup_while_another_process_writes(database_url: str, tmp_path: Path) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        store.create_federation(connection, "liver", AGREED, actor=ACTOR)
        invited = store.invite(connection, "liver", uses=100_000, actor=ACTOR).invitation
    secret = Invitation.parse(invited).secret
    command = [sys.executable, "-c", WRITE, database_url, secret]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
        reached = int(writer.stdout.readline())
        backup(engine, tmp_path / "b")
        writer.kill()
        writer.communicate()
    restore(tmp_path / "b", url := f"sqlite:///{tmp_path}/restored.db")
    copy = open_database(url)
    rows = all_rows(copy)
    copy.dispose()
    members, (federation,) = rows["member"], rows["federation"]
    assert len(members) == federation[4] > reached  # its cursor
    assert len([row for row in rows["audit"] if row[4] == "joined"]) == len(members)
    engine.dispose()


def test_an_earlier_backup_is_replaced_and_nothing_else(
    saved: tuple[Filled, Path], engine: Engine, tmp_path: Path
) -> None:
    _, file = saved
    backup(engine, file)
    notes = tmp_path / "notes.txt"
    notes.write_text("keep this")
    for place in (notes, tmp_path, tmp_path / "saved.db"):
        with pytest.raises(HubError, match="exists and is not a backup"):
            backup(engine, place)
    assert notes.read_text() == "keep this"
    with pytest.raises(HubError, match="cannot be written"):
        backup(engine, tmp_path / "no" / "b")


def test_a_damaged_backup_is_refused(saved: tuple[Filled, Path], tmp_path: Path) -> None:
    """Whichever byte was changed, of the database or of its free space."""
    _, file = saved
    whole, url, rng = file.read_bytes(), f"sqlite:///{tmp_path}/new.db", random.Random(0)
    damaged = [whole[: len(whole) // 2], whole[:4096], b"", b"hello" * 1000, whole + b"\0"]
    for place in rng.sample(range(len(whole)), 200):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(HubError, match="is damaged"):
            restore(file, url)
    assert not (tmp_path / "new.db").exists()
    file.write_bytes(whole)
    restore(file, url)


def test_a_backup_is_not_a_database_and_the_other_way_round(
    saved: tuple[Filled, Path], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    for place in (tmp_path / "no", tmp_path, tmp_path / "saved.db"):
        with pytest.raises(HubError):
            restore(place, url)
    with pytest.raises(HubError, match="is a backup: put it into a new database"):
        open_database(f"sqlite:///{saved[1]}")
    assert not (tmp_path / "new.db").exists()


def test_an_interrupted_restore_leaves_an_empty_database(
    saved: tuple[Filled, Path], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fedbo.hub.store.backup._number", _interrupt)
        restore(saved[1], database_url)
    restore(saved[1], database_url)


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt
