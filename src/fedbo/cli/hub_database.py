"""What the commands that manage a hub share: its settings, its database, and how they end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.cli import checks

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from fedbo.hub.settings import Settings

Db = Annotated[
    str | None,
    typer.Option(
        help="The hub's database: sqlite:///FILE, or postgresql+psycopg://USER@HOST/DATABASE. By "
        "default that of the variable FEDBO_HUB_DB, that of --config, or sqlite:///fedbo.db. Put "
        "an address with a password into the variable or the file.",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        help="The hub's settings, a TOML file.", envvar="FEDBO_HUB_CONFIG", show_default=False
    ),
]


def settings(db: str | None, config: Path | None) -> Settings:
    """Return the settings of the hub, or end the program and say what is wrong with them."""
    checks.require(
        "hub", {"sqlalchemy": "sqlalchemy", "alembic": "alembic", "cryptography": "cryptography"}
    )
    from fedbo.hub.settings import load

    try:
        return load({"db": db}, config, os.environ)
    except ValueError as error:
        checks.end(str(error))


@contextmanager
def database(url: str, *, must_exist: bool = True) -> Iterator[Engine]:
    """Open the hub's database; what it or the hub refuses ends the program with a sentence.

    Args:
        url: Its address.
        must_exist: Whether a database without a hub is an error.
    """
    from sqlalchemy.exc import DBAPIError

    from fedbo.hub.database import HubError, open_database, unusable
    from fedbo.hub.problems import Refused

    try:
        engine = open_database(url, must_exist=must_exist)
    except HubError as error:
        checks.end(str(error))
    try:
        yield engine
    except (HubError, Refused) as error:
        checks.end(str(error))
    except DBAPIError as error:
        checks.end(str(unusable(engine, error)))
    finally:
        engine.dispose()
