"""``fedbo join``: become a member of a hub, and get the federation file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks, screen
from fedbo.exchange import HubExchange
from fedbo.exchange.hub.member import enrol
from fedbo.exchange.hub.memberships import HubUrl, Invitation, Memberships
from fedbo.federation.federation import Federation
from fedbo.message.signed import key_text, member
from fedbo.trust import KeyPair, Keyring

_LONGEST = 10_000  # characters of an invitation


def join(
    address: Annotated[str, typer.Argument(metavar="URL", help="The https:// address of the hub.")],
    invite: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A file with the invitation, or - to read it from standard input: other users of "
            "this machine can see what is on the command line.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The name of this member; random by default.")
    ] = None,
    federation: Annotated[Path, typer.Option(help="Where the federation file is stored.")] = Path(
        "federation.toml"
    ),
) -> None:
    """Become a member of a hub, with an invitation, and get the federation file.

    Without --invite, a member gets the current federation file: the list of members' keys may have
    changed.
    """
    url = HubUrl.parse(address)
    if invite is None:
        place, text = str(url), _refresh(HubExchange(address), federation)
    else:
        place, text = _enrol(url, _read(invite), name, federation)
    screen.say(f"{text} In a study, only the sampler changes:")
    screen.copied(f"FederatedSampler({str(federation)!r}, exchange={place!r})")


def _enrol(url: HubUrl, invitation: Invitation, name: str | None, file: Path) -> tuple[str, str]:
    """Become a member and write the federation file; return where, and what was done."""
    place, done = f"{url.base}/{invitation.name}", ""
    agreed: Federation | None = None

    def accept(federation: Federation) -> None:
        nonlocal agreed, done
        _check_keys(federation, place)
        try:
            done = _check(file, federation, place)
        except ValueError as error:
            raise ValueError(
                f"{error}. You have not joined, and the invitation is still valid. To keep both "
                f"files: fedbo join {shlex.quote(place)} --invite - --federation NEW"
            ) from None
        agreed = federation

    called = None if name is None else member(name)
    mine = enrol(str(url), invitation, called, keys=KeyPair.load(), accept=accept)
    if agreed is None:
        already = f"You are the member {mine.member!r} of {mine.place} already."
        return place, f"{already} {_refresh(HubExchange(mine.place), file)}"
    _write(agreed, file)
    return place, (
        f"You are now the member {mine.member!r} of {mine.place}. The token is in "
        f"{Memberships().path}, which only this user can read. Your messages will be signed with "
        f"the key {mine.key}. {done}"
    )


def _refresh(exchange: HubExchange, file: Path) -> str:
    """Write the federation file as the hub hands it out now; return what was done."""
    ours = Federation.load(file) if file.exists() else None
    session = exchange.member(None if ours is None else ours.fingerprint)
    federation = session.federation()
    _check_keys(federation, session.membership.place)
    done = _check(file, federation, session.membership.place)
    _write(federation, file)
    return done


def _write(federation: Federation, file: Path) -> None:
    """Remember the listed keys, and write the federation file unless one says the same."""
    Keyring.user().judge(federation, [])
    if not file.exists() or Federation.load(file).members != federation.members:
        federation.save(file)


def _check_keys(theirs: Federation, place: str) -> None:
    """Refuse a list with another key for somebody whose key is known here, or who is this user."""
    if disputed := Keyring.user().disputed(theirs):
        names = ", ".join(f"{name!r} (known here by {key})" for name, key in disputed.items())
        commands = "; ".join(
            f"fedbo identity trust {shlex.quote(name)} {key_text(theirs.members[name])}"
            for name in disputed
        )
        raise ValueError(
            f"the list of members at {place} has other keys than are known here for {names}: "
            "nothing was changed. Ask these members, not only whoever runs the hub. If the listed "
            f"keys are theirs: {commands}"
        )


def _check(file: Path, theirs: Federation, place: str) -> str:
    """Return what writing the federation file means; a ValueError if it must not be written.

    A hub may enrol members. But it must not speak for one: the names and keys that are listed in
    the file stay. If a name could be dropped, the next list could have it with another key.
    """
    if not file.exists():
        checks.writable("--federation", file)
        return f"The federation file was written to {file}."
    ours = Federation.load(file)
    if fault := ours.difference(theirs):
        raise ValueError(
            f"{file} is not the federation at {place}, and was not overwritten: {fault}. Give "
            "another file with --federation"
        )
    faults = [
        f"lists another key for {name!r}" if name in theirs.members else f"does not list {name!r}"
        for name, key in ours.members.items()
        if theirs.members.get(name) != key
    ]
    if faults:
        raise ValueError(
            f"{file} was not replaced: the list of members at {place} {' and '.join(faults)}. Ask "
            "the other members, not only whoever runs the hub. If it is right, get the new file "
            f"with fedbo join {shlex.quote(place)} --federation NEW, and use it in place of yours"
        )
    added = [repr(name) for name in theirs.members if name not in ours.members]
    return f"{file} lists new members: {', '.join(added)}." if added else f"{file} is up to date."


def _read(invite: str) -> Invitation:
    """Return the invitation in a file, or in standard input for ``-``."""
    if invite == "-":
        return Invitation.parse(sys.stdin.readline(_LONGEST))
    try:
        with open(invite, encoding="utf-8", errors="replace") as file:
            return Invitation.parse(file.read(_LONGEST))
    except OSError as error:  # the name may be the invitation itself, a secret
        checks.end(f"the file with the invitation cannot be read: {error.strerror}")
