"""Invitations: secrets with which new members can enrol, a number of times and for some days."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub.admin.audit import record
from fedbo.hub.admin.federations import (
    FederationRow,
    epoch_file,
    find_federation,
    lock_federation,
)
from fedbo.hub.admin.names import invitation_subject
from fedbo.hub.problems import Refused
from fedbo.hub.schema import invitation
from fedbo.hub.tokens import digest, new_secret

MOST_USES, MOST_DAYS = 100_000, 3650
_DAY = 86400.0


class Invited(NamedTuple):
    """A new invitation, the only time that its secret is known."""

    invitation: Invitation
    id: int
    uses: int
    expires: float


class Opened(NamedTuple):
    """An invitation that can be used."""

    id: int
    federation: int
    uses: int
    expires: float
    created: float


_COLUMNS = (
    invitation.c.id,
    invitation.c.federation,
    invitation.c.uses,
    invitation.c.expires,
    invitation.c.created,
)


def invite(
    connection: Connection, name: str, *, uses: int = 10, days: float = 14, actor: str
) -> Invited:
    """Make an invitation to a federation.

    Args:
        connection: In a transaction that writes.
        name: The name of the federation at the hub.
        uses: How many members can enrol with it.
        days: For how many days.
        actor: Who invites.
    """
    if not 1 <= uses <= MOST_USES:
        raise Refused("wrong-request", f"uses is {uses}, expected 1 to {MOST_USES:,}")
    if not (math.isfinite(days) and 0 < days <= MOST_DAYS):
        raise Refused("wrong-request", f"days is {days}, expected above 0 to {MOST_DAYS:,}")
    here = lock_federation(connection, name)
    fingerprint = epoch_file(connection, here.id, here.epoch).fingerprint
    made, now = Invitation(name, fingerprint, new_secret()), time.time()
    row = {
        "federation": here.id,
        "secret": digest(made.secret),
        "uses": uses,
        "expires": now + days * _DAY,
        "created": now,
    }
    number = connection.execute(
        insert(invitation).values(row).returning(invitation.c.id)
    ).scalar_one()
    detail = {"id": number, "uses": uses, "days": days}
    record(connection, "invited", actor=actor, federation=name, detail=detail, when=now)
    return Invited(made, number, uses, now + days * _DAY)


def invitations(connection: Connection, name: str) -> list[Opened]:
    """Return the invitations to a federation that can still be used, without their secrets.

    Args:
        connection: To the database.
        name: The name of the federation at the hub.
    """
    here = find_federation(connection, name)
    usable = (invitation.c.uses > 0) & (invitation.c.expires > time.time())
    query = select(*_COLUMNS).where(invitation.c.federation == here.id, usable)
    return [Opened(*row) for row in connection.execute(query.order_by(invitation.c.id))]


def drop_invitation(connection: Connection, name: str, number: int, *, actor: str) -> None:
    """Take an invitation back. Members that enrolled with it stay.

    Args:
        connection: In a transaction that writes.
        name: The name of the federation at the hub.
        number: The id of the invitation.
        actor: Who does it.
    """
    here = lock_federation(connection, name)
    own = (invitation.c.federation == here.id) & (invitation.c.id == number)
    if not connection.execute(delete(invitation).where(own)).rowcount:
        raise Refused("not-found", f"there is no invitation {number} to {name!r}")
    subject = invitation_subject(number)
    record(connection, "revoked", actor=actor, federation=name, subject=subject)


def open_invitation(
    connection: Connection, secret: str, *, is_locked: bool = False
) -> tuple[FederationRow, Opened]:
    """Return what a secret invites to; `Refused` if it cannot be used. It is not used up by this.

    Args:
        connection: To the database.
        secret: The secret of the invitation.
        is_locked: Whether to lock the federation, in a transaction that writes.
    """
    by_secret = select(*_COLUMNS).where(invitation.c.secret == digest(secret))
    if (found := connection.execute(by_secret).first()) is None:
        raise Refused(
            "not-invited",
            "this hub does not know the invitation: check the address of the hub, and copy the "
            "invitation again, completely",
        )
    find = lock_federation if is_locked else find_federation
    here = find(connection, found.federation)
    if is_locked:  # it may have been used while this transaction waited for the lock
        found = connection.execute(by_secret).first()
    if found is None or not found.uses:
        text = "the invitation is used up: ask for a new one"
        raise Refused("not-invited", text, federation=here.name)
    if found.expires <= time.time():
        text = "the invitation has expired: ask for a new one"
        raise Refused("not-invited", text, federation=here.name)
    return here, Opened(*found)
