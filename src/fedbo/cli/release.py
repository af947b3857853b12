"""``fedbo release``: make a private release of the contributions in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedbo.cli import checks, screen
from fedbo.exchange import HubExchange, Ledger, exchange_at
from fedbo.exchange.contributions import make_release
from fedbo.federation import Federation
from fedbo.identity import KeyPair, KeyRefused, is_installed
from fedbo.message.signed import key_text
from fedbo.privacy.statement import statement


def release(
    address: Annotated[str, typer.Argument(help="The folder with the contributions.")],
    federation: Annotated[Path, typer.Option(help="The federation file, with its privacy plan.")],
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Do not sign the release with this user's key.")
    ] = False,
) -> None:
    """Make a private release of all contributions, publish it, and say what it cost.

    This is for the party that the federation file names under [privacy]. It is recorded in the
    ledger first, and refused when all planned releases were made. A hub makes its own: fedbo hub
    release.
    """
    agreed = checks.federation("--federation", federation)
    try:
        agreed.require_plan()
        place = exchange_at(address)
        if isinstance(place, HubExchange):
            raise checks.refused("a hub makes its own releases: fedbo hub release", "ADDRESS")
        keys = _keys(agreed, unsigned)
        with checks.warnings_as_lines():
            ledger = Ledger()
            made, is_new = make_release(place, agreed, ledger, keys)
            all_made = ledger.releases(agreed)
    except (ValueError, OSError) as error:
        checks.end(str(error))
    console = Console()
    what = f"Release {made.sequence} of {screen.count(made.members, 'member')}"
    if is_new:
        screen.say(console, f"{what} was made, and is in {place.address}.")
    else:
        screen.say(
            console,
            f"{what} was recorded before and was not in {place.address}: it is there now. Nothing "
            "else was released.",
            "yellow",
        )
    screen.say(console, statement(all_made))


def _keys(agreed: Federation, unsigned: bool) -> KeyPair | None:
    """Return the key pair that signs the release, if it can be believed."""
    plan = agreed.require_plan()
    listed = agreed.members.get(plan.by)
    if unsigned or not is_installed():
        if listed is None:
            return None
        raise KeyRefused(
            f"the federation lists a key of {plan.by!r}, so that its releases must be signed: "
            "leave out --unsigned, and install fedbo[identity]"
        )
    keys = KeyPair.load()
    if listed is not None and listed != keys.public:
        raise KeyRefused(
            f"{plan.by!r} makes the releases and is listed with the key {key_text(listed)}, but "
            f"this user's key is {keys}: only that party can make them"
        )
    return keys
