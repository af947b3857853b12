"""``fedbo hub serve``: run a hub; back its database up, and restore it."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args, get_type_hints

import typer

from fedbo.cli import checks, screen
from fedbo.cli.hub_manage import Config, Db, database, settings_of, transaction
from fedbo.hub.settings import Settings, load
from fedbo.outside import without_password

if TYPE_CHECKING:
    from sqlalchemy import Engine


def serve(config: Config = None, **flags: object) -> None:
    """Serve federations to their members, and a page to look at.

    Every option can also be given as a variable (FEDBO_HUB_PORT) or in the file (port). An option
    counts more than a variable, and a variable more than the file.
    """
    settings = load(flags, config, os.environ)
    from fedbo.hub.serve import Stage
    from fedbo.hub.store import HubError

    try:
        stage = Stage(settings)
    except HubError as error:
        checks.end(str(error))
    typer.echo(f"fedbo hub: {stage.address}")
    for line in _welcome(settings, stage.engine, stage.address):
        typer.echo(screen.lines(line))
    raise typer.Exit(stage.run())


def _signature() -> inspect.Signature:
    """Return the options of `serve`: the settings of a hub, and the file that has them."""
    options = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        kind, about = get_args(hint)
        flag = f"--{name.replace('_', '-')}"
        option = typer.Option(flag, help=about.description, show_default=False)
        options[name] = Annotated[kind | None, option]
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
    with database(settings_of(db, config).db) as engine:
        from fedbo.hub.store import backup as backups

        rows = backups.backup(engine, file)
    size = screen.size(file.stat().st_size)
    screen.say(
        f"{screen.count(rows, 'row')} are in {file} ({size}). It has no token in clear, but every "
        "message: keep it as safe as the hub."
    )


def upgrade(
    backup: Annotated[
        Path | None,
        typer.Option(
            help="Where to put the backup; by default a file beside a SQLite database. PostgreSQL "
            "needs one.",
            show_default=False,
        ),
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Bring the database of an older fedbo to the version of this one, after a backup.

    Stop the hub first. The backup can be restored by this fedbo and by the older one.
    """
    with database(settings_of(db, config).db, any_version=True) as engine:
        from fedbo.hub.store.backup import upgrade as upgraded

        done = upgraded(engine, backup)
    if done is None:
        screen.say("The database has the version of this fedbo: there is nothing to do.")
    else:
        version, file = done
        screen.say(f"The database was upgraded from version {version}; {file} is its backup.")


def restore(
    file: Annotated[Path, typer.Argument(help="What fedbo hub backup wrote.")],
    old: Annotated[
        str | None,
        typer.Option(
            help="The database that the backup replaces, if it can still be read: what happened "
            "there since the backup is listed.",
            show_default=False,
        ),
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Put a backup into a new database, SQLite or PostgreSQL, wherever it came from.

    All members are suspended until you have said who still is one: fedbo hub admit.
    """
    chosen = settings_of(db, config)
    from fedbo.hub import store
    from fedbo.hub.store.backup import restore as put

    try:
        rows = put(file, chosen.db)
    except store.HubError as error:
        checks.end(str(error))
    with transaction(db, config) as (connection, _):
        last = store.latest_lines(connection, "", 1)[0]  # that it was restored
        federations = store.federations(connection)
        members = {row.name: store.members(connection, row.name).rows for row in federations}
        private = [
            row.name
            for row in federations
            if store.find_federation(connection, row.name).is_private
        ]
    screen.say(
        f"{screen.count(rows, 'row')} are in {without_password(chosen.db)}. What happened after "
        "the backup is undone: members that were revoked or removed are back, and whoever joined "
        "or got a new token since has to join again. Invitations are not valid any more."
    )
    for row in federations:
        names = ", ".join(each.name for each in members[row.name] if not each.is_revoked)
        screen.say(
            f"{row.name!r}: members {names or 'none'}; {row.messages:,} messages. To let them take "
            f"part: fedbo hub admit {row.name}{' --releases NUMBER' if row.name in private else ''}"
        )
    if old is not None:
        with database(old) as engine:
            lines = map(json.loads, store.audit_lines(engine, after=last.number - 1))
            undone = [line for line in lines if line["action"] != "published"]
        keys = ("time", "federation", "actor", "action", "subject")
        screen.table(keys, [[line[key] for key in keys] for line in undone])
    screen.say(
        "All members are suspended until you have run these commands. First revoke or remove who "
        "should not be there.",
        "yellow",
    )


def _welcome(settings: Settings, engine: Engine, address: str) -> list[str]:
    """Return what to tell who started a hub: where it is, and what to do next."""
    from fedbo.hub import store

    with engine.connect() as connection:
        federations = store.federations(connection)
    is_file = engine.dialect.name == "sqlite"
    place = os.path.abspath(engine.url.database or "") if is_file else engine.url
    said = [f"The page is at {settings.public_url or address}/; the database is {place}."]
    db = f" --db {without_password(settings.db)}" if settings.db != Settings().db else ""
    if not federations:
        said.append(
            "There is no federation yet: fedbo hub create NAME --federation federation.toml"
            f"{db} creates one and prints an invitation."
        )
    return said
