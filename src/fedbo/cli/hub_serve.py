"""``fedbo hub serve``: run a hub; back its database up, and restore it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer
from rich.console import Console

from fedbo.cli import checks, screen
from fedbo.cli.hub_manage import Config, Db, database, reading, settings_of
from fedbo.hub.settings import Settings, descriptions, load
from fedbo.outside import without_password

if TYPE_CHECKING:
    from sqlalchemy import Engine


def serve(config: Config = None, **flags: object) -> None:
    """Serve federations to their members, and a page to look at.

    Every option can also be given as a variable (FEDBO_HUB_PORT) or in the file (port). An option
    counts more than a variable, and a variable more than the file.
    """
    checks.require("hub", {"fastapi": "fastapi", "uvicorn": "uvicorn", "sqlalchemy": "SQLAlchemy"})
    from fedbo.hub.serve import Stage
    from fedbo.hub.store import HubError

    try:
        settings = load(flags, config, os.environ)
        stage = Stage(settings)
    except (ValueError, HubError) as error:
        checks.end(str(error))
    typer.echo(f"fedbo hub: {stage.address}")
    for line in _welcome(settings, stage.engine, stage.address):
        typer.echo(screen.lines(line))
    raise typer.Exit(stage.run())


def _signature() -> inspect.Signature:
    """Return the options of `serve`: the settings of a hub, and the file that has them."""
    texts, types = descriptions(), get_type_hints(Settings)
    options = {
        name: Annotated[
            types[name] | None,
            typer.Option(
                f"--{name.replace('_', '-')}", help=text.replace("``", ""), show_default=False
            ),
        ]
        for name, text in texts.items()
    }
    return inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
            for name, option in {**options, "config": Config}.items()
        ]
    )


serve.__signature__ = _signature()  # type: ignore[attr-defined]


def backup(
    file: Annotated[Path, typer.Argument(help="Where to put it; an earlier backup is replaced.")],
    db: Db = None,
    config: Config = None,
) -> None:
    """Copy the whole database to one file, while the hub runs. Only this user can read it."""
    with database(settings_of(db, config).db) as engine, _bar("backing up") as report:
        from fedbo.hub.store import backup as backups

        rows = backups.backup(engine, file, report)
    size = screen.size(file.stat().st_size)
    screen.say(
        Console(),
        f"{screen.count(rows, 'row')} are in {file} ({size}). It has no token in clear, but every "
        "message: keep it as safe as the hub.",
    )


def restore(
    file: Annotated[Path, typer.Argument(help="What fedbo hub backup wrote.")],
    db: Db = None,
    config: Config = None,
) -> None:
    """Put a backup into a new database, SQLite or PostgreSQL, wherever it came from."""
    chosen = settings_of(db, config)
    from fedbo.hub import store
    from fedbo.hub.store.backup import restore as put

    try:
        with _bar("restoring") as report:
            rows = put(file, chosen.db, report)
    except store.HubError as error:
        checks.end(str(error))
    screen.say(
        Console(),
        f"{screen.count(rows, 'row')} are in {without_password(chosen.db)}. Start the hub with it "
        "now, or again if it is running. What happened after the backup is lost: whoever joined or "
        "got a new token since then has to join again, with a new invitation.",
    )
    with reading(chosen.db) as connection:
        rows_of = [row.name for row in store.federations(connection)]
        names = [name for name in rows_of if store.find_federation(connection, name).is_private]
    for name in names:
        screen.say(
            Console(),
            f"• {name!r} has a privacy plan, and releases may have been made after the backup. "
            "None is made until you have asked the members for the number of the last release "
            f"that fedbo ledger shows, and run fedbo hub reconcile {name} --releases NUMBER",
            "yellow",
        )


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far it has come, if this is a terminal."""
    from rich.progress import Progress  # slow to import

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _welcome(settings: Settings, engine: Engine, address: str) -> list[str]:
    """Return what to tell who started a hub: where it is, and what to do next."""
    from fedbo.hub import store

    page = settings.public_url or address
    with engine.connect() as connection:
        federations = store.federations(connection)
        has_operator = bool(store.operators(connection))
    db = f" --db {without_password(settings.db)}" if settings.db != type(settings)().db else ""
    said = [f"The page is at {page}/; the database is {_database(settings)}."]
    if not has_operator:
        said.append(f"There is no operator yet: fedbo hub operator add NAME{db} prints a token.")
    if not federations:
        said.append(
            "There is no federation yet: fedbo hub create NAME --federation federation.toml"
            f"{db} creates one and prints an invitation."
        )
    return said


def _database(settings: Settings) -> str:
    """Return where the database is: the full path of a file, or an address without a password."""
    from sqlalchemy.engine import make_url

    url = make_url(settings.db)
    file = url.database or ""
    if url.get_backend_name() == "sqlite" and file and not file.startswith((":", "file:")):
        return os.path.abspath(file)
    return without_password(settings.db)
