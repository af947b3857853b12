"""``fedbo hub``: make private releases, list them, and reconcile them after a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedbo.cli import checks, screen
from fedbo.cli.hub_database import Config, Db, database, settings

if TYPE_CHECKING:
    from fedbo.hub.admin import Ledger

_Name = Annotated[str, typer.Argument(help="The name of the federation at the hub.")]


def release(
    name: _Name,
    number: Annotated[
        int | None,
        typer.Option(
            help="The number that the release should have, so that a command that is repeated "
            "makes one release; by default the next number.",
            show_default=False,
        ),
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Make a private release of what members have contributed, with secret noise.

    What it costs is spent, and cannot be taken back. Members hear it when they fetch next.
    """
    chosen = settings(db, config)
    with database(chosen.db) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin
        from fedbo.hub.release_key import release_keys

        keys = release_keys(chosen)
        if number is None:
            with engine.connect() as connection:
                number = admin.next_number(connection, name)
        with begin(engine) as connection:
            made = admin.make_release(
                connection, name, actor=admin.COMMAND_LINE, number=number, keys=keys
            )
        with engine.connect() as connection:
            found = admin.ledger(connection, name)
    screen.say(
        Console(),
        f"Release {made.number} of {name!r} has the contributions of "
        f"{screen.count(made.members, 'member')}, from {screen.count(made.trials, 'trial')}. "
        f"{_cost(found)}",
    )


def releases(name: _Name, db: Db = None, config: Config = None) -> None:
    """List the private releases of a federation, and what they cost each member."""
    with database(settings(db, config).db) as engine, engine.connect() as connection:
        from fedbo.hub import admin

        found = admin.ledger(connection, name)
    console = Console()
    if found.made:
        grid = screen.grid("number", "made", "epoch", "members", "trials")
        for one in found.made:
            shown = ("lost", "") if one.is_lost else (f"{one.members:,}", f"{one.trials:,}")
            grid.add_row(f"{one.number}", screen.moment(one.time), f"{one.epoch}", *shown)
        screen.show(console, grid, below=1)
    screen.say(console, _cost(found))
    least = screen.count(found.plan.least_trials, "trial")
    screen.say(
        console,
        f"{screen.count(found.contributed, 'member')} contributed from {least} or more in the "
        "current epoch.",
    )
    if not found.is_reconciled:
        screen.say(
            console,
            "The hub was restored from a backup, and no release can be made before fedbo hub "
            f"reconcile {name} --releases NUMBER",
            "yellow",
        )


def reconcile(
    name: _Name,
    releases: Annotated[
        int,
        typer.Option(
            help="The number of the last release that any member's ledger shows; 0 if none does."
        ),
    ],
    db: Db = None,
    config: Config = None,
) -> None:
    """Say how many releases were made, after the hub was restored from a backup.

    Ask the members: fedbo ledger shows the releases that each has heard. Those that the backup does
    not have are recorded as spent.
    """
    if releases < 0:
        raise checks.refused("it must be 0 or more", "--releases")
    with database(settings(db, config).db) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin

        with begin(engine) as connection:
            lost = admin.reconcile(connection, name, releases, actor=admin.COMMAND_LINE)
        with engine.connect() as connection:
            found = admin.ledger(connection, name)
    new = f"{screen.count(lost, 'release')} that the backup did not have" if lost else "No release"
    screen.say(
        Console(),
        f"{new} {'is' if lost < 2 else 'are'} recorded as spent. {_cost(found)} Releases can be "
        "made again.",
    )


def _cost(found: Ledger) -> str:
    """Say in a sentence how many releases were made, and what they cost."""
    plan, made = found.plan, len(found.made)
    if found.spent is None:
        spent = "what they cost is not known here: pip install 'fedbo[privacy]'"
    else:
        spent = f"so far they cost each member ε = {found.spent:.3g}"
    return (
        f"{made} of {screen.count(plan.releases, 'planned release')} "
        f"{'was' if made == 1 else 'were'} made; {spent}. All of them cost at most "
        f"ε = {plan.epsilon:g} with δ = {plan.delta:g}."
    )
