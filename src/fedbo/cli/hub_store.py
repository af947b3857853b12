"""``fedbo hub``: export the audit log, back the database up, and restore it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedbo import files
from fedbo.cli import checks, screen
from fedbo.cli.hub_database import Config, Db, database, settings


def audit(
    name: Annotated[
        str | None, typer.Argument(help="Only what concerns the federation of this name.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write it to this file, which only this user can read.")
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Export the audit log, one JSON object in each line."""
    if out is not None:
        checks.writable("--out", out)
    with database(settings(db, config).db) as engine:
        from fedbo.hub import admin

        if name is not None:
            with engine.connect() as connection:
                admin.find_federation(connection, name)
        lines = admin.audit_lines(engine, name)
        if out is None:
            for line in lines:
                typer.echo(line, nl=False)
            return
        try:
            with files.replacing(out, 0o600) as path, open(path, "w", encoding="utf-8") as file:
                count = sum(1 for line in lines if file.write(line))
        except OSError as error:
            checks.end(f"{out} cannot be written: {error.strerror}")
    screen.say(Console(), f"{screen.count(count, 'line')} of the audit log are in {out}.")


def backup(
    file: Annotated[Path, typer.Argument(help="Where to put it; an earlier backup is replaced.")],
    db: Db = None,
    config: Config = None,
) -> None:
    """Copy the whole database to one file, while the hub runs. Only this user can read it."""
    with database(settings(db, config).db) as engine, _bar("backing up") as progress:
        from fedbo.hub import backup as backups

        rows = backups.backup(engine, file, progress)
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
    chosen = settings(db, config)
    from fedbo.hub.backup import restore as put
    from fedbo.hub.database import HubError, shown

    try:
        with _bar("restoring") as progress:
            rows = put(file, chosen.db, progress)
        where = shown(chosen.db)
        private = _unreconciled(chosen.db)
    except HubError as error:
        checks.end(str(error))
    screen.say(
        Console(),
        f"{screen.count(rows, 'row')} are in {where}. Start the hub with this database now, or "
        "start it again if it is running. What happened after the backup is lost: whoever joined "
        "or got a new token since then has to join again, with a new invitation.",
    )
    for name in private:
        screen.say(
            Console(),
            f"• {name!r} has a privacy plan, and releases may have been made after the backup. "
            "None is made until you have asked the members for the number of the last release "
            f"that fedbo ledger shows, and run fedbo hub reconcile {name} --releases NUMBER",
            "yellow",
        )


def _unreconciled(db: str) -> list[str]:
    """Return the federations in which no release can be made after a restore."""
    from fedbo.hub import admin

    with database(db) as engine, engine.connect() as connection:
        found = [admin.find_federation(connection, one.id) for one in admin.federations(connection)]
    return [one.name for one in found if one.is_unreconciled]


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far it has come, if this is a terminal."""
    from rich.progress import Progress  # slow to import

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
