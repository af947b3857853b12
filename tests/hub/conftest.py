"""Databases for the tests of the hub: SQLite files, and a real PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from contracts.hub import HubProcess, new_postgresql
from hub.world import World
from sqlalchemy import Engine

from fedbo.hub.store import open_database

KINDS = ("sqlite", "postgresql")


@pytest.fixture
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Returns the address of a new, empty database of a kind: "sqlite" or "postgresql"."""
    with ExitStack() as databases:

        def new(kind: str) -> str:
            if kind == "sqlite":
                return f"sqlite:///{tmp_path}/hub_{secrets.token_hex(6)}.db"
            server = request.getfixturevalue("postgresql_server")
            return databases.enter_context(new_postgresql(server))

        yield new


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
