"""Backups: one SQLite file with all tables of a hub, made while it runs.

A backup shows the database at one moment. It has the same form whatever the database is, so
restoring it also moves a hub from SQLite to PostgreSQL and back. A backup has the version of its
database, and is upgraded when it is restored. The last 32 bytes of the file,
behind the database, are the SHA-256 of all before them, so that any damage is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    create_engine,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from fedbo import files
from fedbo.errors import HubError
from fedbo.hub.names import command_line
from fedbo.hub.store import schema
from fedbo.hub.store.database import (
    BACKUP,
    check_version,
    new_generation,
    open_database,
    unusable,
    version_of,
)
from fedbo.hub.store.migrations import migrate
from fedbo.hub.store.transaction import begin, record

_BATCH = 200  # rows in memory
_DIGEST = 32  # bytes
_CHUNK = 2**20  # bytes
_TABLES = schema.metadata.sorted_tables  # what a row refers to comes first


def backup(engine: Engine, path: str | os.PathLike[str]) -> int:
    """Write a backup, completely or not at all. Only this user can read it.

    Args:
        engine: The database of a hub, which may be running.
        path: The file; an earlier backup is replaced, and nothing else.

    Returns:
        The number of rows in it.

    Raises:
        HubError: If it cannot be written.
    """
    file = Path(path).absolute()
    if os.path.lexists(file) and not _is_whole(file):  # it may be the database itself
        raise HubError(f"{file} exists and is not a backup: give the backup another name")
    try:
        with files.replacing(file, 0o600) as (unfinished, _):
            with _file(unfinished, "rw") as copy, _snapshot(engine) as source, copy.begin():
                migrate(copy, version_of(source))
                rows = _copy(source, copy)
                copy.execute(update(schema.hub).values(generation=BACKUP))
            with open(unfinished, "ab") as end:
                end.write(_digest(Path(unfinished), os.path.getsize(unfinished)))
    except OSError as error:
        raise HubError(f"the backup {file} cannot be written: {error.strerror}") from None
    except DBAPIError as error:
        raise unusable(engine, error) from None
    return rows


def upgrade(engine: Engine, path: str | os.PathLike[str] | None = None) -> tuple[str, Path] | None:
    """Bring an older database to the version of this fedbo, after a backup.

    Args:
        engine: The database, opened with ``any_version``. No hub must be running on it.
        path: The file for the backup; by default one beside a SQLite file.

    Returns:
        The version that it had, and the backup; None if there is nothing to do.

    Raises:
        HubError: If the backup cannot be written, or has no place. Nothing was changed.
    """
    with engine.connect() as connection:
        version = version_of(connection)
    if version == schema.VERSION:
        return None
    if path is None and engine.dialect.name != "sqlite":
        raise HubError(
            "a database of PostgreSQL is backed up before its upgrade: give --backup FILE"
        )
    file = Path(path or f"{engine.url.database}.version-{version}.backup").absolute()
    backup(engine, file)
    try:
        with begin(engine) as target:
            migrate(target)
            detail = {"from": version, "to": schema.VERSION}
            record(target, "upgraded", actor=command_line(), detail=detail)
    except DBAPIError as error:
        raise unusable(engine, error) from None
    return version, file


def restore(path: str | os.PathLike[str], url: str) -> int:
    """Put a backup into a new database.

    Cursors start anew, so that every agent fetches everything once. What was taken back after the
    backup is there again, such as members that were revoked, and releases that were made since are
    not known: so all members are suspended until `admit`, and there are no invitations.

    Args:
        path: A file that `backup` wrote.
        url: The database, which must be empty or not exist.

    Returns:
        The number of rows.

    Raises:
        HubError: If the file cannot be used, or the database is not empty. It is left as it was.
    """
    file = Path(path).absolute()
    try:
        is_whole = _is_whole(file)
    except OSError as error:
        raise HubError(f"{file} cannot be read: {error.strerror}") from None
    if not is_whole:
        raise HubError(f"{file} is damaged, or not what fedbo hub backup wrote: use another backup")
    with _file(file, "ro&immutable=1") as source:
        check_version(source, f"the backup {file}", None)
        engine = open_database(url, version=version_of(source))
        try:
            with begin(engine) as target:
                _check_empty(engine, target)
                target.execute(delete(schema.hub))
                rows = _copy(source, target)
                migrate(target)
                target.execute(update(schema.hub).values(generation=new_generation()))
                private = update(schema.federation).where(schema.federation.c.is_private)
                target.execute(private.values(is_restored=True))
                target.execute(update(schema.member).values(is_suspended=True))
                for table in (schema.invitation, schema.session):
                    target.execute(delete(table))
                _number(target)
                record(target, "restored", actor=command_line(), detail={"rows": rows})
        except DBAPIError as error:
            raise unusable(engine, error) from None
        finally:
            engine.dispose()
    return rows


def _is_whole(file: Path) -> bool:
    """Tell whether a file is a backup in which no byte was changed."""
    size = file.stat().st_size - _DIGEST
    if not file.is_file() or size < 0:
        return False
    with open(file, "rb") as end:
        end.seek(size)
        return end.read() == _digest(file, size)


def _digest(file: Path, size: int) -> bytes:
    """Return the SHA-256 of so many bytes of a file."""
    total = hashlib.sha256()
    with open(file, "rb") as start:
        while size > 0 and (chunk := start.read(min(size, _CHUNK))):
            total.update(chunk)
            size -= len(chunk)
    return total.digest()


@contextlib.contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """Connect so that everything is read as it is now, whatever others write meanwhile."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        yield connection


def _copy(source: Connection, target: Connection) -> int:
    """Copy all rows between tables of the same version, and return how many there are."""
    done, found, wanted = 0, MetaData(), MetaData()
    found.reflect(source)
    wanted.reflect(target)
    for table in found.sorted_tables:
        if table.name == schema.alembic_version.name:
            continue
        query = select(table).order_by(table.c.id).execution_options(yield_per=_BATCH)
        with source.execute(query) as rows:
            for batch in rows.mappings().partitions():
                copied = [dict(row) for row in batch]
                target.execute(insert(wanted.tables[table.name]), copied)
                done += len(batch)
    return done


def _check_empty(engine: Engine, target: Connection) -> None:
    for table in (schema.federation, schema.audit):
        if target.execute(select(table.c.id).limit(1)).first():
            raise HubError(
                f"the database {engine.url!r} is not empty (there are rows in {table.name}): "
                "restore into a new one"
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
def _file(path: str | Path, mode: str) -> Iterator[Connection]:
    """Connect to a SQLite file."""

    def connect() -> Any:
        return sqlite3.connect(f"{Path(path).as_uri()}?mode={mode}", uri=True)

    engine = create_engine("sqlite://", creator=connect, hide_parameters=True)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()
