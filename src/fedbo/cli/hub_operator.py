"""``fedbo hub operator``: who may manage the hub through its page and its API."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedbo.cli import screen
from fedbo.cli.hub_database import Config, Db, database, settings

app = typer.Typer(no_args_is_help=True, help="Add, drop or list the operators of the hub.")

_Name = Annotated[str, typer.Argument(help="The name of the operator, for the audit log.")]


@app.command()
def add(name: _Name, db: Db = None, config: Config = None) -> None:
    """Add an operator, and print the operator's token."""
    with database(settings(db, config).db, must_exist=False) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin

        with begin(engine) as connection:
            token = admin.new_operator(connection, name, actor=admin.COMMAND_LINE)
    console = Console()
    screen.say(
        console,
        f"{name!r} is an operator of the hub: this token lets its holder log in to its page, "
        "create federations, invite, and revoke. It is not shown again:",
    )
    console.print(Text(f"\n  {token}\n"), soft_wrap=True)


@app.command()
def drop(name: _Name, db: Db = None, config: Config = None) -> None:
    """Drop an operator: the token is no longer valid."""
    with database(settings(db, config).db) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin

        with begin(engine) as connection:
            admin.drop_operator(connection, name, actor=admin.COMMAND_LINE)
    screen.say(Console(), f"{name!r} is no longer an operator: the token is no longer valid.")


@app.command("list")
def list_(db: Db = None, config: Config = None) -> None:
    """List the operators."""
    with database(settings(db, config).db) as engine, engine.connect() as connection:
        from fedbo.hub import admin

        found = admin.operators(connection)
    if not found:
        typer.echo("There are no operators yet: fedbo hub operator add NAME")
        return
    grid = screen.grid("operator", "since")
    for one in found:
        since = screen.moment(one.created)
        grid.add_row(Text(screen.printable(one.name)), since)
    screen.show(Console(), grid)
