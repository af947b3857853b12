"""``fedbo exchange``: who is there, and why some messages do not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedbo.cli import checks, screen
from fedbo.exchange import (
    Exchange,
    ExchangeError,
    FolderExchange,
    Holding,
    HubExchange,
    exchange_at,
)
from fedbo.exchange.hub.memberships import Memberships
from fedbo.federation.federation import Federation
from fedbo.identity import Keyring
from fedbo.message import Fingerprint, Heard, MessageRefused

_FAULTS = 20  # shown
_KEY = 20  # characters of a key that are shown

app = typer.Typer(no_args_is_help=True, help="Look into an exchange.")


@app.callback()
def _exchange() -> None:
    """Look into an exchange."""


@app.command()
def status(
    exchange: Annotated[
        str, typer.Argument(help="The exchange: a folder, or the address of a hub.")
    ],
    federation: Annotated[
        Path | None,
        typer.Option(help="Show who takes part in the federation of this file, and who does not."),
    ] = None,
) -> None:
    """List the peers, their latest messages, and what does not match. Nothing is changed."""
    agreed = None if federation is None else checks.federation("--federation", federation)
    try:
        place = exchange_at(exchange)
        if isinstance(place, FolderExchange) and not place.folder.exists():
            raise ExchangeError(f"there is no folder {place.address}; check the address")
    except ExchangeError as error:
        raise checks.refused(str(error), "EXCHANGE") from None
    try:
        holdings = place.holdings()
    except ExchangeError as error:
        checks.end(str(error))
    console = Console()
    screen.say(console, f"Exchange {place.address}", "bold")
    if isinstance(place, HubExchange):
        for member in Memberships().at(place.url):
            text = f"The federation {member.federation!r}, where you are {member.member!r}"
            screen.say(console, text)
    groups: dict[bytes, list[tuple[Heard, Holding]]] = {}
    for holding in holdings:
        if holding.message is not None and holding.fault is None:
            group = groups.setdefault(holding.message.fingerprint, [])
            group.append((holding.message, holding))
    if not groups:
        nothing = "There is no message here yet." if not holdings else "No message here is valid."
        screen.say(console, nothing)
    if agreed is not None:
        group = groups.pop(bytes(agreed.fingerprint), [])
        screen.say(console, f"\nThe federation of {federation}: {agreed.fingerprint}", "bold")
        _ours(console, place, agreed, group)
    for fingerprint, group in sorted(groups.items()):
        _others(console, Fingerprint(fingerprint), group, agreed)
    if agreed is not None and groups:
        screen.say(
            console,
            "\nSites help one another only with the same federation file; fedbo federation show "
            "prints what a file says.",
        )
    faults = [holding for holding in holdings if holding.fault is not None]
    if faults:
        screen.say(console, "\nSkipped", "bold")
    for holding in faults[:_FAULTS]:
        text = screen.printable(f"{holding.place}: {holding.fault}")
        screen.say(console, f"• {text}", "yellow", indent=2)
    if len(faults) > _FAULTS:
        screen.say(console, f"… and {len(faults) - _FAULTS:,} more", indent=2)


def _ours(
    console: Console,
    place: Exchange,
    agreed: Federation,
    group: Sequence[tuple[Heard, Holding]],
) -> None:
    """Print the messages of the user's federation, and whether each is accepted here."""
    if not group:
        screen.say(console, "None of its messages is here.", "yellow", indent=2)
        return
    reasons: dict[Heard, str] = {}
    for message, _ in group:
        try:
            agreed.check(message)
        except MessageRefused as error:
            reasons[message] = str(error)
    keyring = place.keyring or Keyring.user()
    fitting = [message for message, _ in group if message not in reasons]
    _, refused = keyring.admit(agreed, fitting, remember="nothing")
    reasons |= {message: str(error) for message, error in refused}
    _table(console, group, reasons)
    for reason in dict.fromkeys(reasons.values()):
        screen.say(console, f"• {screen.printable(reason)}", "yellow", indent=2)


def _others(
    console: Console,
    fingerprint: Fingerprint,
    group: Sequence[tuple[Heard, Holding]],
    agreed: Federation | None,
) -> None:
    if agreed is not None:
        screen.say(console, f"\nAnother federation: {fingerprint}", "bold")
        _table(console, group)
        screen.say(console, f"• {agreed.fingerprint.mismatch(fingerprint)}.", "yellow", indent=2)
        return
    screen.say(console, f"\nFederation {fingerprint}", "bold")
    _table(console, group)
    signers: dict[str, set[str]] = {}
    for message, _ in group:
        signers.setdefault(message.sender, set()).add(message.signer)
    for sender, keys in signers.items():
        if len(keys) > 1:
            text = f"• {sender!r} is used with {len(keys)} keys: each peer hears at most one."
            screen.say(console, text, "yellow", indent=2)


def _table(
    console: Console,
    group: Sequence[tuple[Heard, Holding]],
    reasons: Mapping[Heard, str] | None = None,
) -> None:
    """Print the messages of one federation; with ``reasons``, which are refused here."""
    grid = screen.grid("peer")
    grid.add_column("trials", justify="right")
    grid.add_column("age", justify="right")
    grid.add_column("key", no_wrap=True)
    grid.add_column("" if reasons is None else "state", no_wrap=True)
    for message, holding in sorted(group, key=lambda pair: pair[0].sender):
        key = f"{message.signer[:_KEY]}…" if message.key else "not signed"
        state = Text("")
        if reasons is not None:
            is_refused = message in reasons
            state = Text("refused", "yellow") if is_refused else Text("accepted")
        grid.add_row(
            Text(screen.printable(message.sender)),
            f"{message.t_n:,}",
            screen.age(holding.when),
            Text(key, style="" if message.key else "dim"),
            state,
        )
    screen.show(console, grid)
