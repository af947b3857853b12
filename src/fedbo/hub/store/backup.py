"""Backups: one SQLite file with all tables of a hub, made while it runs.

A backup shows the database at one moment. It has the same form whatever the database is, so
restoring it also moves a hub from SQLite to PostgreSQL and back. The table ``fedbo_backup`` has a
digest of all rows, so that damage is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
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
from fedbo.hub.names import COMMAND_LINE
from fedbo.hub.store import schema
from fedbo.hub.store.database import (
    BACKUP_TABLE,
    HubError,
    check_version,
    new_generation,
    open_database,
    unusable,
)
from fedbo.hub.store.transaction import begin, record

#: Is told how many rows are copied, and of how many.
Report = Callable[[int, int], None]

_BATCH = 200  # rows in memory
_TABLES = schema.metadata.sorted_tables  # what a row refers to comes first


def backup(engine: Engine, path: str | os.PathLike[str], report: Report | None = None) -> int:
    """Write a backup, completely or not at all. Only this user can read it.

    Args:
        engine: The database of a hub, which may be running.
        path: The file; an earlier backup is replaced, and nothing else.
        report: Is called from time to time.

    Returns:
        The number of rows in it.

    Raises:
        HubError: If it cannot be written.
    """
    file = Path(path).absolute()
    _check_place(file)
    try:
        with (
            files.replacing(file, 0o600) as unfinished,
            _file(Path(unfinished)) as copy,
            _snapshot(engine) as source,
            copy.begin() as target,
        ):
            schema.metadata.create_all(target)
            rows = _copy(source, target, report)
            _seal(target)
    except OSError as error:
        raise HubError(f"the backup {file} cannot be written: {error.strerror}") from None
    except DBAPIError as error:
        is_read = str(error.statement).startswith("SELECT")
        if is_read or not isinstance(error.orig, sqlite3.Error):
            raise unusable(engine, error) from None
        raise HubError(f"the backup {file} cannot be written: {error.orig}") from None
    return rows


def restore(path: str | os.PathLike[str], url: str, report: Report | None = None) -> int:
    """Put a backup into a new database.

    Cursors start anew, so that every agent fetches everything once. Releases may have been made
    after the backup, so federations with a privacy plan make none until they are reconciled.

    Args:
        path: A file that `backup` wrote.
        url: The database, which must be empty or not exist.
        report: Is called from time to time.

    Returns:
        The number of rows.

    Raises:
        HubError: If the file cannot be used, or the database is not empty. It is left as it was.
    """
    with _checked(Path(path).absolute()) as source:
        engine = open_database(url)
        try:
            with begin(engine) as target:
                _check_empty(engine, target)
                target.execute(delete(schema.hub))
                rows = _copy(source, target, report)
                target.execute(update(schema.hub).values(generation=new_generation()))
                private = update(schema.federation).where(schema.federation.c.is_private)
                target.execute(private.values(is_unreconciled=True))
                _number(target)
                record(target, "restored", actor=COMMAND_LINE, detail={"rows": rows})
        except DBAPIError as error:
            raise unusable(engine, error) from None
        finally:
            engine.dispose()
    return rows


def _check_place(file: Path) -> None:
    """Refuse a file that is not an earlier backup: it may be the database itself."""
    if not file.parent.is_dir():
        raise HubError(f"the folder {file.parent} does not exist: create it first")
    if not os.path.lexists(file):
        return
    is_backup = False
    with (
        contextlib.suppress(OSError, DBAPIError),
        _file(file, is_new=False) as copy,
        copy.connect() as connection,
    ):
        is_backup = BACKUP_TABLE in _names(connection)
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


def _copy(source: Connection, target: Connection, report: Report | None) -> int:
    """Copy all rows, and return how many there are."""
    total = sum(source.scalar(select(func.count()).select_from(each)) or 0 for each in _TABLES)
    done = 0
    for table in _TABLES:
        query = select(table).order_by(table.c.id).execution_options(yield_per=_BATCH)
        with source.execute(query) as rows:
            for batch in rows.mappings().partitions():
                target.execute(insert(table), [dict(row) for row in batch])
                done += len(batch)
                if report is not None:
                    report(done, total)
    return done


def _seal(connection: Connection) -> None:
    """Write down the digest of all rows."""
    digest = _digest(connection)
    connection.exec_driver_sql(f"CREATE TABLE {BACKUP_TABLE} (digest TEXT PRIMARY KEY)")
    connection.exec_driver_sql(f"INSERT INTO {BACKUP_TABLE} VALUES (?)", (digest,))


@contextlib.contextmanager
def _checked(file: Path) -> Iterator[Connection]:
    """Open a backup that is not damaged."""
    none = HubError(f"{file} is not a backup: give one that fedbo hub backup wrote")
    try:
        file.open("rb").close()
    except OSError as error:
        raise HubError(f"{file} cannot be read: {error.strerror}") from None
    with _file(file, is_new=False) as copy, copy.connect() as connection:
        try:
            names = _names(connection)
            if BACKUP_TABLE not in names:
                raise none
            check_version(connection, f"the backup {file}")
            sealed = connection.exec_driver_sql(f"SELECT digest FROM {BACKUP_TABLE}").scalar()
            is_whole = sealed == _digest(connection)
        except DBAPIError as error:
            if getattr(error.orig, "sqlite_errorname", "") == "SQLITE_NOTADB":
                raise none from None
            raise HubError(f"{file} is damaged ({error.orig}): use another backup") from None
        if not is_whole:
            raise HubError(f"{file} is damaged: it is not what was written; use another backup")
        yield connection


def _check_empty(engine: Engine, target: Connection) -> None:
    filled = [
        table.name
        for table in _TABLES
        if table is not schema.hub and target.execute(select(table.c.id).limit(1)).first()
    ]
    if filled:
        raise HubError(
            f"the database {engine.url!r} is not empty (there are rows in "
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
        if is_new:  # an unfinished file is thrown away
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")

    try:
        yield engine
    finally:
        engine.dispose()


def _names(connection: Connection) -> set[str]:
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%'"
    return {name for (name,) in connection.exec_driver_sql(f"{tables} ESCAPE '!'")}


def _digest(connection: Connection) -> str:
    """Return a digest of all tables but that of backups: their columns and rows."""
    total = hashlib.sha256()
    for name in sorted(_names(connection) - {BACKUP_TABLE}):
        quoted = '"' + name.replace('"', '""') + '"'
        rows = connection.exec_driver_sql(f"SELECT * FROM {quoted} ORDER BY 1")
        total.update(msgspec.msgpack.encode([name, *rows.keys()]))
        for row in rows:
            total.update(msgspec.msgpack.encode(tuple(row)))
    return total.hexdigest()
