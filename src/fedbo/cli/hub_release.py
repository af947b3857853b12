"""``fedbo hub``: make private releases, and list them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.cli import checks, screen
from fedbo.cli.hub_manage import Config, Db, Name, transaction
from fedbo.cli.release import confirm
from fedbo.hub.names import command_line

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
    yes: checks.Yes = False,
    db: Db = None,
    config: Config = None,
) -> None:
    """Show a private release of what members have contributed, ask, and make it.

    What it costs is spent, and cannot be taken back. Members hear it when they fetch next.
    """
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        ledger = store.ledger(connection, name)
        agreed = store.find_federation(connection, name).agreed
    next_number = len(ledger.releases) + 1
    is_possible = not ledger.is_restored and ledger.contributed and next_number <= ledger.planned
    if is_possible and number in (None, next_number):
        confirm(agreed, next_number, ledger.contributed, ledger.trials, is_sure=yes)
        number = next_number  # and no other, if the hub makes one in the meantime
    with transaction(db, config) as (connection, settings):
        from fedbo.hub.service import release_keys

        keys = release_keys(settings)
        made = store.make_release(connection, name, actor=command_line(), number=number, keys=keys)
        if not is_possible:  # nothing was shown, and this transaction ends without a release
            checks.end("Contributions have just arrived: run the command again.")
        ledger = store.ledger(connection, name)
    screen.say(
        f"Release {made.number} of {name!r} has the contributions of "
        f"{screen.count(made.members, 'member')}, from {screen.count(made.trials, 'trial')}. "
        f"{_cost(ledger)}"
    )


def releases(name: Name, db: Db = None, config: Config = None) -> None:
    """List the private releases of a federation, and what they cost each member."""
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        ledger = store.ledger(connection, name)
    if ledger.releases:
        rows = []
        for row in ledger.releases:
            members = "lost" if row.is_lost else row.members
            rows.append((row.number, screen.moment(row.time), members, row.trials))
        screen.table(("number", "made", "members", "trials"), rows)
    screen.say(
        f"{_cost(ledger)}\n{screen.count(ledger.contributed, 'member')} contributed from "
        f"{screen.count(ledger.least_trials, 'trial')} or more."
    )
    if ledger.is_restored:
        screen.say(
            "The hub was restored from a backup, and no release can be made before fedbo hub "
            f"admit {name} --releases NUMBER",
            "yellow",
        )


def _cost(ledger: ReleaseLedger) -> str:
    """Say in a sentence how many releases were made, and what they cost."""
    spent = "what they cost is not known here: pip install 'fedbo[privacy]'"
    if ledger.spent is not None:
        spent = f"so far they cost each member ε = {ledger.spent:.3g}"
    return (
        f"Releases made: {len(ledger.releases)} of {ledger.planned}; {spent}. All of them cost at "
        f"most ε = {ledger.epsilon:g} with δ = {ledger.delta:g}."
    )
