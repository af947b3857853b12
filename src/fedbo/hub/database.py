"""The database of a hub: how it is opened, brought up to date and written to.

It is a SQLite file, or a PostgreSQL database. What was committed is on the disk. On SQLite, one
transaction writes at a time; writers wait for their turn in the order in which they came.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from fedbo.hub import migrations, schema
from fedbo.version import __version__

if sys.platform != "win32":
    import fcntl

#: A table that only backups have.
BACKUP_TABLE = "fedbo_backup"
_EXPECTED = "expected sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_BUSY = 30.0  # seconds that SQLite waits for a lock
_MOST_PAGES = 32768  # written ahead; `fedbo.hub.checkpoints` moves them earlier
_CONNECT = 10  # seconds in which PostgreSQL must answer
_SECRETS = ("password", "sslpassword")  # in the query of a URL
_EFFECTIVE = os.access in os.supports_effective_ids
_SHOWN = 3  # tables of another program


class HubError(RuntimeError):
    """A hub cannot work with its database or a file; the text says why and what to do."""


def shown(url: str | URL) -> str:
    """Return the URL of a database without its password.

    Args:
        url: The URL.

    >>> shown("postgresql+psycopg://hub:secret@db.example.org/fedbo")
    'postgresql+psycopg://hub:***@db.example.org/fedbo'
    """
    parsed = _parsed(url)
    hidden = {name: "hidden" for name in _SECRETS if name in parsed.query}
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True)


def open_database(url: str | URL, *, must_exist: bool = False) -> Engine:
    """Connect to the database of a hub, and bring its tables up to date.

    A new database gets its tables. Several processes may open one at the same time.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql+psycopg://USER:PASSWORD@HOST/DATABASE``.
        must_exist: Whether a database that has no hub yet is an error.

    Raises:
        HubError: If it cannot be reached, belongs to another program, or to a newer fedbo.
    """
    parsed = _parsed(url)
    try:
        engine = _sqlite(parsed, must_exist) if _is_sqlite(parsed) else _postgresql(parsed)
    except ModuleNotFoundError as error:
        raise HubError(
            f"PostgreSQL needs {error.name}, which is not installed: pip install 'fedbo[hub]'"
        ) from None
    try:
        with begin(engine) as connection:
            _prepare(connection, parsed, must_exist)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, DBAPIError):
            raise unusable(engine, error) from None
        raise
    return engine


@contextlib.contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    """Start a transaction that writes; it is committed at the end, or undone after an exception.

    On SQLite nobody else writes until it ends, and nothing that it reads can change. On PostgreSQL
    a transaction locks the rows that it is going to change.

    Args:
        engine: What `open_database` returned.
    """
    with turn(engine), engine.connect() as connection:
        connection.execution_options(is_write=True)
        with connection.begin():
            yield connection


def unusable(engine: Engine, error: DBAPIError) -> HubError:
    """Say why a database did not do what it should.

    Args:
        engine: Its engine.
        error: What happened. Its statement and its values are not shown.
    """
    reason = " ".join(str(error.orig).split()).rstrip(".")
    where = shown(engine.url)
    if "file is not a database" in reason:
        return HubError(f"{engine.url.database} is not a SQLite database: give the hub a new file")
    if "malformed" in reason:
        return HubError(f"{engine.url.database} is damaged ({reason}): restore a backup")
    if engine.dialect.name == "sqlite":
        return HubError(f"the database {where} cannot be used: {reason}")
    if error.connection_invalidated or type(error.orig).__name__ == "OperationalError":
        return HubError(
            f"the database {where} cannot be reached ({reason}): check the address, and that "
            "PostgreSQL is running"
        )
    return HubError(f"the database {where} cannot be used: {reason}")


def newer(what: str, revision: str) -> HubError:
    """Say that something was made by a newer fedbo.

    Args:
        what: What it is.
        revision: Its revision, which this fedbo does not know.
    """
    return HubError(
        f"{what} has revision {revision}, made by a newer fedbo: fedbo {__version__} knows "
        f"revisions up to {migrations.NEWEST}; update fedbo, or use a backup that this version "
        "made"
    )


def _parsed(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # not quoted: it may contain a password
        raise HubError(f"the address of the database is not a URL, {_EXPECTED}") from None
    if parsed.drivername not in _DRIVERS:
        raise HubError(f"the database is of the kind {parsed.drivername!r}, {_EXPECTED}")
    parsed = parsed.set(drivername=_DRIVERS[parsed.drivername])
    if not _is_sqlite(parsed):
        return parsed
    file = parsed.database or ""
    if not file or file == ":memory:" or file.startswith("file:") or parsed.query or parsed.host:
        raise HubError(f"the database is {parsed}, expected the path of a file: sqlite:///FILE")
    return parsed.set(database=os.path.abspath(file))


def _is_sqlite(url: URL) -> bool:
    return url.drivername == "sqlite"


def _postgresql(url: URL) -> Engine:
    timeout = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT}
    return create_engine(url, hide_parameters=True, pool_pre_ping=True, connect_args=timeout)


def _sqlite(url: URL, must_exist: bool) -> Engine:
    file = str(url.database)
    _make_file(file, must_exist)
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": _BUSY})

    @event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # transactions begin below, and not by themselves
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        is_write = connection.get_execution_options().get("is_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")

    try:
        with turn(engine), contextlib.closing(engine.raw_connection()) as connection:
            (mode,) = connection.cursor().execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.Error as error:
        raise unusable(engine, DBAPIError(None, None, error)) from None
    except DBAPIError as error:
        raise unusable(engine, error) from None
    if mode != "wal":
        raise HubError(
            f"{file} is in a place where SQLite cannot write ahead (its journal mode is {mode!r}), "
            "such as a network drive: put it on a local disk"
        )
    return engine


def _make_file(file: str, must_exist: bool) -> None:
    """Create the file so that only this user can read it, or say why that cannot be done."""
    folder = os.path.dirname(file)
    try:
        status = os.stat(file)
    except FileNotFoundError:
        if must_exist:
            raise HubError(_no_hub(f"there is no file {file}")) from None
        if not os.path.isdir(folder):
            raise HubError(f"the folder {folder} does not exist: create it first") from None
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise HubError(f"{file} cannot be created: {error.strerror}") from None
        return
    except OSError as error:
        raise HubError(f"{file} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise HubError(f"{file} is not a regular file: give the hub a file of its own")
    for path in (file, folder):  # SQLite puts other files beside it
        if not os.access(path, os.R_OK | os.W_OK, effective_ids=_EFFECTIVE):
            raise HubError(
                f"{path} cannot be read and written by this user: run this as the user who runs "
                "the hub"
            )


@contextlib.contextmanager
def turn(engine: Engine) -> Iterator[None]:
    """Wait until no other thread or process writes to this SQLite file.

    SQLite's own way of waiting is to try again and again, which lets some writers starve.

    Args:
        engine: What `open_database` returned.
    """
    if engine.dialect.name != "sqlite" or sys.platform == "win32":
        yield
        return
    database = str(engine.url.database)
    fd = -1
    with contextlib.suppress(OSError):  # SQLite's own locks still hold
        fd = _lock_file(database)
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # a process forked meanwhile has it open too
            os.close(fd)


def _lock_file(database: str) -> int:
    """Open the file to lock; it belongs to the owner of the database, whoever creates it."""
    path = f"{database}-lock"
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        owner = os.stat(database)
        fd = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
        with contextlib.suppress(OSError):
            os.fchmod(fd, stat.S_IMODE(owner.st_mode))
            os.fchown(fd, owner.st_uid, owner.st_gid)
        return fd


def _prepare(connection: Connection, url: URL, must_exist: bool) -> None:
    migrations.lock(connection)
    found, newest = migrations.current(connection), migrations.NEWEST
    names = inspect(connection).get_table_names()
    if BACKUP_TABLE in names:
        raise HubError(
            f"{url.database} is a backup: put it into a new database with fedbo hub restore"
        )
    if found is None:
        if names:
            listed = ", ".join(sorted(names)[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
            raise HubError(
                f"the database {shown(url)} has tables of another program ({listed}): give the hub "
                "a database of its own"
            )
        if must_exist:
            raise HubError(_no_hub(f"the database {shown(url)} is empty"))
    elif not migrations.is_known(found):
        raise newer(f"the database {shown(url)}", found)
    if found != newest:
        migrations.upgrade(connection)
    if connection.execute(select(schema.hub.c.id)).first() is None:
        first = {"id": 1, "generation": new_generation(), "created": time.time()}
        connection.execute(insert(schema.hub).values(first))


def _no_hub(what: str) -> str:
    return f"{what}: check --db, or create a federation with fedbo hub create"


def new_generation() -> str:
    """Return a name for the history of a database; cursors of another history do not fit it."""
    return secrets.token_hex(8)
