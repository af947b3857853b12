"""``fedbo hub``: create federations, invite members, list and revoke them, start epochs."""

from __future__ import annotations

import platform
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedbo.cli import checks, screen
from fedbo.cli.exchange import age
from fedbo.cli.hub_database import Config, Db, database, settings
from fedbo.cli.hub_invitations import warn_of_open
from fedbo.federation import Federation

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from fedbo.hub.admin import Invited
    from fedbo.hub.settings import Settings

_PAGE = 1000  # members that are read at once
_KEY = 8  # characters of a key that are shown, without its kind
_WIDTH = 12  # of names, at least
_ANYWHERE = ("", "0.0.0.0", "::")  # addresses to listen at, not to reach

_Name = Annotated[str, typer.Argument(help="The name of the federation at the hub.")]
_Member = Annotated[str, typer.Argument(help="The name of the member.")]
_Uses = Annotated[int, typer.Option(help="How many members can join with the invitation.")]
_Days = Annotated[float, typer.Option(help="For how many days the invitation is valid.")]
_Address = Annotated[
    str | None,
    typer.Option(
        help="Where members reach the hub; by default the public_url of its settings, or the "
        "address at which it listens.",
        show_default=False,
    ),
]


def create(
    name: _Name,
    federation: Annotated[Path, typer.Option(help="The federation file.")],
    uses: _Uses = 10,
    days: _Days = 14,
    address: _Address = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Create a federation at the hub, and print an invitation to it."""
    agreed = checks.federation("--federation", federation)
    chosen = settings(db, config)
    with database(chosen.db, must_exist=False) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin, shown

        with begin(engine) as connection:
            admin.create_federation(connection, name, agreed, actor=admin.COMMAND_LINE)
            invited = _invite(connection, name, uses, days)
        where = shown(engine.url)
    screen.say(
        Console(),
        f"The federation {name!r} ({agreed.fingerprint}, epoch {agreed.epoch}) was created in "
        f"{where}.",
    )
    _show(invited, address, chosen)


def invite(
    name: _Name,
    uses: _Uses = 10,
    days: _Days = 14,
    address: _Address = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Print a new invitation to a federation."""
    chosen = settings(db, config)
    with database(chosen.db) as engine:
        from fedbo.hub.database import begin

        with begin(engine) as connection:
            invited = _invite(connection, name, uses, days)
    _show(invited, address, chosen)


def members(
    name: Annotated[
        str | None,
        typer.Argument(help="The name of a federation. Without it, federations are listed."),
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """List the members of a federation, or all federations."""
    with database(settings(db, config).db) as engine, engine.connect() as connection:
        table = _federations(connection) if name is None else _members(connection, name)
    if table.row_count:
        screen.show(Console(), table)
    else:
        typer.echo(f"There are no {'federations' if name is None else 'members'} yet.")


def revoke(name: _Name, member: _Member, db: Db = None, config: Config = None) -> None:
    """Revoke a member: its token is no longer valid, and its messages are deleted.

    Its name stays taken. Peers that hold its messages forget them when they fetch next.
    """
    with database(settings(db, config).db) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin

        with begin(engine) as connection:
            was_revoked = admin.find_member(connection, name, member).is_revoked
            admin.revoke(connection, name, member, actor=admin.COMMAND_LINE)
            still_open = admin.invitations(connection, name)
    if was_revoked:
        screen.say(Console(), f"{member!r} of {name!r} was revoked already.")
        warn_of_open(name, still_open)
        return
    screen.say(
        Console(),
        f"{member!r} of {name!r} is revoked: its token is no longer valid, and its messages are "
        f"deleted. Nobody else can take its name, unless you run fedbo hub remove {name} "
        f"{shlex.quote(member)}.",
    )
    warn_of_open(name, still_open)


def remove(name: _Name, member: _Member, db: Db = None, config: Config = None) -> None:
    """Remove a member and all that the hub has of it. Its name is free.

    Peers that hold its messages forget them when they fetch next.
    """
    with database(settings(db, config).db) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin

        with begin(engine) as connection:
            admin.remove(connection, name, member, actor=admin.COMMAND_LINE)
            still_open = admin.invitations(connection, name)
    screen.say(
        Console(),
        f"{member!r} is no longer a member of {name!r}: its token is no longer valid, its messages "
        "are deleted, and its name is free. The audit log still says what it did.",
    )
    warn_of_open(name, still_open)


def epoch(
    name: _Name,
    federation: Annotated[
        Path | None,
        typer.Option(help="The federation file of a later epoch, or with other members."),
    ] = None,
    agree: Annotated[
        bool,
        typer.Option(
            "--agree", help="Take the length scale and the noise that suit what members shared."
        ),
    ] = False,
    db: Db = None,
    config: Config = None,
) -> None:
    """Start a new epoch of a federation, or change its list of members.

    A new epoch invalidates every message in circulation: agents publish new ones.
    """
    if (federation is None) != agree:
        raise checks.refused("give one of the two", "--federation / --agree")
    given = None if federation is None else checks.federation("--federation", federation)
    with database(settings(db, config).db) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin

        with begin(engine) as connection:
            before, agreed = None, given
            if given is None:
                agreed = admin.agree(connection, name, actor=admin.COMMAND_LINE)
            else:
                before = admin.add_epoch(connection, name, given, actor=admin.COMMAND_LINE)
            enrolled = [] if agreed is None else _unlisted(connection, name, agreed)
    screen.say(Console(), _began(name, before, agreed))
    for member in enrolled:
        screen.say(
            Console(),
            f"• The member {member!r} is not listed with its key, and peers refuse its messages; "
            f"to revoke it: fedbo hub revoke {name} {shlex.quote(member)}",
            "yellow",
        )


def _invite(connection: Connection, name: str, uses: int, days: float) -> Invited:
    from fedbo.hub import admin

    return admin.invite(connection, name, uses=uses, days=days, actor=admin.COMMAND_LINE)


def _show(invited: Invited, address: str | None, chosen: Settings) -> None:
    console, until = Console(), screen.moment(invited.expires)
    members = "one member" if invited.uses == 1 else f"{invited.uses:,} members"
    screen.say(
        console,
        f"With this invitation {members} can join until {until}. It is not shown again; give it "
        "only to those who may join:",
    )
    _print(console, f"{invited.invitation}")
    screen.say(console, "Save it as invitation.txt, since commands can be seen by others; then:")
    where = shlex.quote((address or _reached(chosen)).rstrip("/"))
    _print(console, f"fedbo join {where} --invite - < invitation.txt")


def _print(console: Console, line: str) -> None:
    """Print a line to copy; it is not broken, whatever the width of the terminal."""
    console.print(Text(f"\n  {screen.printable(line)}\n"), soft_wrap=True)


def _reached(chosen: Settings) -> str:
    """Return the address under which members reach the hub, as far as its settings tell."""
    if chosen.public_url:
        return chosen.public_url
    scheme = "https" if chosen.tls_certificate else "http"
    host = platform.node() if chosen.host in _ANYWHERE else chosen.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{chosen.port}"


def _federations(connection: Connection) -> Table:
    from fedbo.hub import admin

    grid = screen.grid()
    grid.add_column("name", overflow="fold", min_width=_WIDTH)
    for title in ("epoch", "members", "messages"):
        grid.add_column(title, justify="right")
    grid.add_column("fingerprint", overflow="fold")
    for one in admin.federations(connection):
        counts = (f"{one.epoch}", f"{one.members:,}", f"{one.messages:,}")
        grid.add_row(one.name, *counts, str(one.fingerprint))
    return grid


def _members(connection: Connection, name: str) -> Table:
    from fedbo.hub import admin
    from fedbo.message.signed import key_text

    grid = screen.grid()
    grid.add_column("name", overflow="fold", min_width=_WIDTH)
    for title in ("agents", "messages", "size", "trials", "seen"):
        grid.add_column(title, justify="right")
    grid.add_column("key")
    after = 0
    while page := admin.members(connection, name, after=after, most=_PAGE):
        for one in page:
            key = f"{key_text(one.key).split(':')[1][:_KEY]}…" if one.key else "not signed"
            counts = (f"{one.agents}", f"{one.messages}", screen.size(one.bytes), f"{one.trials:,}")
            grid.add_row(
                Text(screen.printable(one.name)),
                *counts,
                age(one.seen),
                Text("revoked", style="yellow") if one.is_revoked else Text(key),
            )
        after = page[-1].id
    return grid


def _unlisted(connection: Connection, name: str, agreed: Federation) -> list[str]:
    """Return the members that are enrolled, but that the federation file does not list."""
    from fedbo.hub import admin

    if not agreed.members:
        return []
    listed = agreed.members.items()
    enrolled = [one for one in admin.members(connection, name) if not one.is_revoked]
    return [one.name for one in enrolled if (one.name, one.key) not in listed]


def _began(name: str, before: Federation | None, agreed: Federation | None) -> str:
    if agreed is None:
        return (
            f"{name!r} stays in its epoch: fewer than three members have shared scalars in it, or "
            "what suits them differs too little from what is agreed."
        )
    if before is None or agreed.epoch > before.epoch:
        return (
            f"Epoch {agreed.epoch} of {name!r} has begun, with length scale {agreed.length_scale} "
            f"and noise variance {agreed.noise_variance}. Members get the new federation file "
            "when they contact the hub next."
        )
    if before.members == agreed.members:
        return f"{name!r} is in epoch {agreed.epoch} already, with this federation file."
    listed = screen.count(len(agreed.members), "member") if agreed.members else "no members"
    return f"The federation file of {name!r} now lists {listed}; its epoch is still {agreed.epoch}."
