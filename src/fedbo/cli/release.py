"""``fedbo release``: make a private release of the contributions in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks, screen
from fedbo.exchange import FolderExchange, Ledger, exchange_at
from fedbo.exchange.contributions import make_release
from fedbo.federation.federation import Federation
from fedbo.message import Message
from fedbo.privacy import signal, spent, statement
from fedbo.privacy.release import composed
from fedbo.trust import KeyPair, listed_keys


def release(
    address: Annotated[str, typer.Argument(help="The folder with the contributions.")],
    federation: Annotated[Path, typer.Option(help="The federation file, with its privacy plan.")],
    yes: checks.Yes = False,
) -> None:
    """Show a private release of all contributions, ask, make and publish it, and say what it cost.

    This is for the party that the federation file names in its privacy plan. It is recorded in the
    ledger first, and refused when all planned releases were made. A hub makes its own: fedbo hub
    release.
    """
    agreed, place = Federation.load(federation), exchange_at(address)
    if not isinstance(place, FolderExchange):
        raise checks.refused("a hub makes its own releases: fedbo hub release", "ADDRESS")
    keys, ledger = listed_keys(agreed, agreed.require_plan().by) or KeyPair.load(), Ledger()

    def ask(number: int, counted: Sequence[Message]) -> None:
        trials = sum(message.t_n for message in counted)
        confirm(agreed, number, len(counted), trials, is_sure=yes)

    made, is_new = make_release(place, agreed, ledger, keys, ask)
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


def confirm(
    federation: Federation, number: int, members: int, trials: int, *, is_sure: bool
) -> None:
    """Show what the next release would have and cost; end the program unless it is wanted."""
    plan, noiseless = federation.require_plan(), composed(federation, [None], None, 1)
    before, after = (spent([noiseless] * count) for count in (number - 1, number))
    screen.say(
        f"Release {number} of {plan.releases} planned would sum up "
        f"{screen.count(members, 'member')} with {screen.count(trials, 'trial')} together. "
        f"{signal(federation, members)}\nIt would raise what all releases cost each member from "
        f"ε = {before:.3g} to {after:.3g} (δ = {plan.delta:g}), and cannot be taken back."
    )
    checks.sure("Make this release?", is_sure)
