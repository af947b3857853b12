"""``fedbo hub`` for members: their memberships, a new token or key, and how to leave."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedbo.cli import checks, screen
from fedbo.exchange import ExchangeError
from fedbo.exchange.hub.member import Member
from fedbo.exchange.hub.memberships import HubUrl, Membership, Memberships
from fedbo.identity import KeyPair, KeyRefused

_Address = Annotated[
    str,
    typer.Argument(
        help="The address of the hub; with /FEDERATION if you are a member of several there."
    ),
]
_Name = Annotated[
    str | None, typer.Option("--name", help="The member, if you are several in one federation.")
]


def memberships() -> None:
    """List the hubs and federations that this user is a member of."""
    try:
        stored = Memberships()
        rows = stored.all()
    except ExchangeError as error:
        checks.end(str(error))
    if not rows:
        typer.echo("You are not a member of any hub: fedbo join ADDRESS --invite INVITATION.")
        return
    grid = screen.grid("federation", "member", "key")
    for row in rows:
        cells = (row.place, row.member, row.key or "not signed")
        grid.add_row(*(Text(screen.printable(cell)) for cell in cells))
    screen.show(Console(), grid, below=1)
    screen.say(Console(), f"The tokens are in {stored.path}, which only this user can read.")


def leave(address: _Address, name: _Name = None) -> None:
    """Leave a federation: the hub deletes your messages and all else that it has of you."""
    mine = _member(address, name)
    try:
        is_known = mine.leave()
    except ExchangeError as error:
        checks.end(str(error))
    who, place = mine.membership.member, mine.membership.place
    text = (
        f"You have left {place}: the hub has deleted all that it had of {who!r}, and the token is "
        "not valid any more. Peers that have fetched your messages may keep what they learnt from "
        "them. To come back, you need a new invitation."
    )
    if not is_known:
        text = (
            f"{place} did not know {who!r} any more: you had left, or were removed or revoked. The "
            "token, which was of no use, was deleted here."
        )
    screen.say(Console(), text)


def rotate(address: _Address, name: _Name = None) -> None:
    """Get a new token, with which running studies go on; the old one is not valid any more."""
    mine = _member(address, name)
    try:
        mine.rotate()
    except ExchangeError as error:
        checks.end(str(error))
    who, place = mine.membership.member, mine.membership.place
    screen.say(Console(), f"{who!r} has a new token at {place}; the old one is not valid any more.")


def rekey(
    address: _Address,
    name: _Name = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Do not sign messages any more.")
    ] = False,
) -> None:
    """Tell the hub your new key, or that you have none; what the old one signed is deleted."""
    mine = _member(address, name)
    try:
        keys = None if unsigned else KeyPair.load()
        mine.rekey(keys)
    except (ExchangeError, KeyRefused, OSError) as error:
        checks.end(str(error))
    who, place = mine.membership.member, mine.membership.place
    signed = f"signed with {keys}" if keys else "not signed"
    screen.say(Console(), f"{place} takes messages of {who!r} from now on if they are {signed}.")


def _member(address: str, name: str | None) -> Member:
    """Return this user's only member at an address that fits."""
    checks.require("client", {"httpx": "httpx"})
    try:
        url, stored = HubUrl.parse(address), Memberships()
        fitting, others = stored.at(url, name), stored.at(HubUrl(url.base))
    except ExchangeError as error:
        raise checks.refused(str(error), "ADDRESS") from None
    if len(fitting) != 1:
        problem = f"you are not a member of {url}{'' if name is None else f' as {name!r}'}"
        if fitting:
            problem = f"you have {len(fitting)} memberships at {url}"
        checks.end(f"{problem}; {_choices(others)}")
    return Member(fitting[0], stored)


def _choices(rows: list[Membership]) -> str:
    if not rows:
        return "fedbo hub memberships lists where you are one"
    options = (f"{shlex.quote(row.place)} --name {shlex.quote(row.member)}" for row in rows)
    return f"give one of: {', '.join(options)}"
