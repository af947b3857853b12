"""The database of a hub: how it is opened.

It is a SQLite file, or a PostgreSQL database. What was committed is on the disk. On SQLite, one
transaction writes at a time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import sqlite3
import stat
import time
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from fedbo.errors import HubError
from fedbo.hub.store import schema
from fedbo.hub.store.migrations import migrate
from fedbo.hub.store.schema import VERSION
from fedbo.hub.store.transaction import begin, prepare_sqlite
from fedbo.outside import without_password
from fedbo.version import __version__

#: The generation of a backup; a database of a hub has a random one.
BACKUP = "backup"
_EXPECTED = "expected sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_BUSY = 30.0  # seconds that SQLite waits for a lock
_CONNECT = 10  # seconds in which PostgreSQL must answer
_THREADS = 40  # that may use a connection at once: as many as Starlette has
_CREATING = 0x666564626F  # the lock of whoever creates the tables in PostgreSQL


def open_database(
    url: str | URL,
    *,
    must_exist: bool = False,
    version: str = VERSION,
    any_version: bool = False,
) -> Engine:
    """Connect to the database of a hub. A new one gets its tables.

    Several processes may open one at the same time.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql+psycopg://USER:PASSWORD@HOST/DATABASE``.
        must_exist: Whether a database that has no hub yet is an error.
        version: The version that its tables have, or get.
        any_version: Whether it may be of an older version.

    Raises:
        HubError: If it cannot be reached, or belongs to another program or version.
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
            expected = None if any_version else version
            _prepare(connection, parsed, must_exist, expected)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, DBAPIError):
            raise unusable(engine, error) from None
        raise
    return engine


def create_tables(connection: Connection, version: str = VERSION) -> None:
    """Create all tables in an empty database."""
    migrate(connection, version)
    first = {"id": 1, "generation": new_generation(), "created": time.time()}
    connection.execute(insert(schema.hub).values(first))


def new_generation() -> str:
    """Return a name for the history of a database; cursors of another history do not fit it."""
    return secrets.token_hex(8)


def version_of(connection: Connection) -> str:
    """Return the version of the tables in a database; `HubError` if it has none."""
    if not inspect(connection).has_table(schema.alembic_version.name):
        raise HubError("the tables have no version: use what fedbo hub create or backup wrote")
    return str(connection.scalar(select(schema.alembic_version.c.version_num)))


def check_version(connection: Connection, what: str, expected: str | None = VERSION) -> None:
    """Raise `HubError` unless the tables in what is named have a version; None: or an older one."""
    found = version_of(connection)
    if found == expected or (expected is None and found <= VERSION):
        return
    if found > VERSION:
        todo = "use a newer fedbo: pip install --upgrade 'fedbo[hub]'"
    elif expected == VERSION:
        todo = "stop the hub, and run fedbo hub upgrade, which makes a backup first"
    else:
        todo = f"version {expected} is needed: use a new database"
    raise HubError(
        f"{what} has tables of version {found}, and fedbo {__version__} works with version "
        f"{VERSION}: {todo}"
    )


def unusable(engine: Engine, error: DBAPIError | sqlite3.Error) -> HubError:
    """Say why a database did not do what it should, without the statement and its values."""
    reason = " ".join(str(getattr(error, "orig", error)).split()).rstrip(".")
    return HubError(
        f"the database {_shown(engine.url)} cannot be used ({reason}): check its address, and that "
        "PostgreSQL is running if it is one; restore a backup if it is damaged"
    )


def _shown(url: URL) -> str:
    return without_password(url.render_as_string(hide_password=False))


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
    return create_engine(
        url, hide_parameters=True, pool_pre_ping=True, max_overflow=_THREADS, connect_args=timeout
    )


def _sqlite(url: URL, must_exist: bool) -> Engine:
    file = str(url.database)
    _make_file(file, must_exist)
    engine = create_engine(
        url, hide_parameters=True, max_overflow=_THREADS, connect_args={"timeout": _BUSY}
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # transactions begin below, and not by themselves
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    prepare_sqlite(engine)
    try:
        with contextlib.closing(engine.raw_connection()) as connection:
            (mode,) = connection.cursor().execute("PRAGMA journal_mode = WAL").fetchone()
    except (sqlite3.Error, DBAPIError) as error:
        raise unusable(engine, error) from None
    if mode != "wal":
        raise HubError(
            f"{file} is in a place where SQLite cannot write ahead (its journal mode is {mode!r}), "
            "such as a network drive: put it on a local disk"
        )
    return engine


def _make_file(file: str, must_exist: bool) -> None:
    """Create the file so that only this user can read it, or say why that cannot be done."""
    if must_exist and not os.path.exists(file):
        raise HubError(_no_hub(f"there is no file {file}"))
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
        mode = os.fstat(fd).st_mode
        os.close(fd)
    except OSError as error:
        raise HubError(f"{file} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise HubError(f"{file} is not a regular file: give the hub a file of its own")
    if mode & 0o022:
        raise HubError(
            f"other users can write to {file} (its mode is {stat.S_IMODE(mode):o}), and so take "
            f"over the hub: chmod 600 {shlex.quote(file)}"
        )


def _prepare(connection: Connection, url: URL, must_exist: bool, version: str | None) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATING})"))
    names = inspect(connection).get_table_names()
    if {schema.hub.name, schema.alembic_version.name} <= {*names}:
        check_version(connection, f"the database {_shown(url)}", version)
        if connection.scalar(select(schema.hub.c.generation)) == BACKUP:
            raise HubError(
                f"{url.database} is a backup: put it into a new database with fedbo hub restore"
            )
    elif names:
        raise HubError(
            f"the database {_shown(url)} has tables of another program ({min(names)}): give the "
            "hub a database of its own"
        )
    elif must_exist:
        raise HubError(_no_hub(f"the database {_shown(url)} is empty"))
    else:
        create_tables(connection, version or VERSION)


def _no_hub(what: str) -> str:
    return f"{what}: check --db, or create a federation with fedbo hub create"
