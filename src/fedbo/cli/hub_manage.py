"""``fedbo hub``: create federations, invite members, list and revoke them; the audit log."""

from __future__ import annotations

import os
import platform
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo import files
from fedbo.cli import checks, screen
from fedbo.federation.federation import Federation
from fedbo.hub.names import command_line
from fedbo.hub.settings import INVITED_DAYS
from fedbo.outside import without_password

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from fedbo.hub.records import NewInvitation
    from fedbo.hub.settings import Settings

_KEY = 8  # characters of a key that are shown, without its kind
_ANYWHERE = ("", "0.0.0.0", "::")  # addresses to listen at, not to reach

Db = Annotated[
    str | None,
    typer.Option(
        help="The hub's database: sqlite:///FILE, or postgresql+psycopg://USER@HOST/DATABASE. By "
        "default that of the variable FEDBO_HUB_DB, that of --config, or sqlite:///fedbo.db. Put "
        "an address with a password into the variable or the file.",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        help="The hub's settings, a TOML file.", envvar="FEDBO_HUB_CONFIG", show_default=False
    ),
]
Name = Annotated[str, typer.Argument(help="The name of the federation at the hub.")]
_File = Annotated[Path, typer.Option("--federation", help="The federation file.")]
_Member = Annotated[str, typer.Argument(help="The name of the member.")]
_Uses = Annotated[int, typer.Option(help="How many members can join with the invitation.")]
_To = Annotated[
    Path | None,
    typer.Option(
        help="Write the invitation to this file, which only this user can read, and do not print "
        "it.",
        show_default=False,
    ),
]
_Days = Annotated[float, typer.Option(help="For how many days the invitation is valid.")]


def settings_of(db: str | None, config: Path | None) -> Settings:
    """Return the settings of the hub."""
    from fedbo.hub.settings import load

    return load({"db": db}, config, os.environ)


@contextmanager
def database(url: str, *, must_exist: bool = True, any_version: bool = False) -> Iterator[Engine]:
    """Open the hub's database; what it or the hub refuses ends the program with a sentence."""
    from sqlalchemy.exc import DBAPIError

    from fedbo.hub import store
    from fedbo.hub.problems import Refused

    engine = None
    try:
        engine = store.open_database(url, must_exist=must_exist, any_version=any_version)
        yield engine
    except (store.HubError, Refused) as error:
        checks.end(str(error))
    except DBAPIError as error:
        assert engine is not None
        checks.end(str(store.unusable(engine, error)))
    finally:
        if engine is not None:
            engine.dispose()


@contextmanager
def transaction(
    db: str | None, config: Path | None, *, must_exist: bool = True
) -> Iterator[tuple[Connection, Settings]]:
    """Work with the hub's database in one transaction."""
    settings = settings_of(db, config)
    with database(settings.db, must_exist=must_exist) as engine:
        from fedbo.hub import store

        with store.begin(engine) as connection:
            yield connection, settings


def create(
    name: Name,
    federation: _File,
    uses: _Uses = 10,
    days: _Days = INVITED_DAYS,
    to: _To = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Create a federation at the hub, and print an invitation to it."""
    if to is not None:
        checks.writable("--to", to)
    agreed = Federation.load(federation)
    with transaction(db, config, must_exist=False) as (connection, settings):
        from fedbo.hub import store

        store.create_federation(connection, name, agreed, actor=command_line())
        invited = store.invite(connection, name, uses=uses, days=days, actor=command_line())
    where = without_password(settings.db)
    screen.say(f"The federation {name!r} ({agreed.fingerprint}) was created in {where}.", err=True)
    _show(invited, settings, to)


def update(name: Name, federation: _File, db: Db = None, config: Config = None) -> None:
    """Replace the list of members in the file of a federation; all else must be the same.

    Members that the new list does not have, or has with another key, are revoked.
    """
    agreed = Federation.load(federation)
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        revoked = store.update_federation(connection, name, agreed, actor=command_line())
    listed = screen.count(len(agreed.members), "member") if agreed.members else "no members"
    screen.say(f"The federation file of {name!r} now lists {listed}.")
    for member in revoked:
        if not member.listed:
            screen.say(f"• The member {member.name!r} is not listed, and was revoked.", "yellow")
            continue
        screen.say(
            f"• The member {member.name!r} was revoked: its key is {member.key or 'none'}, and "
            f"{member.listed} is listed. To let it join with that key: fedbo hub remove {name} "
            f"{shlex.quote(member.name)}, and fedbo hub invite {name}",
            "yellow",
        )


def invite(
    name: Name,
    uses: _Uses = 10,
    days: _Days = INVITED_DAYS,
    to: _To = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Print a new invitation to a federation."""
    if to is not None:
        checks.writable("--to", to)
    with transaction(db, config) as (connection, settings):
        from fedbo.hub import store

        invited = store.invite(connection, name, uses=uses, days=days, actor=command_line())
    _show(invited, settings, to)


def invitations(
    name: Name,
    cancel: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="Cancel this invitation. Members who joined with it stay."
        ),
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """List the open invitations to a federation, without their secrets, or cancel one."""
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        if cancel is not None:
            store.drop_invitation(connection, name, cancel, actor=command_line())
        rows = store.invitations(connection, name)
    if cancel is not None:
        screen.say(f"Invitation {cancel} to {name!r} is cancelled: nobody else can join with it.")
    elif not rows:
        typer.echo(f"There are no open invitations to {name!r}: fedbo hub invite {name}")
    else:
        cells = ((row.id, row.uses, screen.moment(row.expires)) for row in rows)
        screen.table(("number", "uses left", "until"), cells)


def members(
    name: Annotated[
        str | None,
        typer.Argument(help="The name of a federation. Without it, federations are listed."),
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """List the members of a federation, or all federations."""
    rows: list[tuple[object, ...]] = []
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        for row in store.federations(connection) if name is None else ():
            rows.append((row.name, row.members, row.messages, row.fingerprint))
        for member in store.members(connection, name).rows if name is not None else ():
            key = f"{member.key.split(':')[1][:_KEY]}…"
            counts = member.agents, member.messages, screen.size(member.bytes), member.trials
            key = "suspended" if member.is_suspended else key
            key = "revoked" if member.is_revoked else key
            rows.append((member.name, *counts, screen.age(member.seen), key))
    titles = "name agents messages size trials seen key"
    titles = "name members messages fingerprint" if name is None else titles
    if rows:
        screen.table(titles.split(), rows)
    else:
        typer.echo(f"There are no {'federations' if name is None else 'members'} yet.")


def revoke(name: Name, member: _Member, db: Db = None, config: Config = None) -> None:
    """Revoke a member: its token is no longer valid, and its messages are deleted.

    Its name stays taken. Peers that hold its messages forget them when they fetch next.
    """
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        store.revoke(connection, name, member, actor=command_line())
        _warn_of_open(connection, name)
    screen.say(
        f"{member!r} of {name!r} is revoked: its token is no longer valid, and its messages "
        f"are deleted. Nobody else can take its name, unless you run fedbo hub remove {name} "
        f"{shlex.quote(member)}."
    )


def remove(name: Name, member: _Member, db: Db = None, config: Config = None) -> None:
    """Remove a member and all that the hub has of it. Its name is free.

    Peers that hold its messages forget them when they fetch next.
    """
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        store.remove(connection, name, member, actor=command_line())
        _warn_of_open(connection, name)
    screen.say(
        f"{member!r} is no longer a member of {name!r}: its token is no longer valid, its "
        "messages are deleted, and its name is free. The audit log still says what it did."
    )


def delete(name: Name, yes: checks.Yes = False, db: Db = None, config: Config = None) -> None:
    """Delete a federation: its members, their messages, invitations and releases.

    The audit log keeps what happened.
    """
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        store.find_federation(connection, name)
        (row,) = store.federations(connection, name)
    checks.sure(
        f"Delete {name!r} with {screen.count(row.members, 'member')} and "
        f"{screen.count(row.messages, 'message')}? This cannot be undone.",
        yes,
    )
    with transaction(db, config) as (connection, _):
        store.delete_federation(connection, name, actor=command_line())
    screen.say(f"{name!r} is deleted, and the tokens of its members are no longer valid.")


def admit(
    name: Name,
    members: Annotated[
        list[str] | None,
        typer.Argument(help="The members; by default all that are suspended.", show_default=False),
    ] = None,
    releases: Annotated[
        int | None,
        typer.Option(
            help="With a privacy plan, the number of the last release that any member's ledger "
            "shows; 0 if none does.",
            min=0,
            show_default=False,
        ),
    ] = None,
    yes: checks.Yes = False,
    db: Db = None,
    config: Config = None,
) -> None:
    """Let members take part again, who are suspended since the hub was restored from a backup.

    First revoke or remove who should not be there. With a privacy plan, ask the members: fedbo
    ledger shows the releases that each has heard. Those that the backup does not have are recorded
    as spent.
    """
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        rows = store.members(connection, name).rows
    suspended = [row for row in rows if row.is_suspended and not row.is_revoked]
    chosen = members or [row.name for row in suspended]
    if not members and suspended:
        cells = ((row.name, row.messages, screen.age(row.seen), row.key) for row in suspended)
        screen.table(("suspended", "messages", "seen", "key"), cells)
        checks.sure(f"Let {screen.count(len(chosen), 'member')} take part in {name!r} again?", yes)
    with transaction(db, config) as (connection, _):
        lost = store.admit(connection, name, chosen, releases, actor=command_line())
    screen.say(f"{screen.count(len(chosen), 'member')} of {name!r} can take part again.")
    if releases is not None:
        screen.say(
            f"Recorded as spent: {screen.count(lost, 'release')} that the backup did not have. "
            "Releases can be made again."
        )


def audit(
    name: Annotated[
        str | None, typer.Argument(help="Only what concerns the federation of this name.")
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Export the audit log, one JSON object in each line."""
    with database(settings_of(db, config).db) as engine:
        from fedbo.hub import store

        is_known = name is None  # a federation that was deleted has lines, too
        for line in store.audit_lines(engine, name):
            is_known = True
            typer.echo(line, nl=False)
        if name is not None and not is_known:
            with engine.connect() as connection:
                store.find_federation(connection, name)


def prune(
    older_than: Annotated[str, typer.Option(metavar="DAYSd", help="For example 90d: 90 days.")],
    db: Db = None,
    config: Config = None,
) -> None:
    """Delete old lines of the audit log. One stays, which says how many, and who did it."""
    found = re.fullmatch(r"([0-9]{1,5})d", older_than)
    if found is None:
        raise checks.refused(f"{older_than} is not a number of days such as 90d", "--older-than")
    with transaction(db, config) as (connection, _):
        from fedbo.hub import store

        before = time.time() - int(found[1]) * 86400
        count = store.prune(connection, before, actor=command_line())
    screen.say(f"{screen.count(count, 'line')} of the audit log are deleted.")


def _show(invited: NewInvitation, settings: Settings, to: Path | None) -> None:
    """Write an invitation to a file, or print it: only it goes to standard output."""
    members = "one member" if invited.uses == 1 else f"{invited.uses:,} members"
    screen.say(
        f"With this invitation {members} can join until {screen.moment(invited.expires)}. It is "
        "not shown again; give it only to those who may join:\n",
        err=True,
    )
    if to is None:
        typer.echo(invited.invitation)
        say = "\nSave it as invitation.txt (next time, --to FILE does so), and then:"
    else:
        files.write(to, f"{invited.invitation}\n".encode(), 0o600)
        say = f"It is in {to}, which only you can read. With it:"
    screen.say(say, err=True)
    host = platform.node() if settings.host in _ANYWHERE else settings.host
    address = f"http{'s' * bool(settings.tls_certificate)}://{host}:{settings.port}"
    address = settings.public_url.rstrip("/") or address
    name = "invitation.txt" if to is None else shlex.quote(str(to))
    screen.copied(f"fedbo join {shlex.quote(address)} --invite - < {name}", err=True)


def _warn_of_open(connection: Connection, name: str) -> None:
    """Say that whoever is revoked or removed can come back, if there are open invitations."""
    from fedbo.hub import store

    if rows := store.invitations(connection, name):
        screen.say(
            "Whoever has an open invitation can join again under another name. Open are: "
            f"{', '.join(str(row.id) for row in rows)}. To cancel one: fedbo hub invitations "
            f"{name} --cancel NUMBER",
            "yellow",
        )
