"""`fedbo join` at a hub: become a member, and get the federation file."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import typer
from rich.console import Console

from fedbo.cli import checks, screen
from fedbo.exchange import ExchangeError
from fedbo.exchange.hub.client import HubRefused
from fedbo.exchange.hub.enrol import enrol
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.invitation import Invitation
from fedbo.exchange.hub.member import accept_later
from fedbo.exchange.hub.memberships import Memberships
from fedbo.federation import Federation
from fedbo.identity import KeyPair
from fedbo.message.signed import member

DEFAULT_FILE = Path("federation.toml")
_LONGEST = 10_000  # characters of an invitation


def become_member(
    place: HubExchange, invitation: str, name: str | None, file: Path, *, is_signed: bool
) -> None:
    """Become a member of a federation, write its file, and say what was done.

    Args:
        place: The hub.
        invitation: The invitation, or a file with it; "-" reads it from standard input.
        name: The name of this site, or of an agent of it; by default a random one.
        file: The federation file. One that exists must be of this federation.
        is_signed: Whether messages are signed with this user's key.
    """
    updates: list[_Update] = []
    try:
        invited, book = _read(invitation), Memberships()
        address = f"{place.url.base}/{invited.name}"
        keys = KeyPair.load() if is_signed else None
        who = None if name is None else member(name)
        mine = enrol(
            place.address,
            invited,
            who,
            keys,
            lambda federation: updates.append(_planned(file, federation, address)),
        )
        if not updates:
            update_file(HubExchange(address), file)
            typer.echo(screen.lines(f"You are the member {mine.member!r} of {address} already."))
            return
        updates[0].write()
    except (ValueError, OSError) as error:
        checks.end(_reason(error, file))
    signed = f"signed with the key {mine.key}" if mine.key else "not signed"
    screen.say(
        Console(),
        f"You are now the member {mine.member!r} of {mine.place}. The token is in {book.path}, "
        f"which only this user can read. Your messages will be {signed}. "
        f"{updates[0].done or f'The federation file is {file}.'}",
    )
    others = [one for one in book.of(mine.address, mine.federation) if one.member != mine.member]
    for one in others:
        leave = f"fedbo hub leave {shlex.quote(one.place)} --name {shlex.quote(one.member)}"
        typer.echo(
            f"Warning: you are also the member {screen.printable(one.member)!r} there. If you only "
            f"wanted another name, leave as that member: {screen.printable(leave)}",
            err=True,
        )


def update_file(place: HubExchange, file: Path) -> None:
    """Get the federation file from the hub if there is none, or if a later epoch has begun.

    If the hub cannot be reached, a file that exists is used as it is.

    Args:
        place: The hub.
        file: The federation file.
    """
    ours = checks.federation("--federation", file) if file.exists() else None
    try:
        mine = place.site(ours)
    except ExchangeError as error:
        checks.end(str(error))
    try:
        update = _Update(file, mine.federation(), mine.membership.place)
        if fault := mine.membership.agreed.mismatch(update.theirs.fingerprint, same_epoch=False):
            raise ValueError(
                f"the federation at {mine.membership.place} is not the one that you have joined "
                f"({fault}): it is not used; ask whoever runs the hub"
            )
        update.write()
    except (ValueError, OSError) as error:
        if ours is None or isinstance(error, HubRefused) or not isinstance(error, ExchangeError):
            checks.end(_reason(error, file))
        typer.echo(f"Warning: {screen.lines(str(error))}; going on with {file}", err=True)
        return
    if update.done:
        screen.say(Console(), update.done)


def say_next(place: HubExchange, file: Path) -> None:
    """Say how to tune an objective now."""
    command = f"fedbo join {shlex.quote(place.address)}"
    if file != DEFAULT_FILE:
        command += f" --federation {shlex.quote(str(file))}"
    screen.say(Console(), "To tune an objective with the other sites, run:")
    typer.echo(
        screen.printable(f"  {command} --storage sqlite:///site.db --objective MODULE:FUNCTION")
    )


def _read(given: str) -> Invitation:
    """Return the invitation that was given: itself, a file with it, or "-"."""
    if given == "-":
        return Invitation.parse(sys.stdin.readline(_LONGEST))
    if os.path.isfile(given):
        with open(given, encoding="utf-8", errors="replace") as file:
            return Invitation.parse(file.read(_LONGEST))
    try:
        return Invitation.parse(given)
    except ValueError as error:  # which does not quote it
        raise ValueError(f"{error}. There is no file of this name either") from None


def _planned(file: Path, theirs: Federation, address: str) -> _Update:
    """Return what is to be done about the file of someone who is not a member yet."""
    try:
        return _Update(file, theirs, address)
    except (ValueError, OSError) as error:
        name = address.rpartition("/")[2]
        other = f"{name}.toml" if file.name != f"{name}.toml" else f"{name}-2.toml"
        raise ValueError(
            f"{_reason(error, file)}. You have not joined, and the invitation is still valid. To "
            f"keep both files: fedbo join {shlex.quote(address)} --invite - --federation {other} "
            "< invitation.txt"
        ) from None


class _Update:
    """What is to be done about a federation file; a ValueError if it is of another federation.

    Args:
        file: The file, which may not exist.
        theirs: The federation at the hub.
        address: Where it is.
    """

    def __init__(self, file: Path, theirs: Federation, address: str) -> None:
        self.theirs, self._file, self.done = theirs, file, ""
        if not file.exists():
            checks.writable("--federation", file)
            self.done = f"The federation file was written to {file}."
            return
        ours = Federation.load(file)
        if ours == theirs:
            if ours.members != theirs.members:
                typer.echo(
                    f"Warning: {file} does not list the same members as the federation file at "
                    f"{address}, and was not changed: it decides who is heard here. To compare, "
                    f"get the other with fedbo join {address} --federation OTHER",
                    err=True,
                )
        elif theirs.epoch > ours.epoch:
            accept_later(address, ours, theirs)
            self.done = (
                f"Epoch {theirs.epoch} of the federation has begun, and {file} was of epoch "
                f"{ours.epoch}: it was updated."
            )
        else:
            raise ValueError(
                f"{file} is not the federation at {address}, and was not overwritten: "
                f"{ours.difference(theirs)}. Give another file with --federation"
            )

    def write(self) -> None:
        if self.done:
            self.theirs.save(self._file)


def _reason(error: Exception, file: Path) -> str:
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return f"{error.filename or file} cannot be used: {error.strerror}"
