"""``fedbo exchange``: who is there, and why some messages do not count."""

from __future__ import annotations

import time
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
from fedbo.federation import Federation
from fedbo.identity import Keyring
from fedbo.message import Fingerprint, MessageRefused
from fedbo.message.signed import PARTS

_AGES = {"day": 86400.0, "hour": 3600.0, "minute": 60.0}
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
        _memberships(console, place)
    groups: dict[tuple[bytes, int], list[Holding]] = {}
    for holding in holdings:
        if holding.message is not None and holding.fault is None:
            key = holding.message.fingerprint, holding.message.epoch
            groups.setdefault(key, []).append(holding)
    if not groups:
        nothing = "There is no message here yet." if not holdings else "No message here is valid."
        screen.say(console, nothing)
    if agreed is not None:
        ours = bytes(agreed.fingerprint), agreed.epoch
        _ours(console, place, agreed, federation, groups.pop(ours, []))
    for (fingerprint, epoch), group in sorted(groups.items()):
        _others(console, Fingerprint(fingerprint), epoch, group, agreed)
    if agreed is not None and groups:
        screen.say(
            console,
            "\nSites help one another only with the same federation file; fedbo federation show "
            "prints what a file says.",
        )
    _faults(console, [holding for holding in holdings if holding.fault is not None])


def _memberships(console: Console, place: HubExchange) -> None:
    """Print the federations of a hub that are shown, and who this user is there."""
    for one in Memberships().at(place.url):
        text = f"The federation {one.federation!r}, where you are the member {one.member!r}"
        screen.say(console, text)


def _ours(
    console: Console,
    place: Exchange,
    agreed: Federation,
    file: Path | None,
    group: Sequence[Holding],
) -> None:
    screen.say(
        console,
        f"\nThe federation of {file}: {agreed.fingerprint}, epoch {agreed.epoch}",
        "bold",
    )
    if not group:
        screen.say(console, "None of its messages is here.", "yellow", indent=2)
        return
    reasons: dict[int, str] = {}  # by the id of the holding
    fitting = []
    for holding in group:
        try:
            assert holding.message is not None
            agreed.check(holding.message)
            fitting.append(holding)
        except MessageRefused as error:
            reasons[id(holding)] = str(error)
    keyring = place.keyring or Keyring.user()
    _, refused = keyring.review(agreed, [h.message for h in fitting if h.message is not None])
    for found, reason in refused:
        reasons |= {id(holding): reason for holding in fitting if holding.message is found}
    _table(console, group, reasons, states=True)
    for reason in dict.fromkeys(reasons.values()):
        screen.say(console, f"• {screen.printable(reason)}", "yellow", indent=2)


def _others(
    console: Console,
    fingerprint: Fingerprint,
    epoch: int,
    group: Sequence[Holding],
    agreed: Federation | None,
) -> None:
    if agreed is None:
        screen.say(console, f"\nFederation {fingerprint}, epoch {epoch}", "bold")
        _table(console, group)
        signers: dict[str, set[str]] = {}
        for holding in group:
            assert holding.message is not None
            signers.setdefault(holding.message.sender, set()).add(holding.message.signer)
        for sender, keys in signers.items():
            if len(keys) > 1:
                text = f"• {sender!r} is used with {len(keys)} keys: each peer hears at most one."
                screen.say(console, text, "yellow", indent=2)
        return
    part = agreed.fingerprint.difference(fingerprint)
    title, why = f"\nAnother federation: {fingerprint}, epoch {epoch}", ""
    if part in (None, "scalars") and epoch != agreed.epoch:
        title = f"\nThe same federation in another epoch: {fingerprint}, epoch {epoch}"
        why = f"Sites in epoch {epoch} and in epoch {agreed.epoch} ignore each other's messages"
    elif part is not None:
        why = PARTS[part][0].upper() + PARTS[part][1:]
    screen.say(console, title, "bold")
    _table(console, group)
    screen.say(console, f"• {why}.", "yellow", indent=2)


def _table(
    console: Console,
    group: Sequence[Holding],
    reasons: Mapping[int, str] = {},
    *,
    states: bool = False,
) -> None:
    """Print the messages of one federation; with ``states``, whether each is accepted here."""
    grid = screen.grid("peer")
    grid.add_column("trials", justify="right")
    grid.add_column("age", justify="right")
    grid.add_column("key", no_wrap=True)
    grid.add_column("state" if states else "", no_wrap=True)
    for holding in sorted(group, key=lambda one: "" if one.message is None else one.message.sender):
        found = holding.message
        assert found is not None
        key = f"{found.signer[:_KEY]}…" if found.key else "not signed"
        state = "refused" if id(holding) in reasons else "accepted"
        grid.add_row(
            Text(screen.printable(found.sender)),
            f"{found.t_n:,}",
            age(holding.when),
            Text(key, style="" if found.key else "dim"),
            Text(state if states else "", style="yellow" if state == "refused" else ""),
        )
    screen.show(console, grid)


def _faults(console: Console, faults: Sequence[Holding]) -> None:
    if faults:
        screen.say(console, "\nSkipped", "bold")
        for holding in faults[:_FAULTS]:
            text = screen.printable(f"{holding.place}: {holding.fault}")
            screen.say(console, f"• {text}", "yellow", indent=2)
        if len(faults) > _FAULTS:
            screen.say(console, f"… and {len(faults) - _FAULTS:,} more", indent=2)


def age(when: float | None) -> str:
    """Say how long ago this was, in the largest unit that fits.

    >>> age(time.time() - 7300), age(None)
    ('2 hours', '')
    """
    if when is None:
        return ""
    seconds = time.time() - when
    for unit, length in _AGES.items():
        if seconds >= length:
            return screen.count(int(seconds // length), unit)
    return screen.count(int(seconds), "second") if seconds >= 0 else "in the future"
