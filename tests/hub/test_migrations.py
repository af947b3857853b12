"""Versions of a hub's tables: what a database of an older one becomes, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from cli import terminal
from contracts.hub_rows import ACTOR, all_rows, caller, fill, message, publish
from sqlalchemy import Engine, MetaData, func, insert, select, text, update

from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub import store
from fedbo.hub.store import HubError, begin, migrations, open_database, schema
from fedbo.hub.store.backup import backup, restore, upgrade
from fedbo.testing.keys import keys_of

FIRST, OTHERS = "0001", ("postgresql", "sqlite")


class Old:
    """A database of the first version, with all that a hub of the last one can put into it.

    Args:
        url: Its address.
        filled: A database of the last version with something in each table.
    """

    def __init__(self, url: str, filled: Engine) -> None:
        self.url = url
        made = fill(filled)
        self.tokens, self.rows = made.tokens, all_rows(filled)
        engine = open_database(url, version=FIRST)
        known, new = MetaData(), MetaData()
        known.reflect(engine)
        new.reflect(filled)
        tables = [table for table in known.sorted_tables if table.name != "alembic_version"]
        with begin(engine) as connection, filled.connect() as source:
            connection.execute(known.tables["hub"].delete())
            for table in tables:
                names = [each.name for each in table.columns]
                for row in source.execute(new.tables[table.name].select()).mappings().all():
                    connection.execute(insert(table).values({name: row[name] for name in names}))
                if engine.dialect.name == "postgresql":
                    sequence = func.pg_get_serial_sequence(f'"{table.name}"', "id")
                    connection.execute(select(func.setval(sequence, 1000)))
        engine.dispose()


@pytest.fixture
def old(new_database: Callable[[str], str], database_url: str) -> Old:
    filled = open_database(new_database("sqlite"))
    made = Old(database_url, filled)
    filled.dispose()
    return made


def test_the_steps_make_the_schema(engine: Engine) -> None:
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert script.get_heads() == [schema.VERSION]
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []


def test_a_database_of_the_first_version_is_upgraded_with_what_is_in_it(
    old: Old, tmp_path: Path
) -> None:
    with pytest.raises(HubError, match=f"version {FIRST}, .* fedbo hub upgrade"):
        open_database(old.url)
    engine = open_database(old.url, any_version=True)
    file = tmp_path / "before.backup"
    assert upgrade(engine, file) == (FIRST, file)
    assert upgrade(engine, file) is None
    engine.dispose()
    engine = open_database(old.url)
    after = all_rows(engine)
    for name, rows in old.rows.items():
        if name not in ("session", "audit"):
            assert after[name] == rows
    assert after["audit"][:-1] == old.rows["audit"] and after["audit"][-1][4] == "upgraded"
    assert after["session"] == []
    _check_usable(engine, old)
    engine.dispose()


@pytest.mark.parametrize("kind", OTHERS)
def test_an_older_backup_is_restored_and_upgraded(
    old: Old, tmp_path: Path, new_database: Callable[[str], str], kind: str
) -> None:
    engine = open_database(old.url, any_version=True)
    file = tmp_path / "old.backup"
    backup(engine, file)
    engine.dispose()
    restore(file, url := new_database(kind))
    engine = open_database(url)
    assert all_rows(engine)["message"] == old.rows["message"]
    with begin(engine) as connection:
        store.admit(connection, "liver", ["clinic"], actor=ACTOR)
    _check_usable(engine, old)
    engine.dispose()


def test_a_newer_version_is_refused(database_url: str) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        connection.execute(update(schema.alembic_version).values(version_num="9999"))
    engine.dispose()
    for any_version in (False, True):
        with pytest.raises(HubError, match=r"version 9999, .* use a newer fedbo"):
            open_database(database_url, any_version=any_version)


def test_the_command(old: Old, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDBO_HUB_DB", old.url)
    words = " ".join(terminal.run("hub", "members", code=1).split())
    assert "fedbo hub upgrade" in words
    if old.url.startswith("sqlite"):
        said = terminal.run("hub", "upgrade")
    else:
        assert "--backup FILE" in terminal.run("hub", "upgrade", code=1)
        said = terminal.run("hub", "upgrade", "--backup", tmp_path / "b")
    assert re.search(f"from version {FIRST}", " ".join(said.split()))
    assert "nothing to do" in terminal.run("hub", "upgrade")
    assert "liver" in terminal.run("hub", "members")
    for made in tmp_path.glob("*.backup"):
        assert made.stat().st_mode & 0o777 == 0o600


def test_a_failed_step_changes_nothing(
    old: Old, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_database(old.url, any_version=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fedbo.hub.store.backup.record", _interrupt)
        upgrade(engine, tmp_path / "b")
    with engine.connect() as connection:
        names = {*engine.dialect.get_table_names(connection)}
    assert "session" not in names
    assert upgrade(engine, tmp_path / "b") is not None
    engine.dispose()


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _check_usable(engine: Engine, old: Old) -> None:
    """Check that the hub goes on: numbers, sessions, the audit log."""
    with begin(engine) as connection:
        assert publish(connection, old.tokens["Zürich 2"], message("Zürich 2", 9))
        member = caller(connection, old.tokens["Zürich 2"])
        assert store.by_session(connection, store.log_in(connection, member)) == member
        invited = store.invite(connection, "liver", actor=ACTOR).invitation
        key = keys_of("another").public
        store.enrol(connection, Invitation.parse(invited).secret, "another", key)
        assert store.prune(connection, 1e11, actor=ACTOR) > 5
    with pytest.raises(Exception, match="append-only"), begin(engine) as connection:
        connection.execute(text("DELETE FROM audit"))
