"""``fedbo hub``: create federations, invite members, list and revoke them, name operators."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedbo import files
from fedbo.cli import checks, screen
from fedbo.hub.names import COMMAND_LINE
from fedbo.outside import without_password

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from fedbo.federation.federation import Federation
    from fedbo.hub.records import NewInvitation, OpenInvitation
    from fedbo.hub.settings import Settings

_KEY = 8  # characters of a key that are shown, without its kind
_WIDTH = 12  # of names, at least
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
_Operator = Annotated[str, typer.Argument(help="The name of the operator, for the audit log.")]
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


def settings_of(db: str | None, config: Path | None) -> Settings:
    """Return the settings of the hub, or end the program and say what is wrong with them."""
    checks.require("hub", {"sqlalchemy": "sqlalchemy", "cryptography": "cryptography"})
    from fedbo.hub.settings import load

    try:
        return load({"db": db}, config, os.environ)
    except ValueError as error:
        checks.end(str(error))


@contextmanager
def database(url: str, *, must_exist: bool = True) -> Iterator[Engine]:
    """Open the hub's database; what it or the hub refuses ends the program with a sentence.

    Args:
        url: Its address.
        must_exist: Whether a database without a hub is an error.
    """
    from sqlalchemy.exc import DBAPIError

    from fedbo.hub import store
    from fedbo.hub.problems import Refused

    try:
        engine = store.open_database(url, must_exist=must_exist)
    except store.HubError as error:
        checks.end(str(error))
    try:
        yield engine
    except (store.HubError, Refused) as error:
        checks.end(str(error))
    except DBAPIError as error:
        checks.end(str(store.unusable(engine, error)))
    finally:
        engine.dispose()


@contextmanager
def writing(url: str, *, must_exist: bool = True) -> Iterator[Connection]:
    """Change the hub's database in one transaction."""
    with database(url, must_exist=must_exist) as engine:
        from fedbo.hub import store

        with store.begin(engine) as connection:
            yield connection


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """Read the hub's database."""
    with database(url) as engine, engine.connect() as connection:
        yield connection


def create(
    name: Name,
    federation: _File,
    uses: _Uses = 10,
    days: _Days = 14,
    address: _Address = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Create a federation at the hub, and print an invitation to it."""
    agreed = checks.federation("--federation", federation)
    chosen = settings_of(db, config)
    with writing(chosen.db, must_exist=False) as connection:
        from fedbo.hub import store

        store.create_federation(connection, name, agreed, actor=COMMAND_LINE)
        invited = store.invite(connection, name, uses=uses, days=days, actor=COMMAND_LINE)
        where = without_password(chosen.db)
    text = f"The federation {name!r} ({agreed.fingerprint}) was created in {where}."
    screen.say(Console(), text)
    _show(invited, address, chosen)


def update(name: Name, federation: _File, db: Db = None, config: Config = None) -> None:
    """Replace the list of members in the file of a federation; all else must be the same."""
    agreed = checks.federation("--federation", federation)
    with writing(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        store.update_federation(connection, name, agreed, actor=COMMAND_LINE)
        unlisted = _unlisted(connection, name, agreed)
    listed = screen.count(len(agreed.members), "member") if agreed.members else "no members"
    screen.say(Console(), f"The federation file of {name!r} now lists {listed}.")
    for member in unlisted:
        screen.say(
            Console(),
            f"• The member {member!r} is not listed with its key, and peers refuse its messages; "
            f"to revoke it: fedbo hub revoke {name} {shlex.quote(member)}",
            "yellow",
        )


def invite(
    name: Name,
    uses: _Uses = 10,
    days: _Days = 14,
    address: _Address = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Print a new invitation to a federation."""
    chosen = settings_of(db, config)
    with writing(chosen.db) as connection:
        from fedbo.hub import store

        invited = store.invite(connection, name, uses=uses, days=days, actor=COMMAND_LINE)
    _show(invited, address, chosen)


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
    with writing(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        if cancel is not None:
            store.drop_invitation(connection, name, cancel, actor=COMMAND_LINE)
        rows = store.invitations(connection, name)
    if cancel is not None:
        text = f"Invitation {cancel} to {name!r} is cancelled: nobody else can join with it."
        screen.say(Console(), text)
    elif not rows:
        typer.echo(f"There are no open invitations to {name!r}: fedbo hub invite {name}")
    else:
        grid = screen.grid("number", "uses left", "until")
        for row in rows:
            grid.add_row(f"{row.id}", f"{row.uses:,}", screen.moment(row.expires))
        screen.show(Console(), grid)


def members(
    name: Annotated[
        str | None,
        typer.Argument(help="The name of a federation. Without it, federations are listed."),
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """List the members of a federation, or all federations."""
    grid = screen.grid()
    grid.add_column("name", overflow="fold", min_width=_WIDTH)
    numbers = ("agents", "messages", "size", "trials", "seen") if name else ("members", "messages")
    for title in numbers:
        grid.add_column(title, justify="right")
    grid.add_column("key" if name else "fingerprint", overflow="fold")
    with reading(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        if name is None:
            for row in store.federations(connection):
                counts = f"{row.members:,}", f"{row.messages:,}"
                grid.add_row(row.name, *counts, row.fingerprint)
        else:
            for member in store.members(connection, name).rows:
                key = f"{member.key.split(':')[1][:_KEY]}…" if member.key else "not signed"
                grid.add_row(
                    Text(screen.printable(member.name)),
                    f"{member.agents}",
                    f"{member.messages}",
                    screen.size(member.bytes),
                    f"{member.trials:,}",
                    screen.age(member.seen),
                    Text("revoked", style="yellow") if member.is_revoked else Text(key),
                )
    if grid.row_count:
        screen.show(Console(), grid)
    else:
        typer.echo(f"There are no {'federations' if name is None else 'members'} yet.")


def revoke(name: Name, member: _Member, db: Db = None, config: Config = None) -> None:
    """Revoke a member: its token is no longer valid, and its messages are deleted.

    Its name stays taken. Peers that hold its messages forget them when they fetch next.
    """
    with writing(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        store.revoke(connection, name, member, actor=COMMAND_LINE)
        still_open = store.invitations(connection, name)
    screen.say(
        Console(),
        f"{member!r} of {name!r} is revoked: its token is no longer valid, and its messages "
        f"are deleted. Nobody else can take its name, unless you run fedbo hub remove {name} "
        f"{shlex.quote(member)}.",
    )
    _warn_of_open(name, still_open)


def remove(name: Name, member: _Member, db: Db = None, config: Config = None) -> None:
    """Remove a member and all that the hub has of it. Its name is free.

    Peers that hold its messages forget them when they fetch next.
    """
    with writing(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        store.remove(connection, name, member, actor=COMMAND_LINE)
        still_open = store.invitations(connection, name)
    screen.say(
        Console(),
        f"{member!r} is no longer a member of {name!r}: its token is no longer valid, its "
        "messages are deleted, and its name is free. The audit log still says what it did.",
    )
    _warn_of_open(name, still_open)


def add_operator(name: _Operator, db: Db = None, config: Config = None) -> None:
    """Add an operator, and print the operator's token."""
    with writing(settings_of(db, config).db, must_exist=False) as connection:
        from fedbo.hub import store

        token = store.new_operator(connection, name, actor=COMMAND_LINE)
    console = Console()
    screen.say(
        console,
        f"{name!r} is an operator of the hub: this token lets its holder log in to its page, "
        "create federations, invite, and revoke. It is not shown again:",
    )
    _print(console, token)


def drop_operator(name: _Operator, db: Db = None, config: Config = None) -> None:
    """Drop an operator: the token is no longer valid."""
    with writing(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        store.drop_operator(connection, name, actor=COMMAND_LINE)
    screen.say(Console(), f"{name!r} is no longer an operator: the token is no longer valid.")


def list_operators(db: Db = None, config: Config = None) -> None:
    """List the operators."""
    with reading(settings_of(db, config).db) as connection:
        from fedbo.hub import store

        rows = store.operators(connection)
    if not rows:
        typer.echo("There are no operators yet: fedbo hub operator add NAME")
        return
    grid = screen.grid("operator", "since")
    for row in rows:
        grid.add_row(Text(screen.printable(row.name)), screen.moment(row.created))
    screen.show(Console(), grid)


def audit(
    name: Annotated[
        str | None, typer.Argument(help="Only what concerns the federation of this name.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write it to this file, which only this user can read.")
    ] = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Export the audit log, one JSON object in each line."""
    if out is not None:
        checks.writable("--out", out)
    with database(settings_of(db, config).db) as engine:
        from fedbo.hub import store

        if name is not None:
            with engine.connect() as connection:
                store.find_federation(connection, name)
        lines = store.audit_lines(engine, name)
        if out is None:
            for line in lines:
                typer.echo(line, nl=False)
            return
        try:
            with files.replacing(out, 0o600) as path, open(path, "w", encoding="utf-8") as file:
                count = sum(1 for line in lines if file.write(line))
        except OSError as error:
            checks.end(f"{out} cannot be written: {error.strerror}")
    screen.say(Console(), f"{screen.count(count, 'line')} of the audit log are in {out}.")


def _show(invited: NewInvitation, address: str | None, chosen: Settings) -> None:
    console, until = Console(), screen.moment(invited.expires)
    members = "one member" if invited.uses == 1 else f"{invited.uses:,} members"
    screen.say(
        console,
        f"With this invitation {members} can join until {until}. It is not shown again; give it "
        "only to those who may join:",
    )
    _print(console, invited.invitation)
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


def _unlisted(connection: Connection, name: str, agreed: Federation) -> list[str]:
    """Return the members that are enrolled, but that the federation file does not list."""
    from fedbo.hub import store
    from fedbo.message.signed import key_text

    if not agreed.members:
        return []
    listed = {(member, key_text(key)) for member, key in agreed.members.items()}
    rows = store.members(connection, name).rows
    return [row.name for row in rows if not row.is_revoked and (row.name, row.key) not in listed]


def _warn_of_open(name: str, still_open: list[OpenInvitation]) -> None:
    """Say that whoever was revoked or removed can come back, if there are open invitations."""
    if still_open:
        numbers = ", ".join(str(row.id) for row in still_open)
        screen.say(
            Console(),
            "Whoever has an open invitation can join again under another name. Open are: "
            f"{numbers}. To cancel one: fedbo hub invitations {name} --cancel NUMBER",
            "yellow",
        )
