"""``fedbo release``: make a private release of the contributions in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks, screen
from fedbo.exchange import FolderExchange, Ledger, exchange_at
from fedbo.exchange.contributions import make_release
from fedbo.federation.federation import Federation
from fedbo.identity import KeyPair, is_installed
from fedbo.privacy import statement


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
    agreed, place = Federation.load(federation), exchange_at(address)
    if not isinstance(place, FolderExchange):
        raise checks.refused("a hub makes its own releases: fedbo hub release", "ADDRESS")
    keys, ledger = KeyPair.load() if is_installed() and not unsigned else None, Ledger()
    made, is_new = make_release(place, agreed, ledger, keys)
    what = f"Release {made.sequence} of {screen.count(made.members, 'member')}"
    if is_new:
        screen.say(f"{what} was made, and is in {place.address}.")
    else:
        screen.say(
            f"{what} was recorded before and was not in {place.address}: it is there now. Nothing "
            "else was released.",
            "yellow",
        )
    screen.say(statement(ledger.releases(agreed)))
