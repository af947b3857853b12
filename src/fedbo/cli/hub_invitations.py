"""``fedbo hub invitations``: list the open invitations to a federation, or cancel one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedbo.cli import screen
from fedbo.cli.hub_database import Config, Db, database, settings

if TYPE_CHECKING:
    from fedbo.hub.admin import Opened


def invitations(
    name: Annotated[str, typer.Argument(help="The name of the federation at the hub.")],
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
    with database(settings(db, config).db) as engine:
        from fedbo.hub import admin
        from fedbo.hub.database import begin

        with begin(engine) as connection:
            if cancel is not None:
                admin.drop_invitation(connection, name, cancel, actor=admin.COMMAND_LINE)
            found = admin.invitations(connection, name)
    if cancel is not None:
        text = f"Invitation {cancel} to {name!r} is cancelled: nobody else can join with it."
        screen.say(Console(), text)
        return
    if not found:
        typer.echo(f"There are no open invitations to {name!r}: fedbo hub invite {name}")
        return
    grid = screen.grid("number", "uses left", "until")
    for one in found:
        grid.add_row(f"{one.id}", f"{one.uses:,}", screen.moment(one.expires))
    screen.show(Console(), grid)


def warn_of_open(name: str, still_open: Sequence[Opened]) -> None:
    """Say that whoever was revoked or removed can come back, if there are open invitations.

    Args:
        name: The name of the federation at the hub.
        still_open: The invitations to it that can be used.
    """
    if not still_open:
        return
    numbers = ", ".join(str(one.id) for one in still_open)
    one = len(still_open) == 1
    screen.say(
        Console(),
        f"Whoever has an open invitation can join again under another name. "
        f"{'This one is' if one else 'These are'} open: {numbers}. To cancel "
        f"{'it' if one else 'one'}: fedbo hub invitations {name} --cancel "
        f"{numbers if one else 'NUMBER'}",
        "yellow",
    )
