"""Federations at a hub, and invitations to them."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select

from fedbo.exchange.hub.memberships import Invitation, check_name
from fedbo.exchange.hub.proof import hashed
from fedbo.federation.federation import Federation
from fedbo.hub.problems import Refused
from fedbo.hub.records import FederationInfo, NewInvitation, OpenInvitation
from fedbo.hub.settings import INVITED_DAYS
from fedbo.hub.store.credentials import new_secret
from fedbo.hub.store.schema import (
    federation,
    hub,
    invitation,
    member,
    message,
    release,
    session,
)
from fedbo.hub.store.transaction import (
    FederationRow,
    find_federation,
    lock_federation,
    record,
)
from fedbo.message import Fingerprint

MOST_USES, MOST_DAYS = 100_000, 3650
_DAY = 86400.0


def create_federation(connection: Connection, name: str, agreed: Federation, *, actor: str) -> None:
    """Create a federation under a name at this hub."""
    try:
        check_name(name)
    except ValueError as error:
        raise Refused("wrong-name", str(error)) from None
    connection.execute(select(hub.c.id).with_for_update())  # one at a time
    if connection.execute(select(federation.c.id).where(federation.c.name == name)).first():
        raise Refused("name-taken", f"this hub has a federation {name!r} already")
    fingerprint = bytes(agreed.fingerprint)
    twin = select(federation.c.name).where(federation.c.fingerprint == fingerprint)
    if agreed.privacy is not None and (other := connection.scalar(twin)):
        raise Refused(
            "wrong-federation",
            f"{other!r} at this hub has the same file, and with it the same privacy plan: members "
            "could not tell the releases of the two apart. Use that one, or change the seed of the "
            "features",
        )
    row = {
        "name": name,
        "fingerprint": fingerprint,
        "file": agreed.to_toml(),
        "cursor": 0,
        "created": time.time(),
        "is_private": agreed.privacy is not None,
        "is_restored": False,
    }
    connection.execute(insert(federation).values(row))
    detail = {"fingerprint": str(agreed.fingerprint)}
    record(connection, "created", actor=actor, federation=name, detail=detail)


def delete_federation(connection: Connection, name: str, *, actor: str) -> None:
    """Delete a federation and all that the hub has of it, but not its lines in the audit log."""
    row = lock_federation(connection, name)
    members = select(member.c.id).where(member.c.federation == row.id)
    connection.execute(delete(session).where(session.c.member.in_(members)))
    for table in (message, member, invitation, release):
        connection.execute(delete(table).where(table.c.federation == row.id))
    connection.execute(delete(federation).where(federation.c.id == row.id))
    record(connection, "deleted", actor=actor, federation=name)


def federations(connection: Connection, name: str | None = None) -> list[FederationInfo]:
    """Return all federations by name, or the one of this name."""
    own = federation.c.id
    members = select(func.count()).where(member.c.federation == own, member.c.token.is_not(None))
    messages = select(func.count()).where(message.c.federation == own, message.c.is_out)
    query = select(
        federation.c.name,
        federation.c.fingerprint,
        members.scalar_subquery().label("members"),
        messages.scalar_subquery().label("messages"),
        federation.c.created,
    ).order_by(federation.c.name)
    if name is not None:
        query = query.where(federation.c.name == name)
    return [
        FederationInfo(**row | {"fingerprint": str(Fingerprint(row["fingerprint"]))})
        for row in map(dict, connection.execute(query).mappings())
    ]


class Opened(NamedTuple):
    """An invitation that can be used, and the federation that it is for."""

    id: int
    federation: FederationRow


def invite(
    connection: Connection, name: str, *, uses: int = 10, days: float = INVITED_DAYS, actor: str
) -> NewInvitation:
    """Make an invitation to a federation, for so many members and days."""
    if not 1 <= uses <= MOST_USES:
        raise Refused("wrong-request", f"uses is {uses}, expected 1 to {MOST_USES:,}")
    if not (math.isfinite(days) and 0 < days <= MOST_DAYS):
        raise Refused("wrong-request", f"days is {days}, expected above 0 to {MOST_DAYS:,}")
    row = lock_federation(connection, name)
    made, now = Invitation(name, Fingerprint(row.fingerprint), new_secret()), time.time()
    values: dict[str, Any] = {
        "federation": row.id,
        "secret": hashed(made.secret),
        "uses": uses,
        "expires": now + days * _DAY,
        "created": now,
    }
    new = insert(invitation).values(values).returning(invitation.c.id)
    number = connection.execute(new).scalar_one()
    detail = {"id": number, "uses": uses, "days": days}
    record(connection, "invited", actor=actor, federation=name, detail=detail)
    return NewInvitation(**values | {"id": number, "invitation": str(made)})


def invitations(connection: Connection, name: str) -> list[OpenInvitation]:
    """Return the invitations to a federation that can still be used, without their secrets."""
    row = find_federation(connection, name)
    columns = [invitation.c[name] for name in OpenInvitation.model_fields]
    usable = invitation.c.uses > 0, invitation.c.expires > time.time()
    query = select(*columns).where(invitation.c.federation == row.id, *usable)
    rows = connection.execute(query.order_by(invitation.c.id)).mappings()
    return [OpenInvitation(**each) for each in rows]


def drop_invitation(connection: Connection, name: str, number: int, *, actor: str) -> None:
    """Take an invitation back. Members that enrolled with it stay."""
    row = lock_federation(connection, name)
    own = (invitation.c.federation == row.id) & (invitation.c.id == number)
    if not connection.execute(delete(invitation).where(own)).rowcount:
        raise Refused("not-found", f"there is no invitation {number} to {name!r}")
    record(connection, "cancelled", actor=actor, federation=name, detail={"id": number})


def open_invitation(connection: Connection, secret: str, *, is_locked: bool = False) -> Opened:
    """Return what a secret invites to, and lock the federation if that is said.

    It is not used up by this; `Refused` if it cannot be used.
    """
    by_secret = select(invitation).where(invitation.c.secret == hashed(secret))
    if (found := connection.execute(by_secret).first()) is None:
        raise Refused(
            "not-invited",
            "this hub does not know the invitation: check the address of the hub, and copy the "
            "invitation again, completely",
        )
    find = lock_federation if is_locked else find_federation
    row = find(connection, found.federation)
    if is_locked:  # it may have been used while this transaction waited for the lock
        found = connection.execute(by_secret).first()
    if found is None or not found.uses:
        raise Refused("not-invited", "the invitation is used up: ask for a new one")
    if found.expires <= time.time():
        raise Refused("not-invited", "the invitation has expired: ask for a new one")
    return Opened(found.id, row)
