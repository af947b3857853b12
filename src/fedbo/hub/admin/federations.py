"""Federations at a hub, and their epochs."""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from fedbo.exchange.hub.memberships import check_name
from fedbo.federation import Federation, FederationMismatch, Scalars
from fedbo.hub.admin.audit import record
from fedbo.hub.problems import Refused
from fedbo.hub.schema import epoch, federation, hub, member, message, scalars
from fedbo.message import Fingerprint, MessageRefused

_COLUMNS = (
    federation.c.id,
    federation.c.name,
    federation.c.epoch,
    federation.c.cursor,
    federation.c.floor,
    federation.c.created,
    federation.c.is_private,
    federation.c.is_unreconciled,
)


class FederationRow(NamedTuple):
    """A federation, as its table has it."""

    id: int
    name: str
    epoch: int
    cursor: int
    floor: int
    created: float
    is_private: bool
    is_unreconciled: bool


class Epoch(NamedTuple):
    """An epoch of a federation, with its federation file."""

    number: int
    fingerprint: Fingerprint
    file: str
    created: float


class Overview(NamedTuple):
    """What a list of federations shows of each."""

    id: int
    name: str
    epoch: int
    fingerprint: Fingerprint
    members: int  # that are not revoked
    messages: int  # that are out
    created: float


def create_federation(
    connection: Connection, name: str, agreed: Federation, *, actor: str
) -> FederationRow:
    """Create a federation at this hub.

    Args:
        connection: In a transaction that writes.
        name: Its name at the hub.
        agreed: What its agents agree on.
        actor: Who creates it.
    """
    try:
        check_name(name)
    except ValueError as error:
        raise Refused("wrong-name", str(error)) from None
    connection.execute(select(hub.c.id).with_for_update())  # one at a time
    if connection.execute(select(federation.c.id).where(federation.c.name == name)).first():
        raise Refused("name-taken", f"this hub has a federation {name!r} already")
    if agreed.privacy is not None and (other := _with_plan(connection, agreed)):
        raise Refused(
            "wrong-federation",
            f"{other!r} at this hub has the same file, and with it the same privacy plan: members "
            "could not tell the releases of the two apart. Use that one, or change the seed of the "
            "features",
        )
    now = time.time()
    row = insert(federation).values(
        name=name,
        epoch=agreed.epoch,
        cursor=0,
        floor=0,
        created=now,
        is_private=agreed.privacy is not None,
        is_unreconciled=False,
    )
    made = FederationRow(*connection.execute(row.returning(*_COLUMNS)).one())
    _add(connection, made.id, agreed, now)
    detail = {"epoch": agreed.epoch, "fingerprint": str(agreed.fingerprint)}
    record(connection, "created", actor=actor, federation=name, detail=detail, when=now)
    return made


def find_federation(connection: Connection, name_or_id: str | int) -> FederationRow:
    """Return a federation; `Refused` if there is none.

    Args:
        connection: To the database.
        name_or_id: Its name at the hub, or its id.
    """
    return _found(connection, name_or_id, is_locked=False)


def lock_federation(connection: Connection, name_or_id: str | int) -> FederationRow:
    """Return a federation, and keep others from changing it until the transaction ends.

    Args:
        connection: In a transaction that writes.
        name_or_id: Its name at the hub, or its id.
    """
    return _found(connection, name_or_id, is_locked=True)


def take_cursors(connection: Connection, federation_id: int, count: int = 1) -> range:
    """Return the next cursors of a federation, which no other change gets.

    Args:
        connection: In a transaction that writes.
        federation_id: The federation, which is locked by this.
        count: How many changes there are.
    """
    taken = update(federation).where(federation.c.id == federation_id)
    taken = taken.values(cursor=federation.c.cursor + count)
    last: int = connection.execute(taken.returning(federation.c.cursor)).scalar_one()
    return range(last - count + 1, last + 1)


def epoch_file(connection: Connection, federation_id: int, number: int) -> Epoch:
    """Return an epoch of a federation; `Refused` if it has no such epoch.

    Args:
        connection: To the database.
        federation_id: The federation.
        number: The epoch.
    """
    columns = (epoch.c.number, epoch.c.fingerprint, epoch.c.file, epoch.c.created)
    query = select(*columns).where(epoch.c.federation == federation_id, epoch.c.number == number)
    if (found := connection.execute(query).first()) is None:
        raise Refused("wrong-epoch", f"the federation has no epoch {number} here")
    return Epoch(found.number, Fingerprint(found.fingerprint), found.file, found.created)


def federations(connection: Connection) -> list[Overview]:
    """Return all federations by name.

    Args:
        connection: To the database.
    """
    here = federation.c.id
    enrolled = select(func.count()).where(member.c.federation == here, member.c.token.is_not(None))
    out = select(func.count()).where(message.c.federation == here, message.c.is_out)
    columns = (
        here,
        federation.c.name,
        federation.c.epoch,
        epoch.c.fingerprint,
        enrolled.scalar_subquery(),
        out.scalar_subquery(),
        federation.c.created,
    )
    current = (epoch.c.federation == here) & (epoch.c.number == federation.c.epoch)
    query = select(*columns).join(epoch, current).order_by(federation.c.name)
    found = (Overview(*row) for row in connection.execute(query))
    return [one._replace(fingerprint=Fingerprint(one.fingerprint)) for one in found]


def add_epoch(connection: Connection, name: str, agreed: Federation, *, actor: str) -> Federation:
    """Start a later epoch of a federation, or change the list of members of the current one.

    Args:
        connection: In a transaction that writes.
        name: The name of the federation at the hub.
        agreed: The same federation in a later epoch, or in the current one with other members.
        actor: Who does it.

    Returns:
        The federation as it was before.
    """
    here = lock_federation(connection, name)
    current = Federation.from_toml(epoch_file(connection, here.id, here.epoch).file)
    if agreed.epoch < current.epoch:
        raise Refused(
            "wrong-federation",
            f"the federation file is of epoch {agreed.epoch}, and {name!r} is in epoch "
            f"{current.epoch} here: give a later one",
        )
    try:
        current.require_later(agreed)
    except FederationMismatch as error:
        raise Refused(
            "wrong-federation",
            f"{error} (here: the file at the hub). In a later epoch only the length scale, the "
            "noise variance and the members may differ; create a new federation for the rest",
        ) from None
    if agreed == current and agreed.members == current.members:
        return current
    now = time.time()
    if agreed.epoch > current.epoch:
        _add(connection, here.id, agreed, now)
    else:
        same = (epoch.c.federation == here.id) & (epoch.c.number == agreed.epoch)
        connection.execute(update(epoch).where(same).values(file=agreed.to_toml()))
    (cursor,) = take_cursors(connection, here.id)
    change = update(federation).where(federation.c.id == here.id)
    connection.execute(change.values(epoch=agreed.epoch, cursor=cursor))
    detail = {
        "epoch": agreed.epoch,
        "fingerprint": str(agreed.fingerprint),
        "members": len(agreed.members),
    }
    record(connection, "epoch", actor=actor, federation=name, detail=detail, when=now)
    return current


def agree(connection: Connection, name: str, *, actor: str) -> Federation | None:
    """Start a new epoch with scalars that suit the members, as `Federation.agree` finds them.

    Each member counts once, with the scalars that its agents fitted to the most observations, so
    that nobody gets more say by running more agents.

    Args:
        connection: In a transaction that writes.
        name: The name of the federation at the hub.
        actor: Who does it.

    Returns:
        The new federation; None if no new epoch is worth it, or fewer than three members shared.
    """
    here = lock_federation(connection, name)
    if here.is_private:
        raise Refused(
            "private-federation",
            f"members of {name!r} share no scalars, because they are fitted to trials and its "
            "privacy plan does not cover them: start an epoch with a federation file instead",
        )
    current = Federation.from_toml(epoch_file(connection, here.id, here.epoch).file)
    own = (scalars.c.federation == here.id) & (scalars.c.epoch == here.epoch)
    by_member: dict[int, list[Scalars]] = {}
    for row in connection.execute(select(scalars.c.member, scalars.c.content).where(own)):
        try:
            shared = Scalars.decode(row.content)
            shared.check(current.fingerprint, current.space.dimensions)
        except MessageRefused:
            continue
        by_member.setdefault(row.member, []).append(shared)
    given = [max(each, key=lambda one: (one.t_n, one.encode())) for each in by_member.values()]
    agreed = current.agree(given)
    if agreed is current:
        return None
    add_epoch(connection, name, agreed, actor=actor)
    return agreed


def _with_plan(connection: Connection, agreed: Federation) -> str | None:
    """Return the name of a federation with the same plan, in any epoch; None if there is none."""
    both = federation.join(epoch, epoch.c.federation == federation.c.id)
    query = select(federation.c.name, epoch.c.fingerprint).select_from(both)
    for name, found in connection.execute(query.where(federation.c.is_private)):
        if Fingerprint(found).lasting == agreed.fingerprint.lasting:
            return str(name)
    return None


def _add(connection: Connection, federation_id: int, agreed: Federation, now: float) -> None:
    row = {
        "federation": federation_id,
        "number": agreed.epoch,
        "fingerprint": bytes(agreed.fingerprint),
        "file": agreed.to_toml(),
        "created": now,
    }
    connection.execute(insert(epoch).values(row))


def _found(connection: Connection, name_or_id: str | int, *, is_locked: bool) -> FederationRow:
    column = federation.c.name if isinstance(name_or_id, str) else federation.c.id
    query = select(*_COLUMNS).where(column == name_or_id)
    found = connection.execute(query.with_for_update() if is_locked else query).first()
    if found is None:
        raise Refused("no-such-federation", f"this hub has no federation {name_or_id!r}")
    return FederationRow(*found)
