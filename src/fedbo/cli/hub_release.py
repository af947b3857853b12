"""``fedbo hub``: make private releases, list them, and reconcile them after a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedbo.cli import checks, screen
from fedbo.cli.hub_manage import Config, Db, Name, reading, settings_of, writing
from fedbo.hub.names import COMMAND_LINE

if TYPE_CHECKING:
    from fedbo.hub.records import ReleaseLedger


def release(
    name: Name,
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
    chosen = settings_of(db, config)
    with writing(chosen.db) as connection:
        from fedbo.hub import store
        from fedbo.hub.service import release_keys

        made = store.make_release(
            connection,
            name,
            actor=COMMAND_LINE,
            number=number,
            keys=release_keys(chosen),
        )
        ledger = store.ledger(connection, name)
    screen.say(
        Console(),
        f"Release {made.number} of {name!r} has the contributions of "
        f"{screen.count(made.members, 'member')}, from {screen.count(made.trials, 'trial')}. "
        f"{_cost(ledger)}",
    )


def releases(name: Name, db: Db = None, config: Config = None) -> None:
    """List the private releases of a federation, and what they cost each member."""
    with reading(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        ledger = store.ledger(connection, name)
    console = Console()
    if ledger.releases:
        grid = screen.grid("number", "made", "members", "trials")
        for row in ledger.releases:
            shown = ("lost", "") if row.is_lost else (f"{row.members:,}", f"{row.trials:,}")
            grid.add_row(f"{row.number}", screen.moment(row.time), *shown)
        screen.show(console, grid, below=1)
    screen.say(console, _cost(ledger))
    members = screen.count(ledger.contributed, "member")
    least = screen.count(ledger.least_trials, "trial")
    screen.say(console, f"{members} contributed from {least} or more.")
    if not ledger.is_reconciled:
        screen.say(
            console,
            "The hub was restored from a backup, and no release can be made before fedbo hub "
            f"reconcile {name} --releases NUMBER",
            "yellow",
        )


def reconcile(
    name: Name,
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
    with writing(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        lost = store.reconcile(connection, name, releases, actor=COMMAND_LINE)
        ledger = store.ledger(connection, name)
    new = f"{screen.count(lost, 'release')} that the backup did not have" if lost else "No release"
    screen.say(
        Console(),
        f"{new} {'is' if lost < 2 else 'are'} recorded as spent. {_cost(ledger)} Releases can be "
        "made again.",
    )


def _cost(ledger: ReleaseLedger) -> str:
    """Say in a sentence how many releases were made, and what they cost."""
    made = len(ledger.releases)
    if ledger.spent is None:
        spent = "what they cost is not known here: pip install 'fedbo[privacy]'"
    else:
        spent = f"so far they cost each member ε = {ledger.spent:.3g}"
    return (
        f"{made} of {screen.count(ledger.planned, 'planned release')} "
        f"{'was' if made == 1 else 'were'} made; {spent}. All of them cost at most "
        f"ε = {ledger.epsilon:g} with δ = {ledger.delta:g}."
    )
