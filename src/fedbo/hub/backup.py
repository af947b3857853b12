"""Backups: one SQLite file with all tables of a hub, made while it runs.

A backup shows the database at one moment. It has the same form whatever the database is, so
restoring it also moves a hub from SQLite to PostgreSQL and back. The table ``fedbo_backup`` has the
number of rows of each table and a digest of them, so that damage is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    Connection,
    Engine,
    StaticPool,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from fedbo import files
from fedbo.hub import admin, migrations, schema
from fedbo.hub.database import (
    BACKUP_TABLE,
    HubError,
    begin,
    new_generation,
    newer,
    open_database,
    shown,
    unusable,
)

#: Is told how many rows are copied, and of how many.
Progress = Callable[[int, int], None]

_SUMS = f"SELECT name, rows, digest FROM {BACKUP_TABLE}"
_BATCH = 200  # rows in memory
_TABLES = schema.metadata.sorted_tables  # what a row refers to comes first


def backup(engine: Engine, path: str | os.PathLike[str], progress: Progress | None = None) -> int:
    """Write a backup, completely or not at all. Only this user can read it.

    Args:
        engine: The database of a hub, which may be running.
        path: The file; an earlier backup is replaced, and nothing else.
        progress: Is called from time to time.

    Returns:
        The number of rows in it.

    Raises:
        HubError: If it cannot be written.
    """
    file = Path(path).absolute()
    _check_place(engine, file)
    try:
        with (
            files.replacing(file, 0o600) as unfinished,
            _file(Path(unfinished)) as copy,
            _snapshot(engine) as source,
            copy.connect() as target,
        ):
            migrations.upgrade(target)
            rows = _copy(source, target, progress)
            target.commit()
            _seal(_raw(target))
    except OSError as error:
        raise HubError(f"the backup {file} cannot be written: {error.strerror}") from None
    except sqlite3.Error as error:
        raise HubError(f"the backup {file} cannot be written: {error}") from None
    except DBAPIError as error:
        is_read = str(error.statement).startswith("SELECT")
        if is_read or not isinstance(error.orig, sqlite3.Error):
            raise unusable(engine, error) from None
        raise HubError(f"the backup {file} cannot be written: {error.orig}") from None
    return rows


def restore(path: str | os.PathLike[str], url: str, progress: Progress | None = None) -> int:
    """Put a backup into a new database.

    Cursors start anew, so that every agent fetches everything once. Releases may have been made
    after the backup, so federations with a privacy plan make none until `admin.reconcile`.

    Args:
        path: A file that `backup` wrote, with this or an earlier fedbo.
        url: The database, which must be empty or not exist.
        progress: Is called from time to time.

    Returns:
        The number of rows.

    Raises:
        HubError: If the file cannot be used, or the database is not empty. It is left as it was.
    """
    file = Path(path).absolute()
    with _checked(file) as copy:
        engine = open_database(url)
        try:
            with copy.connect() as source, begin(engine) as target:
                migrations.lock(target)
                _check_empty(engine, target)
                target.execute(delete(schema.hub))
                rows = _copy(source, target, progress)
                target.execute(update(schema.hub).values(generation=new_generation()))
                private = update(schema.federation).where(schema.federation.c.is_private)
                target.execute(private.values(is_unreconciled=True))
                _number(target)
                detail = {"rows": rows}
                admin.record(target, "restored", actor=admin.COMMAND_LINE, detail=detail)
        except DBAPIError as error:
            raise unusable(engine, error) from None
        finally:
            engine.dispose()
    return rows


def _check_place(engine: Engine, file: Path) -> None:
    """Refuse a file that is not an earlier backup: it may be the database itself."""
    if not file.parent.is_dir():
        raise HubError(f"the folder {file.parent} does not exist: create it first")
    if not os.path.lexists(file):
        return
    is_backup = False
    with (
        contextlib.suppress(OSError, sqlite3.Error, DBAPIError),
        _file(file, is_new=False) as copy,
        copy.connect() as connection,
    ):
        is_backup = BACKUP_TABLE in _names(_raw(connection))
    if not is_backup:
        raise HubError(f"{file} exists and is not a backup: give the backup another name")


@contextlib.contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """Connect so that everything is read as it is now, whatever others write meanwhile."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        yield connection


def _copy(source: Connection, target: Connection, progress: Progress | None) -> int:
    """Copy all rows, and return how many there are."""
    total = sum(source.scalar(select(func.count()).select_from(each)) or 0 for each in _TABLES)
    done = 0
    for table in _TABLES:
        query = select(table).order_by(table.c.id).execution_options(yield_per=_BATCH)
        with source.execute(query) as rows:
            for batch in rows.mappings().partitions():
                target.execute(insert(table), [dict(row) for row in batch])
                done += len(batch)
                if progress is not None:
                    progress(done, total)
    return done


def _seal(connection: sqlite3.Connection) -> None:
    """Write down how many rows each table has, and their digest."""
    sums = [(name, *_digest(connection, name)) for name in sorted(_names(connection))]
    connection.execute(
        f"CREATE TABLE {BACKUP_TABLE} (name TEXT PRIMARY KEY, rows INTEGER, digest BLOB)"
    )
    connection.executemany(f"INSERT INTO {BACKUP_TABLE} VALUES (?, ?, ?)", sums)
    connection.commit()


@contextlib.contextmanager
def _checked(file: Path) -> Iterator[Engine]:
    """Open a backup that is not damaged; an older one is brought to the newest revision."""
    with contextlib.ExitStack() as stack:
        try:
            if not file.is_file():
                raise HubError(f"there is no file {file}: give one that fedbo hub backup wrote")
            file.open("rb").close()
            copy = stack.enter_context(_file(file, is_new=False))
            with copy.connect() as connection:
                revision = _check(file, connection)
            if revision != migrations.NEWEST:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                older = Path(shutil.copyfile(file, Path(folder, "older.db")))
                copy = stack.enter_context(_file(older))
                with copy.connect() as connection:
                    migrations.upgrade(connection)
                    connection.commit()
        except OSError as error:
            raise HubError(f"{file} cannot be read: {error.strerror}") from None
        yield copy


def _check(file: Path, connection: Connection) -> str:
    """Return the revision of a backup; a HubError if it is none, damaged or too new."""
    raw = _raw(connection)
    try:
        names = _names(raw)
        if BACKUP_TABLE not in names:
            raise HubError(f"{file} is not a backup: give one that fedbo hub backup wrote")
        revision = str(migrations.current(connection))
        if not migrations.is_known(revision):
            raise newer(f"the backup {file}", revision)
        (health,) = raw.execute("PRAGMA quick_check(1)").fetchone()
        sums = {name: (rows, digest) for name, rows, digest in raw.execute(_SUMS)}
        found = {name: _digest(raw, name) for name in names - {BACKUP_TABLE}}
    except (sqlite3.Error, DBAPIError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        if "file is not a database" in str(reason):
            raise HubError(
                f"{file} is not a backup: give one that fedbo hub backup wrote"
            ) from None
        raise HubError(f"{file} is damaged ({reason}): use another backup") from None
    if health != "ok" or sums != found:
        what = ", ".join(sorted(n for n in sums.keys() | found if sums.get(n) != found.get(n)))
        raise HubError(
            f"{file} is damaged ({what or health} is not what was written): use another backup"
        )
    return revision


def _check_empty(engine: Engine, target: Connection) -> None:
    filled = [
        table.name
        for table in _TABLES
        if table is not schema.hub and target.execute(select(table.c.id).limit(1)).first()
    ]
    if filled:
        raise HubError(
            f"the database {shown(engine.url)} is not empty (there are rows in "
            f"{', '.join(filled)}): restore into a new one"
        )


def _number(target: Connection) -> None:
    """Let PostgreSQL continue to number rows after those that were copied."""
    if target.dialect.name == "postgresql":
        for table in _TABLES:
            last = target.scalar(select(func.max(table.c.id)))
            if last is not None:
                sequence = func.pg_get_serial_sequence(f'"{table.name}"', "id")
                target.execute(select(func.setval(sequence, last)))


@contextlib.contextmanager
def _file(path: Path, *, is_new: bool = True) -> Iterator[Engine]:
    """Open a SQLite file with one connection; one that is not new is only read."""
    mode = "rw" if is_new else "ro&immutable=1"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, check_same_thread=False)

    engine = create_engine("sqlite://", creator=connect, poolclass=StaticPool, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: Any) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        if is_new:  # an unfinished file is thrown away
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")

    try:
        yield engine
    finally:
        engine.dispose()


def _raw(connection: Connection) -> sqlite3.Connection:
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def _names(connection: sqlite3.Connection) -> set[str]:
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%'"
    return {name for (name,) in connection.execute(f"{tables} ESCAPE '!'")}


def _digest(connection: sqlite3.Connection, name: str) -> tuple[int, bytes]:
    quoted = '"' + name.replace('"', '""') + '"'
    rows = connection.execute(f"SELECT * FROM {quoted} ORDER BY 1")
    count, total = 0, hashlib.sha256()
    total.update(msgspec.msgpack.encode([column[0] for column in rows.description]))
    for row in rows:
        total.update(msgspec.msgpack.encode(row))
        count += 1
    return count, total.digest()
