"""Members of a federation: how they enrol, change their token and key, and leave."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Row,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from fedbo.exchange.hub.proof import hashed
from fedbo.federation.federation import Federation
from fedbo.hub.names import check_member
from fedbo.hub.problems import Refused
from fedbo.hub.records import Enrolled, Member, Members, Unlisted
from fedbo.hub.store.credentials import new_token
from fedbo.hub.store.federations import open_invitation
from fedbo.hub.store.releases import record_lost
from fedbo.hub.store.schema import federation, invitation, member, message, session
from fedbo.hub.store.transaction import (
    Caller,
    FederationRow,
    check_still,
    find_federation,
    lock_federation,
    record,
    take_cursors,
)
from fedbo.message.signed import key_text, parse_key
from fedbo.outside import shortened

_COLUMNS = (
    member.c.id,
    member.c.name,
    member.c.key,
    member.c.token.is_(None).label("is_revoked"),
    member.c.is_suspended,
    member.c.joined,
    member.c.seen,
)


def enrol(connection: Connection, secret: str, name: str, key: bytes) -> Enrolled:
    """Make a new member of the federation that a secret invites to, which uses it up by one."""
    number, row = open_invitation(connection, secret, is_locked=True)
    check_member(name)
    _check_free(row.agreed, name)
    _check_key(connection, row, name, key)
    taken = select(member.c.id).where(member.c.federation == row.id, member.c.name == name)
    if connection.execute(taken).first():
        raise Refused(
            "name-taken",
            f"{row.name!r} has a member {name!r} already: take another name, or ask the operator "
            "to remove that member if it is yours",
        )
    token, now = new_token(), time.time()
    values = {"federation": row.id, "name": name, "key": key, "joined": now, "seen": now}
    connection.execute(insert(member).values(**values, token=hashed(token), is_suspended=False))
    used = update(invitation).where(invitation.c.id == number)
    connection.execute(used.values(uses=invitation.c.uses - 1))
    detail = {"invitation": number, "key": _shown(key)}
    record(connection, "joined", actor=name, federation=row.name, subject=name, detail=detail)
    return Enrolled(federation=row.name, member=name, token=token, file=row.file)


def members(
    connection: Connection,
    federation: str,
    *,
    search: str = "",
    offset: int = 0,
    most: int | None = None,
) -> Members:
    """Return the members of a federation by name, or those with some text in it."""
    row = find_federation(connection, federation)
    wanted = [member.c.federation == row.id]
    if search:
        wanted.append(member.c.name.icontains(search, autoescape=True))
    matching = connection.scalar(select(func.count()).select_from(member).where(*wanted))
    query = select(*_COLUMNS).where(*wanted).order_by(member.c.name)
    rows = [*connection.execute(query.offset(offset).limit(most)).mappings()]
    sums = _sums(connection, [each["id"] for each in rows])
    return Members(
        matching=matching or 0,
        rows=[
            Member(
                **dict(each) | {"key": _shown(each["key"])},
                **sums.get(each["id"], {}),
            )
            for each in rows
        ],
    )


def rotate(connection: Connection, caller: Caller) -> str:
    """Give a member a new token, which is returned. The old one is not valid any more."""
    row = _locked(connection, caller)
    token = new_token()
    change = update(member).where(member.c.id == caller.id)
    connection.execute(change.values(token=hashed(token)))
    connection.execute(delete(session).where(session.c.member == caller.id))
    record(connection, "rotated", actor=caller.name, federation=row.name, subject=caller.name)
    return token


def rekey(
    connection: Connection, caller: Caller, key: bytes, prove: Callable[[bytes], None]
) -> None:
    """Give a member another key. Messages signed with the old one are taken back.

    Args:
        connection: In a transaction that writes.
        caller: The member.
        key: Its new key.
        prove: Raises `Refused` unless both keys have signed the change with this nonce.
    """
    row = _locked(connection, caller)
    own = member.c.id == caller.id
    nonce = connection.execute(select(member.c.nonce).where(own)).scalar_one()
    if nonce is None:
        raise Refused("wrong-request", "a change of the key begins with POST of /member/key")
    prove(bytes(nonce))
    connection.execute(update(member).where(own).values(nonce=None))
    if key == caller.key:
        return
    _check_key(connection, row, caller.name, key)
    connection.execute(update(member).where(own).values(key=key))
    _take_back(connection, row, caller.id)
    whose = {"actor": caller.name, "subject": caller.name}
    record(connection, "rekeyed", federation=row.name, detail={"key": _shown(key)}, **whose)


def new_nonce(connection: Connection, caller: Caller) -> bytes:
    """Return a new nonce for a change of a member's key."""
    check_still(connection, caller)
    nonce = secrets.token_bytes(16)
    connection.execute(update(member).where(member.c.id == caller.id).values(nonce=nonce))
    return nonce


def leave(connection: Connection, caller: Caller) -> None:
    """Let a member leave: what the hub has of it is deleted, and its name is free.

    What is left are the counters of its messages, and withdrawals that it signed.
    """
    row = _locked(connection, caller)
    _clear(connection, row, caller.id)
    connection.execute(delete(member).where(member.c.id == caller.id))
    record(connection, "left", actor=caller.name, federation=row.name, subject=caller.name)


def remove(connection: Connection, federation: str, name: str, *, actor: str) -> None:
    """Remove a member: what the hub has of it is deleted, and its name is free."""
    row = lock_federation(connection, federation)
    own = find_member(connection, row, name)
    _clear(connection, row, own.id)
    connection.execute(delete(member).where(member.c.id == own.id))
    record(connection, "removed", actor=actor, federation=row.name, subject=name)


def revoke(
    connection: Connection,
    federation: str,
    name: str,
    *,
    actor: str,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Revoke a member's token and delete what the hub has of it. Its name stays taken."""
    row = lock_federation(connection, federation)
    own = find_member(connection, row, name)
    if own.is_revoked:
        return
    _clear(connection, row, own.id)
    connection.execute(update(member).where(member.c.id == own.id).values(token=None))
    record(connection, "revoked", actor=actor, federation=row.name, subject=name, detail=detail)


def update_federation(
    connection: Connection, name: str, agreed: Federation, *, actor: str
) -> list[Unlisted]:
    """Replace the file of a federation by one with another list of members.

    Members that a list does not have, or has with another key, are revoked and returned.
    """
    row = lock_federation(connection, name)
    if fault := row.agreed.fingerprint.mismatch(agreed.fingerprint):
        raise Refused(
            "wrong-federation",
            f"the file is of another federation than {name!r} ({fault}): only the list of members "
            "can be replaced; create a new federation for the rest",
        )
    if (file := agreed.to_toml()) != row.file:
        change = update(federation).where(federation.c.id == row.id)
        connection.execute(change.values(file=file))
        detail = {"members": len(agreed.members)}
        record(connection, "updated", actor=actor, federation=name, detail=detail)
    if not agreed.members:
        return []
    own = member.c.federation == row.id, member.c.token.is_not(None)
    query = select(member.c.name, member.c.key).where(*own).order_by(member.c.name)
    unlisted = []
    for each in connection.execute(query).all():
        listed = agreed.members.get(each.name)
        if listed is None or listed != each.key:
            keys = {"key": _shown(each.key), "listed": _shown(listed)}
            revoke(connection, name, each.name, actor=actor, detail=keys)
            unlisted.append(Unlisted(name=each.name, **keys))
    return unlisted


def admit(
    connection: Connection,
    federation: str,
    names: Sequence[str],
    releases: int | None = None,
    *,
    actor: str,
) -> int:
    """Let members take part again that are suspended since a restore.

    Args:
        federation: The name of the federation at the hub.
        names: The members.
        releases: If the federation makes private releases, the number of the last one that any
            member's ledger shows, 0 if none does. Those that the hub does not know are spent.
        actor: Who does it.

    Returns:
        How many releases were recorded that the hub did not know.
    """
    row = lock_federation(connection, federation)
    lost = record_lost(connection, row, releases)
    for name in names:
        own = find_member(connection, row, name)
        change = update(member).where(member.c.id == own.id)
        connection.execute(change.values(is_suspended=False))
        sent = select(message.c.id).where(message.c.member == own.id).order_by(message.c.cursor)
        _move(connection, row.id, list(connection.scalars(sent)))  # now others may hear it
        record(connection, "admitted", actor=actor, federation=federation, subject=name)
    if lost:
        detail = {"releases": releases, "lost": lost}
        record(connection, "admitted", actor=actor, federation=federation, detail=detail)
    return lost


def find_member(connection: Connection, row: FederationRow, name: str) -> Row[Any]:
    """Return a member by its name; `Refused` if there is none."""
    query = select(*_COLUMNS).where(member.c.federation == row.id, member.c.name == name)
    if (own := connection.execute(query).first()) is None:
        raise Refused("not-found", f"{row.name!r} has no member {shortened(name)!r}")
    return own


def _locked(connection: Connection, caller: Caller) -> FederationRow:
    """Lock the federation of a member that may act."""
    row = lock_federation(connection, caller.federation)
    check_still(connection, caller)
    return row


def _shown(key: bytes | None) -> str:
    """Return a public key as people see it; empty if there is none."""
    return key_text(bytes(key)) if key else ""


def _sums(connection: Connection, ids: list[int]) -> dict[int, dict[str, Any]]:
    """Sum up what is kept of each of these members."""
    agents = (
        select(
            message.c.member,
            func.count().label("messages"),
            func.sum(func.length(message.c.content)).label("bytes"),
            func.max(message.c.t_n).label("trials"),
        )
        .where(message.c.member.in_(ids), message.c.is_out)
        .group_by(message.c.member, message.c.sender)
        .subquery()
    )
    totals = [
        cast(func.sum(agents.c[name]), BigInteger).label(name)  # PostgreSQL's sums are decimal
        for name in ("messages", "bytes", "trials")
    ]
    query = select(agents.c.member, func.count().label("agents"), *totals)
    rows = connection.execute(query.group_by(agents.c.member)).mappings()
    return {columns.pop("member"): columns for columns in map(dict, rows)}


def _check_free(agreed: Federation, name: str) -> None:
    if agreed.privacy is not None and name == agreed.privacy.by:
        raise Refused(
            "name-taken",
            f"{name!r} is the name under which this hub publishes private releases: take another "
            "name",
        )


def _check_key(connection: Connection, row: FederationRow, name: str, key: bytes) -> None:
    """Check, in a federation that is locked, that a name may have a key that is new to it."""
    try:
        parse_key(key_text(key))
    except ValueError as error:
        raise Refused("wrong-key", str(error)) from None
    taken = select(member.c.name).where(member.c.federation == row.id, member.c.key == key)
    if connection.execute(taken).first():
        raise Refused(
            "key-taken",
            f"a member of {row.name!r} has the key {key_text(key)} already, and each member "
            "needs a key of its own: go on as that member, or use another key",
        )
    if not (members := row.agreed.members):
        return
    if (listed := members.get(name)) is None:
        raise Refused(
            "wrong-name",
            f"the federation file lists its members, and {name!r} is not among them: ask the "
            "operator to add your name and key",
        )
    if key != listed:
        raise Refused(
            "wrong-key",
            f"the federation file lists {name!r} with the key {key_text(listed)}, and you come "
            f"with the key {key_text(key)}: use the listed key, or ask the operator to change the "
            "list",
        )


def _clear(connection: Connection, row: FederationRow, member_id: int) -> None:
    """Delete everything that the hub has of a member, except for its own row."""
    _take_back(connection, row, member_id)
    traces = update(message).where(message.c.member == member_id)
    connection.execute(traces.values(member=None, changed=time.time()))
    connection.execute(delete(session).where(session.c.member == member_id))


def _take_back(connection: Connection, row: FederationRow, member_id: int) -> None:
    """Take all messages of a member back.

    Empty rows remain: they tell the others, and their sequences keep signed messages from being
    put back. What the member itself has withdrawn stays withdrawn by its signature.
    """
    own = select(message.c.id).where(message.c.member == member_id, message.c.is_out)
    take_back_messages(connection, row.id, list(connection.scalars(own.order_by(message.c.id))))


def take_back_messages(connection: Connection, federation_id: int, ids: list[int]) -> None:
    """Take messages of a federation back, which is locked; their rows become empty."""
    gone: dict[str, Any] = {"is_out": False, "content": b"", "t_n": 0, "changed": time.time()}
    _move(connection, federation_id, ids, **gone)


def _move(connection: Connection, federation_id: int, ids: list[int], **values: Any) -> None:
    """Give messages new cursors, so that others hear of them, and new values."""
    if not ids:
        return
    change = update(message).where(message.c.id == bindparam("row"))
    cursors = take_cursors(connection, federation_id, len(ids))
    rows = [{"row": row, "new": cursor} for row, cursor in zip(ids, cursors, strict=True)]
    connection.execute(change.values(**values, cursor=bindparam("new")), rows)
