"""``fedbo exchange``: who is there, why some messages do not count, and withdrawing one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks, screen
from fedbo.cli.study import FederationFile, federation_at
from fedbo.errors import ExchangeError, MessageRefused
from fedbo.exchange import FolderExchange, HubExchange, Ledger, exchange_at
from fedbo.exchange.hub.memberships import Memberships
from fedbo.federation.federation import Federation
from fedbo.message import Fingerprint, Heard, Message
from fedbo.trust import Border, KeyPair, Keyring

_FAULTS = 20  # shown
_KEY = 20  # characters of a key that are shown

app = typer.Typer(no_args_is_help=True, help="Look into an exchange, and withdraw from it.")

Address = Annotated[str, typer.Argument(help="The exchange: a folder, or the address of a hub.")]


@app.command()
def status(
    exchange: Address,
    federation: Annotated[
        Path | None,
        typer.Option(help="Show who takes part in the federation of this file, and who does not."),
    ] = None,
) -> None:
    """List the peers, their latest messages, and what does not match. Nothing is changed."""
    agreed = None if federation is None else Federation.load(federation)
    place = exchange_at(exchange)
    if isinstance(place, FolderExchange) and not place.folder.exists():
        raise ExchangeError(f"there is no folder {place.address}; check the address")
    holdings = place.holdings()
    screen.say(f"Exchange {place.address}", "bold")
    if isinstance(place, HubExchange):
        for member in Memberships().at(place.url):
            screen.say(f"The federation {member.federation!r}, where you are {member.member!r}")
    valid = [(h.message, h.when) for h in holdings if h.message is not None and h.fault is None]
    keyring = place.keyring or Keyring.user()
    refused = {} if agreed is None else _refused(keyring, agreed, [m for m, _ in valid])
    rows, reasons = [], []
    for message, when in sorted(valid, key=lambda pair: (pair[0].fingerprint, pair[0].sender)):
        key = f"{message.signer[:_KEY]}…" if message.key else "none"
        state = "" if agreed is None else "refused" if message in refused else "accepted"
        where = str(Fingerprint(message.fingerprint))
        rows.append((message.sender, message.t_n, screen.age(when), key, state, where))
        reasons += [str(refused[message])] if message in refused else []
    if rows:
        screen.table(("peer", "trials", "age", "key", "", "federation"), rows)
    else:
        screen.say("No message here is valid." if holdings else "There is no message here yet.")
    if agreed is not None:
        screen.say(f"\nThe federation of {federation} is {agreed.fingerprint}.")
    faults = [f"{h.place}: {h.fault}" for h in holdings if h.fault is not None]
    for title, texts in ("Refused", [*dict.fromkeys(reasons)]), ("Skipped", faults):
        if texts:
            screen.say(f"\n{title}", "bold")
        for text in texts[:_FAULTS]:
            screen.say(f"• {screen.printable(text)}", "yellow", indent=2)
        if len(texts) > _FAULTS:
            screen.say(f"… and {len(texts) - _FAULTS:,} more", indent=2)


@app.command()
def withdraw(
    exchange: Address,
    peer: Annotated[str, typer.Argument(help="Its sender, as fedbo exchange status lists it.")],
    federation: FederationFile = None,
    yes: checks.Yes = False,
) -> None:
    """Withdraw a message of yours whose study was deleted; otherwise, use fedbo study withdraw.

    It is signed with a key that is on this machine. Give a new study another name: under this one,
    a message counts only if it has more trials.
    """
    place = exchange_at(exchange)
    agreed = federation_at(place, federation)
    for message in (holding.message for holding in place.holdings()):
        if isinstance(message, Message) and message.fingerprint == agreed.fingerprint:
            keys = KeyPair.find(message.key)
            if message.sender == peer and keys is not None:
                about = f"{peer} about {screen.count(message.t_n, 'trial')}"
                if not yes:
                    typer.confirm(f"Withdraw the message of {about}?", abort=True)
                if Ledger().withdraw(place, agreed, peer, keys):
                    screen.say(f"The message of {about} was withdrawn from {place.address}.")
                    return
    raise ExchangeError(f"{place.address} has no message of {peer!r} that you can withdraw")


def _refused(
    keyring: Keyring, agreed: Federation, messages: Sequence[Heard]
) -> dict[Heard, MessageRefused]:
    """Return why messages do not count in a federation; no key is remembered."""
    border = Border(agreed, keyring, remember=False)
    outcomes = border.admit(message.encode() for message in messages)
    return {
        message: outcome
        for message, outcome in zip(messages, outcomes, strict=True)
        if isinstance(outcome, MessageRefused)
    }
