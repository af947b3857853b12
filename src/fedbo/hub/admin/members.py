"""Members of a federation: how they enrol, change their token and key, and leave."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from fedbo.federation import Federation
from fedbo.hub.admin.audit import record
from fedbo.hub.admin.federations import (
    FederationRow,
    epoch_file,
    find_federation,
    lock_federation,
    take_cursors,
)
from fedbo.hub.admin.invitations import open_invitation
from fedbo.hub.admin.names import check_person
from fedbo.hub.problems import Refused
from fedbo.hub.schema import invitation, member, message, progress, scalars, session
from fedbo.hub.tokens import digest, new_token
from fedbo.message.signed import key_text, parse_key
from fedbo.outside import shortened


class MemberRow(NamedTuple):
    """A member, as its table has it, without its token."""

    id: int
    federation: int
    name: str
    key: bytes | None
    joined: float
    seen: float
    is_revoked: bool


class Enrolled(NamedTuple):
    """A new member, the only time that its token is known."""

    federation: FederationRow
    member: MemberRow
    token: str
    file: str  # the federation file of the current epoch


class MemberInfo(NamedTuple):
    """A member and what the hub has of it."""

    id: int
    name: str
    key: bytes | None
    joined: float
    seen: float
    is_revoked: bool
    agents: int  # with a message that is out
    messages: int  # that are out, in all epochs
    bytes: int  # of these messages
    trials: int  # behind these messages; of each agent the most in any epoch


_COLUMNS = (
    member.c.id,
    member.c.federation,
    member.c.name,
    member.c.key,
    member.c.joined,
    member.c.seen,
    member.c.token.is_(None).label("is_revoked"),
)


def enrol(connection: Connection, secret: str, name: str, key: bytes | None = None) -> Enrolled:
    """Make a new member of the federation that a secret invites to.

    Args:
        connection: In a transaction that writes.
        secret: The secret of an invitation, which is used up by one.
        name: The name of the member.
        key: The public key that will sign its messages; None: they will not be signed.
    """
    here, opened = open_invitation(connection, secret, is_locked=True)
    check_person(name)
    file = epoch_file(connection, here.id, here.epoch).file
    _check_free(file, name)
    _check_key(file, name, key)
    taken = select(member.c.id).where(member.c.federation == here.id, member.c.name == name)
    if connection.execute(taken).first():
        raise Refused(
            "name-taken",
            f"{here.name!r} has a member {name!r} already: take another name, or ask the operator "
            "to remove that member if it is yours",
        )
    token, now = new_token("member"), time.time()
    row = {"federation": here.id, "name": name, "key": key, "joined": now, "seen": now}
    new = insert(member).values(**row, token=digest(token)).returning(*_COLUMNS)
    made = MemberRow(*connection.execute(new).one())
    used = update(invitation).where(invitation.c.id == opened.id)
    connection.execute(used.values(uses=invitation.c.uses - 1))
    detail = {"invitation": opened.id, "key": key_text(key) if key else ""}
    record(
        connection,
        "joined",
        actor=name,
        federation=here.name,
        subject=name,
        detail=detail,
        when=now,
    )
    return Enrolled(here, made, token, file)


def find_member(connection: Connection, federation: str, name: str) -> MemberRow:
    """Return a member by its name; `Refused` if there is none.

    Args:
        connection: To the database.
        federation: The name of the federation at the hub.
        name: The name of the member.
    """
    return _named(connection, find_federation(connection, federation), name)


def members(
    connection: Connection, federation: str, *, after: int = 0, most: int | None = None
) -> list[MemberInfo]:
    """Return the members of a federation, in the order in which they joined.

    Args:
        connection: To the database.
        federation: The name of the federation at the hub.
        after: Only members with a larger id.
        most: At most so many; all by default.
    """
    here = find_federation(connection, federation)
    query = select(*_COLUMNS).where(member.c.federation == here.id, member.c.id > after)
    page = query.order_by(member.c.id).limit(most).subquery()
    agents = (
        select(
            message.c.member,
            message.c.sender,
            func.count().label("messages"),
            func.sum(func.length(message.c.content)).label("bytes"),
            func.max(message.c.t_n).label("trials"),
        )
        .where(message.c.member.in_(select(page.c.id)), message.c.is_out)
        .group_by(message.c.member, message.c.sender)
        .subquery()
    )
    shown = (page.c.id, page.c.name, page.c.key, page.c.joined, page.c.seen, page.c.is_revoked)
    sums = [
        func.count(agents.c.sender),
        *(_total(agents.c[name]) for name in ("messages", "bytes", "trials")),
    ]
    joined = page.outerjoin(agents, agents.c.member == page.c.id)
    found = select(*shown, *sums).select_from(joined).group_by(*shown).order_by(page.c.id)
    return [MemberInfo(*row) for row in connection.execute(found)]


def rotate(connection: Connection, member_id: int) -> str:
    """Give a member a new token. The old one is no longer valid, nor are its sessions.

    Args:
        connection: In a transaction that writes.
        member_id: The member.

    Returns:
        The new token.
    """
    here, own = _locked(connection, member_id)
    token = new_token("member")
    change = update(member).where(member.c.id == own.id)
    connection.execute(change.values(token=digest(token)))
    connection.execute(delete(session).where(session.c.member == own.id))
    record(connection, "rotated", actor=own.name, federation=here.name, subject=own.name)
    return token


def rekey(connection: Connection, member_id: int, key: bytes | None) -> None:
    """Give a member another key. Messages signed with the old one are taken back.

    Args:
        connection: In a transaction that writes.
        member_id: The member.
        key: The new public key; None: its messages will not be signed.
    """
    here, own = _locked(connection, member_id)
    if key == own.key:
        return
    _check_key(epoch_file(connection, here.id, here.epoch).file, own.name, key)
    connection.execute(update(member).where(member.c.id == own.id).values(key=key))
    _take_back(connection, own)
    detail = {"key": key_text(key) if key else ""}
    record(
        connection,
        "rekeyed",
        actor=own.name,
        federation=here.name,
        subject=own.name,
        detail=detail,
    )


def leave(connection: Connection, member_id: int) -> None:
    """Let a member leave: what the hub has of it is deleted, and its name is free.

    What is left for a while are the counters of its messages, and withdrawals that it signed.

    Args:
        connection: In a transaction that writes.
        member_id: The member.
    """
    here, own = _locked(connection, member_id)
    _clear(connection, own)
    connection.execute(delete(member).where(member.c.id == own.id))
    record(connection, "left", actor=own.name, federation=here.name, subject=own.name)


def remove(connection: Connection, federation: str, name: str, *, actor: str) -> None:
    """Remove a member: what the hub has of it is deleted, and its name is free.

    Args:
        connection: In a transaction that writes.
        federation: The name of the federation at the hub.
        name: The name of the member, who may be revoked already.
        actor: Who does it.
    """
    here = lock_federation(connection, federation)
    found = _named(connection, here, name)
    _clear(connection, found)
    connection.execute(delete(member).where(member.c.id == found.id))
    record(connection, "removed", actor=actor, federation=here.name, subject=name)


def revoke(connection: Connection, federation: str, name: str, *, actor: str) -> None:
    """Revoke a member's token and delete what the hub has of it. Its name stays taken.

    Args:
        connection: In a transaction that writes.
        federation: The name of the federation at the hub.
        name: The name of the member.
        actor: Who does it.
    """
    here = lock_federation(connection, federation)
    found = _named(connection, here, name)
    if found.is_revoked:
        return
    _clear(connection, found)
    connection.execute(update(member).where(member.c.id == found.id).values(token=None))
    record(connection, "revoked", actor=actor, federation=here.name, subject=name)


def _total(column: ColumnElement[int]) -> ColumnElement[int]:
    return cast(func.coalesce(func.sum(column), 0), BigInteger)  # PostgreSQL's sums are decimal


def _locked(connection: Connection, member_id: int) -> tuple[FederationRow, MemberRow]:
    """Return a member that may act, and its federation, which is locked."""
    by_id = select(*_COLUMNS).where(member.c.id == member_id)
    found = connection.execute(by_id).first()
    if found is not None:
        here = lock_federation(connection, found.federation)
        found = connection.execute(by_id).first()  # it may have left meanwhile
    if found is None or found.is_revoked:
        raise Refused("wrong-token", "the member has left, or was removed or revoked")
    return here, MemberRow(*found)


def _named(connection: Connection, here: FederationRow, name: str) -> MemberRow:
    query = select(*_COLUMNS).where(member.c.federation == here.id, member.c.name == name)
    if (found := connection.execute(query).first()) is None:
        raise Refused("not-found", f"{here.name!r} has no member {shortened(name)!r}")
    return MemberRow(*found)


@lru_cache(maxsize=16)
def _read(file: str) -> Federation:
    """Read a federation file; a long list of members takes long."""
    return Federation.from_toml(file)


def _check_free(file: str, name: str) -> None:
    plan = _read(file).privacy
    if plan is not None and name == plan.by:
        raise Refused(
            "name-taken",
            f"{name!r} is the name under which this hub publishes private releases: take another "
            "name",
        )


def _check_key(file: str, name: str, key: bytes | None) -> None:
    if key is not None:
        try:
            parse_key(key_text(key))
        except ValueError as error:
            raise Refused("wrong-key", str(error)) from None
    if not (members := _read(file).members):
        return
    if (listed := members.get(name)) is None:
        raise Refused(
            "wrong-name",
            f"the federation file lists its members, and {name!r} is not among them: ask the "
            "operator to add your name and key",
        )
    if key != listed:
        given = "without a key" if key is None else f"with the key {key_text(key)}"
        raise Refused(
            "wrong-key",
            f"the federation file lists {name!r} with the key {key_text(listed)}, and you come "
            f"{given}: use the listed key, or ask the operator to change the list",
        )


def _clear(connection: Connection, own: MemberRow) -> None:
    """Delete everything that the hub has of a member, except for its own row."""
    _take_back(connection, own)
    traces = update(message).where(message.c.member == own.id)
    connection.execute(traces.values(member=None, changed=time.time()))
    for table in (scalars, progress, session):
        connection.execute(delete(table).where(table.c.member == own.id))


def _take_back(connection: Connection, own: MemberRow) -> None:
    """Take all messages of a member back.

    Empty rows remain for a while: they tell the others, and their sequences keep signed messages
    from being put back. What the member itself has withdrawn stays withdrawn by its signature.
    """
    mine = select(message.c.id).where(message.c.member == own.id, message.c.is_out)
    rows = connection.scalars(mine.order_by(message.c.id)).all()
    if not rows:
        return
    cursors, now = take_cursors(connection, own.federation, len(rows)), time.time()
    gone = update(message).where(message.c.id == bindparam("row"))
    gone = gone.values(is_out=False, content=b"", t_n=0, changed=now, cursor=bindparam("new"))
    pairs = zip(rows, cursors, strict=True)
    connection.execute(gone, [{"row": row, "new": cursor} for row, cursor in pairs])
