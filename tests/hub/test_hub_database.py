"""Opening a hub's database: revisions, several processes at once, and what cannot be opened."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, insert, inspect, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

import fedbo.hub.migrations
from fedbo.hub import migrations, schema
from fedbo.hub.database import HubError, begin, open_database, shown, unusable

OPEN = """
import sys
from fedbo.hub.database import open_database
sys.stdin.readline()
open_database(sys.argv[1]).dispose()
"""


def generation(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.scalar(select(schema.hub.c.generation)))


def test_a_new_database_gets_its_tables_and_keeps_what_is_in_them(database_url: str) -> None:
    first = open_database(database_url)
    tables = set(inspect(first).get_table_names())
    assert tables == {*schema.metadata.tables, fedbo.hub.migrations.VERSION_TABLE}
    again = open_database(database_url, must_exist=True)
    assert generation(again) == generation(first)
    first.dispose()
    again.dispose()


def test_the_tables_are_those_of_the_schema(engine: Engine) -> None:
    options = {"version_table": fedbo.hub.migrations.VERSION_TABLE}
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, schema.metadata) == []


def test_numbers_of_deleted_rows_are_not_given_again(engine: Engine) -> None:
    numbers = []
    for name in ("a", "b"):
        row = insert(schema.operator).values(name=name, token=b"t", created=0.0)
        with begin(engine) as connection:
            numbers.append(connection.scalar(row.returning(schema.operator.c.id)))
            connection.execute(schema.operator.delete())
    assert numbers[1] > numbers[0]


def test_several_processes_open_a_new_database_at_once(database_url: str) -> None:
    command = [sys.executable, "-c", OPEN, database_url]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    engine = open_database(database_url)
    with engine.connect() as connection:
        assert len(connection.execute(select(schema.hub)).all()) == 1
    engine.dispose()


def test_a_newer_database_is_refused_and_left_as_it_was(database_url: str) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        connection.execute(text("UPDATE fedbo_revision SET version_num = '9999'"))
    with pytest.raises(HubError, match=r"revision 9999.*knows revisions up to 0002.*update fedbo"):
        open_database(database_url)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM fedbo_revision")) == "9999"
    engine.dispose()


def test_an_older_database_is_brought_up_to_date(
    database_url: str, later_revision: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_database(database_url)
    before = generation(engine)
    later_revision()
    open_database(database_url).dispose()
    assert generation(engine) == before
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT motto FROM hub")) == "together"
    monkeypatch.undo()
    with pytest.raises(HubError, match="has revision 9999, made by a newer fedbo"):
        open_database(database_url)
    engine.dispose()


def test_a_failed_update_leaves_nothing_behind(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fedbo.hub.migrations.upgrade

    def fail(connection: object) -> None:
        done(connection)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr("fedbo.hub.migrations.upgrade", fail)
    with pytest.raises(KeyboardInterrupt):
        open_database(database_url)
    monkeypatch.undo()
    with pytest.raises(HubError, match="is empty: check --db, or create a federation"):
        open_database(database_url, must_exist=True)
    open_database(database_url).dispose()


def test_a_database_of_another_program_is_refused(database_url: str) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        connection.execute(text("DROP TABLE fedbo_revision"))
    engine.dispose()
    with pytest.raises(HubError, match=r"tables of another program \(audit, epoch, federation, …"):
        open_database(database_url)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("nothing but notes\n" * 100)
    with pytest.raises(HubError, match=r"notes\.txt is not a SQLite database"):
        open_database(f"sqlite:///{file}")
    assert file.read_text() == "nothing but notes\n" * 100


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "hub.db"
    open_database(f"sqlite:///{file}").dispose()
    damaged = bytearray(file.read_bytes())
    damaged[100:4096] = bytes(3996)
    file.write_bytes(damaged)
    with pytest.raises(HubError, match="is damaged"):
        open_database(f"sqlite:///{file}")


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("sqlite:////no/such/folder/hub.db", "the folder /no/such/folder does not exist: create"),
        ("sqlite:////dev/null", "is not a regular file"),
        ("sqlite:////tmp", "is not a regular file"),
        ("sqlite://", "expected the path of a file"),
        ("sqlite:///:memory:", "expected the path of a file"),
        ("sqlite:///file:a?uri=true", "expected the path of a file"),
        ("mysql://a:secret@b/c", "is of the kind 'mysql', expected sqlite:///FILE or postgresql"),
        ("hub.db", "is not a URL, expected sqlite:///FILE or postgresql"),
        ("postgresql://a:secret@b:port/c", "is not a URL"),
        (
            "postgresql+psycopg://me:secret@127.0.0.1:1/x?password=secret",
            r"psycopg://me:\*\*\*@127.0.0.1:1/x\?password=hidden cannot be reached .*refused",
        ),
    ],
)
def test_what_cannot_be_opened_is_explained_without_the_password(url: str, fault: str) -> None:
    with pytest.raises(HubError, match=fault) as caught:
        open_database(url)
    assert "secret" not in str(caught.value)


def test_a_database_that_must_exist_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(HubError, match=r"there is no file .*: check --db, or create a federation"):
        open_database(f"sqlite:///{tmp_path}/hub.db", must_exist=True)
    assert not [*tmp_path.iterdir()]


def test_files_that_this_user_may_not_write_are_refused(plain_user: Path) -> None:
    open_database(f"sqlite:///{plain_user}/hub.db").dispose()
    (plain_user / "hub.db").chmod(0o400)
    with pytest.raises(HubError, match=r"hub\.db cannot be read and written by this user"):
        open_database(f"sqlite:///{plain_user}/hub.db")
    plain_user.chmod(0o500)
    with pytest.raises(HubError, match=r"new\.db cannot be created: Permission denied"):
        open_database(f"sqlite:///{plain_user}/new.db")


def test_postgresql_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(HubError, match=r"needs psycopg.* pip install 'fedbo\[hub\]'"):
        open_database("postgresql+psycopg://localhost/x")


def test_only_this_user_can_read_the_file(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/hub.db")
    with begin(engine) as connection:
        connection.execute(update(schema.hub).values(created=0.0))
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["hub.db", "hub.db-lock", "hub.db-shm", "hub.db-wal"], 0o600)
    engine.dispose()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_of_the_file_can_write_after_root_did(tmp_path: Path) -> None:
    file = tmp_path / "hub.db"
    open_database(f"sqlite:///{file}").dispose()
    (tmp_path / "hub.db-lock").unlink()
    os.chown(file, 65534, 65534)
    open_database(f"sqlite:///{file}").dispose()
    assert (tmp_path / "hub.db-lock").stat().st_uid == 65534


def test_sqlite_commits_are_durable(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/hub.db")
    with engine.connect() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
    assert found == ["wal", 2, 1]
    engine.dispose()


def test_a_transaction_is_undone_after_an_exception(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError), begin(engine) as connection:
        connection.execute(update(schema.hub).values(created=-1.0))
        raise ZeroDivisionError
    with engine.connect() as connection:
        assert connection.scalar(select(schema.hub.c.created)) > 0


def test_foreign_keys_are_enforced(engine: Engine) -> None:
    row = {"federation": 7, "name": "a", "joined": 0.0, "seen": 0.0}
    with pytest.raises(IntegrityError), begin(engine) as connection:
        connection.execute(insert(schema.member).values(row))


def test_errors_never_show_values(engine: Engine) -> None:
    row = {"name": "a", "token": b"the token", "created": 0.0}
    with pytest.raises(DBAPIError) as caught, begin(engine) as connection:
        for _ in range(2):
            connection.execute(insert(schema.operator).values(row))
    assert "the token" not in str(caught.value)
    assert "cannot be used" in str(unusable(engine, caught.value))


def test_a_full_or_read_only_disk_is_explained(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/hub.db")
    with pytest.raises(DBAPIError) as caught, begin(engine) as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
        connection.execute(update(schema.hub).values(created=0.0))
    assert "cannot be used: attempt to write a readonly database" in str(
        unusable(engine, caught.value)
    )
    engine.dispose()


def test_addresses_are_shown_without_passwords() -> None:
    assert shown("postgres://me:pw@h/d") == "postgresql+psycopg://me:***@h/d"
    assert "pw" not in shown("postgresql+psycopg://h/d?password=pw&sslpassword=pw")
    assert shown("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"


def test_a_copy_of_the_files_of_a_running_hub_opens(tmp_path: Path) -> None:
    """As after a power failure: what was committed is in the write-ahead log."""
    engine = open_database(f"sqlite:///{tmp_path}/hub.db")
    with begin(engine) as connection:
        connection.execute(update(schema.hub).values(created=5.0))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("hub.db", "hub.db-wal"):
        shutil.copy(tmp_path / name, copy / name)
    engine.dispose()
    with sqlite3.connect(copy / "hub.db") as connection:
        assert connection.execute("SELECT created FROM hub").fetchone() == (5.0,)
    connection.close()


def test_the_newest_revision_is_the_last_one() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(migrations._config())
    assert scripts.get_current_head() == migrations.NEWEST
    assert migrations.is_known(migrations.NEWEST) and not migrations.is_known("9999")
