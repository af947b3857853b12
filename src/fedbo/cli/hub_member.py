"""``fedbo hub`` for members: their memberships, a new token or key, and how to leave."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from fedbo.cli import checks, screen
from fedbo.exchange.hub.member import Member
from fedbo.exchange.hub.memberships import HubUrl, Memberships
from fedbo.trust import KeyPair

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
    stored = Memberships()
    if not (rows := stored.all()):
        typer.echo("You are not a member of any hub: fedbo join ADDRESS --invite FILE.")
        return
    cells = ((row.place, row.member, row.key) for row in rows)
    screen.table(("federation", "member", "key"), cells)
    screen.say(f"\nThe tokens are in {stored.path}, which only this user can read.")


def leave(address: _Address, name: _Name = None) -> None:
    """Leave a federation: the hub deletes your messages and all else that it has of you."""
    mine = _member(address, name)
    is_known = mine.leave()
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
    screen.say(text)


def rotate(address: _Address, name: _Name = None) -> None:
    """Get a new token, with which running studies go on; the old one is not valid any more."""
    mine = _member(address, name)
    mine.rotate()
    who, place = mine.membership.member, mine.membership.place
    screen.say(f"{who!r} has a new token at {place}; the old one is not valid any more.")


def rekey(address: _Address, name: _Name = None) -> None:
    """Tell the hub your new key; what the old one signed is deleted."""
    mine, keys = _member(address, name), KeyPair.load()
    mine.rekey(keys)
    who, place = mine.membership.member, mine.membership.place
    screen.say(f"{place} takes messages of {who!r} from now on if they are signed with {keys}.")


def _member(address: str, name: str | None) -> Member:
    """Return this user's only member at an address that fits."""
    url, stored = HubUrl.parse(address), Memberships()
    fitting = stored.at(url, name)
    if len(fitting) != 1:
        others = stored.at(HubUrl(url.base))
        options = (f"{shlex.quote(row.place)} --name {shlex.quote(row.member)}" for row in others)
        if not others:
            checks.end(f"you are not a member at {url.base}: see fedbo hub memberships")
        checks.end(f"{len(fitting)} memberships fit; give one of: {', '.join(options)}")
    return Member(fitting[0], stored)
