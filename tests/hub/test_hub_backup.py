"""Backups: complete while others write, restored into either database, and safe from damage."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from contracts.hub_rows import ACTOR, AGREED, Filled, all_rows, fill
from sqlalchemy import Engine, select, text

from fedbo.hub import admin, schema
from fedbo.hub.backup import backup, restore
from fedbo.hub.database import HubError, begin, open_database
from fedbo.hub.tokens import digest

#: Each transaction adds one member, and takes one cursor; a backup must not show half of it.
WRITE = """
import sys
from fedbo.hub import admin
from fedbo.hub.database import begin, open_database
engine = open_database(sys.argv[1])
for i in range(100_000):
    with begin(engine) as connection:
        admin.take_cursors(connection, 1)
        admin.enrol(connection, sys.argv[2], f"new-{i}")
    print(i, flush=True)
"""


@pytest.fixture
def saved(engine: Engine, tmp_path: Path) -> tuple[Filled, Path]:
    filled = fill(engine)
    backup(engine, tmp_path / "hub.backup")
    return filled, tmp_path / "hub.backup"


def edit(file: Path, *statements: str) -> None:
    connection = sqlite3.connect(file)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_can_be_restored_into_either_database(
    engine: Engine, tmp_path: Path, new_database: Callable[[str], str], kind: str
) -> None:
    filled = fill(engine)
    file, url, steps = tmp_path / "hub.backup", new_database(kind), list[tuple[int, int]]()
    rows = backup(engine, file, lambda *step: steps.append(step))
    before = all_rows(engine)
    assert rows == sum(map(len, before.values())) and steps[-1] == (rows, rows)
    assert restore(file, url) == rows
    other = open_database(url)
    after = all_rows(other)
    assert all(before.values()) and before.keys() == after.keys()
    for name in before.keys() - {"hub", "audit"}:
        assert after[name] == before[name]
    assert after["audit"][:-1] == before["audit"]
    assert after["audit"][-1][3:6] == ("command line", "restored", "")
    (old,), (new,) = before["hub"], after["hub"]
    assert old[1] != new[1] and old[2] == new[2]
    with begin(other) as connection:  # it goes on: rows are numbered after those restored
        done = admin.enrol(connection, filled.secret, "another")
        assert done.member.id > max(row[0] for row in before["member"])
        admin.invite(connection, "liver", actor=ACTOR)
        admin.create_federation(connection, "lung", AGREED, actor=ACTOR)
        tokens = connection.scalars(select(schema.member.c.token)).all()
        assert digest(filled.tokens["clinic"]) in tokens
    other.dispose()
    with pytest.raises(HubError, match=r"is not empty \(there are rows in .*federation"):
        restore(file, url)


def test_a_backup_of_a_new_hub(engine: Engine, tmp_path: Path) -> None:
    assert backup(engine, tmp_path / "b") == 1
    assert restore(tmp_path / "b", f"sqlite:///{tmp_path}/other.db") == 1


def test_only_this_user_can_read_a_backup(saved: tuple[Filled, Path]) -> None:
    filled, file = saved
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_bytes()
    for secret in (filled.secret, *filled.tokens.values()):
        assert secret[8:].encode() not in content
    assert not [path for path in file.parent.iterdir() if path.name.startswith(".hub")]


def test_a_backup_while_another_process_writes(
    database_url: str, tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        admin.create_federation(connection, "liver", AGREED, actor=ACTOR)
        invited = admin.invite(connection, "liver", uses=100_000, actor=ACTOR)
    command = [sys.executable, "-c", WRITE, database_url, invited.invitation.secret]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
        for i in range(3):
            reached = int(writer.stdout.readline())
            backup(engine, tmp_path / "b")
            url = f"sqlite:///{tmp_path}/restored-{i}.db"
            restore(tmp_path / "b", url)
            copy = open_database(url)
            rows = all_rows(copy)
            copy.dispose()
            members, (federation,) = rows["member"], rows["federation"]
            assert len(members) == federation[3] > reached
            assert len(members) == 100_000 - rows["invitation"][0][3]
            assert len([row for row in rows["audit"] if row[4] == "joined"]) == len(members)
        writer.kill()
        writer.communicate()
    engine.dispose()


def test_an_earlier_backup_is_replaced_and_nothing_else(
    saved: tuple[Filled, Path], engine: Engine, tmp_path: Path
) -> None:
    _, file = saved
    with begin(engine) as connection:
        admin.new_operator(connection, "bob", actor=ACTOR)
    backup(engine, file)
    restore(file, f"sqlite:///{tmp_path}/other.db")
    notes = tmp_path / "notes.txt"
    notes.write_text("keep this")
    with pytest.raises(HubError, match=r"notes\.txt exists and is not a backup"):
        backup(engine, notes)
    assert notes.read_text() == "keep this"
    with pytest.raises(HubError, match="exists and is not a backup"):
        backup(engine, tmp_path)
    if engine.dialect.name == "sqlite":
        with pytest.raises(HubError, match="exists and is not a backup: give the backup another"):
            backup(engine, str(engine.url.database))


def test_a_place_where_a_backup_cannot_be_written(
    plain_user: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    engine = open_database(f"sqlite:///{plain_user}/hub.db")
    with pytest.raises(HubError, match=r"the folder .*/no does not exist: create it first"):
        backup(engine, plain_user / "no" / "b")
    closed = plain_user / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(HubError, match="/b cannot be written: Permission denied"):
        backup(engine, closed / "b")
    engine.dispose()


def test_a_full_disk_leaves_the_earlier_backup(
    saved: tuple[Filled, Path], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = saved
    before = file.read_bytes()
    with begin(engine) as connection:
        for i in range(300):
            detail = {"padding": "x" * 1000}
            admin.record(connection, "refused", actor=ACTOR, subject=f"{i}", detail=detail)
    connect = sqlite3.connect

    def small(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        connection.execute("PRAGMA max_page_count = 60")
        return connection

    monkeypatch.setattr("fedbo.hub.backup.sqlite3.connect", small)
    with pytest.raises(
        HubError, match=r"the backup .* cannot be written: database or disk is full"
    ):
        backup(engine, file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir() if "backup" in path.name] == [file.name]


def refused(file: Path, tmp_path: Path, fault: str) -> None:
    with pytest.raises(HubError, match=fault):
        restore(file, f"sqlite:///{tmp_path}/new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_damaged_backup_is_refused(saved: tuple[Filled, Path], tmp_path: Path) -> None:
    _, file = saved
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    refused(file, tmp_path, "is damaged")
    file.write_bytes(whole[: 4096 * 3])
    refused(file, tmp_path, "is damaged")
    file.write_bytes(b"")
    refused(file, tmp_path, "is not a backup")
    file.write_bytes(b"hello" * 1000)
    refused(file, tmp_path, "is not a backup: give one that fedbo hub backup wrote")
    at = whole.index("Zürich 2".encode())
    file.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    refused(file, tmp_path, r"is damaged \(.* is not what was written\): use another backup")
    file.write_bytes(whole)
    for change in ("DELETE FROM member WHERE token IS NULL OR id = 2", "DROP TABLE session"):
        edit(file, "PRAGMA foreign_keys = OFF", change)
        refused(file, tmp_path, "is damaged")
        file.write_bytes(whole)
    restore(file, f"sqlite:///{tmp_path}/new.db")


def test_what_is_not_a_backup_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "no", tmp_path, "there is no file .*/no: give one that fedbo hub backup")
    refused(tmp_path, tmp_path, "there is no file")
    edit(tmp_path / "other.db", "CREATE TABLE studies (id INTEGER)")
    refused(tmp_path / "other.db", tmp_path, "is not a backup")
    open_database(f"sqlite:///{tmp_path}/hub.db").dispose()
    refused(tmp_path / "hub.db", tmp_path, "is not a backup")


def test_a_newer_backup_is_refused(saved: tuple[Filled, Path], tmp_path: Path) -> None:
    _, file = saved
    edit(file, "UPDATE fedbo_revision SET version_num = '0099'")
    refused(file, tmp_path, "has revision 0099, made by a newer fedbo.*revisions up to 0002")


def test_an_older_backup_is_brought_up_to_date(
    saved: tuple[Filled, Path], tmp_path: Path, later_revision: Callable[[], None]
) -> None:
    _, file = saved
    before = file.read_bytes()
    later_revision()
    restore(file, f"sqlite:///{tmp_path}/new.db")
    assert file.read_bytes() == before
    engine = open_database(f"sqlite:///{tmp_path}/new.db")
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT motto FROM hub")) == "together"
        assert len(admin.members(connection, "liver")) == 2
    engine.dispose()


def test_a_backup_is_not_a_hub(saved: tuple[Filled, Path]) -> None:
    _, file = saved
    with pytest.raises(HubError, match=r"is a backup: put it into a new database with fedbo hub"):
        open_database(f"sqlite:///{file}")


def test_a_hub_that_is_not_empty_is_left_as_it_was(
    saved: tuple[Filled, Path], new_database: Callable[[str], str]
) -> None:
    _, file = saved
    url = new_database("sqlite")
    other = open_database(url)
    with begin(other) as connection:
        admin.new_operator(connection, "anna", actor=ACTOR)
    before = all_rows(other)
    with pytest.raises(HubError, match=r"is not empty \(there are rows in .*operator"):
        restore(file, url)
    assert all_rows(other) == before
    other.dispose()


def test_an_interrupted_restore_leaves_an_empty_database(
    saved: tuple[Filled, Path], new_database: Callable[[str], str]
) -> None:
    _, file = saved
    for kind in ("sqlite", "postgresql"):
        url = new_database(kind)

        def stop(done: int, total: int) -> None:
            if done == total:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            restore(file, url, stop)
        restore(file, url)


def test_a_lost_connection_is_explained(new_database: Callable[[str], str], tmp_path: Path) -> None:
    engine = open_database(new_database("postgresql"))
    with begin(engine) as connection:
        connection.execute(text("DROP TABLE session"))
    with pytest.raises(HubError, match=r"cannot be used.*session"):
        backup(engine, tmp_path / "b")
    engine.dispose()
