"""Messages: which one of each agent is kept, and which ones are handed out.

There is one row for each federation, sender and key, and `fedbo.exchange.latest.latest` decides
what counts of it and of what comes. A row is empty if its message was deleted: its member has left,
or has another key. Its sequence stays, so that what was there cannot be put back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, exists, func, insert, select, update

from fedbo.exchange.hub.wire import ANSWER_BYTES, Handed, Listed, News
from fedbo.exchange.latest import latest
from fedbo.hub.problems import Refused
from fedbo.hub.store.schema import hub, member, message, release
from fedbo.hub.store.transaction import (
    Caller,
    FederationRow,
    check_still,
    find_federation,
    lock_federation,
    note_seen,
    record,
    take_cursors,
)
from fedbo.message import MOST_PEERS, Message, Withdrawal, read
from fedbo.message.signed import MOST_AGENTS

#: How many names the agents of one member may have had, withdrawn messages included. A name counts
#: once for each key, because each has a row of its own.
MOST_NAMES = 256
_RELEASE = 1  # the number of the latest release, which takes the place of the one before
_CURSOR = re.compile(r"([0-9a-f]+)\.([0-9]{1,18})")


def publish(
    connection: Connection, caller: Caller, signed: Message | Withdrawal, content: bytes
) -> bool:
    """Put a message or a signed withdrawal in its place.

    It was checked that it fits the federation, and that the caller is the sender.

    Returns:
        Whether exactly this is now what counts of its agent.
    """
    place = lock_federation(connection, caller.federation)
    check_still(connection, caller)
    own = and_(
        message.c.federation == place.id,
        message.c.sender == signed.sender,
        message.c.key == signed.key,
    )
    columns = message.c.id, message.c.sequence, message.c.is_out, message.c.content
    row = connection.execute(select(*columns).where(own)).first()
    was_out = row is not None and row.is_out
    if row is not None and row.content:
        before = read(bytes(row.content))
        (counting,) = latest([before, signed]).values()
        if counting == before:
            return before == signed
    elif row is not None and signed.sequence <= row.sequence:
        return False
    if not was_out:
        _check_agents(connection, caller, signed, len(content))
    (cursor,) = take_cursors(connection, place.id)
    values = {
        "member": caller.id,
        "sequence": signed.sequence,
        "t_n": signed.t_n if isinstance(signed, Message) else 0,
        "is_out": isinstance(signed, Message),
        "content": content,
        "cursor": cursor,
        "changed": time.time(),
    }
    if row is None:
        origin = {"federation": place.id, "sender": signed.sender, "key": signed.key}
        connection.execute(insert(message).values(**origin, **values))
    else:
        connection.execute(update(message).where(message.c.id == row.id).values(values))
    note_seen(connection, caller)
    record(
        connection,
        "published" if isinstance(signed, Message) else "withdrew",
        actor=caller.name,
        federation=place.name,
        subject=signed.sender,
        detail={"sequence": signed.sequence, "bytes": len(content)},
    )
    return True


def fetch(connection: Connection, federation_id: int, cursor: str) -> News:
    """Return what has changed in a federation since the cursor that the last answer gave.

    If the cursor means nothing here, everything is handed out. `fedbo.hub.mailbox.fetch` says what
    that is.
    """
    place = find_federation(connection, federation_id)
    generation = connection.scalar(select(hub.c.generation))
    known = _CURSOR.fullmatch(cursor)
    since = int(known[2]) if known and known[1] == generation else -1
    is_known = 0 <= since <= place.cursor
    head = f"{generation}.{place.cursor}"
    if place.is_private:
        released = connection.execute(_released(place, since if is_known else -1))
        handed = tuple(Handed(_RELEASE, bytes(row.content)) for row in released)
        return News(head, not is_known, handed, ())
    most = _most(place)
    if is_known:
        rows = _changed_since(connection, place, since, 2 * most + 1)
        if len(rows) <= 2 * most:
            early = {row.id for row in [row for row in rows if row.is_out][:-most]}
            news = [row for row in rows if row.content and row.id not in early]
            gone = tuple(row.id for row in rows if not row.content)
            return News(head, False, _handed(news), gone)
    return News(head, True, _latest(connection, place, most), ())


def listed(connection: Connection, caller: Caller, sender: str | None = None) -> tuple[Listed, ...]:
    """Return messages that are handed out, and when each was published.

    With a sender, these are those of this agent of the caller; else as `fedbo.hub.mailbox.messages`
    says.
    """
    place = find_federation(connection, caller.federation)
    is_own = message.c.member == caller.id
    query = select(message.c.changed, message.c.content).where(*_heard(place), message.c.is_out)
    if sender is not None:
        query = query.where(is_own, message.c.sender == sender)
    elif place.is_private:
        query = query.where(is_own)
    order = func.coalesce(is_own, False).desc(), message.c.cursor.desc()
    rows = [*connection.execute(query.order_by(*order).limit(_most(place)))]
    if place.is_private and sender is None:
        rows += connection.execute(_released(place, -1, release.c.time))
    return tuple(Listed(when, bytes(content)) for when, content in rows)


def _check_agents(
    connection: Connection, caller: Caller, signed: Message | Withdrawal, size: int
) -> None:
    """Check that a member does not get too many agents."""
    query = select(message.c.sender, message.c.key, message.c.is_out)
    agents = {
        (sender, bytes(key)): is_out
        for sender, key, is_out in connection.execute(query.where(message.c.member == caller.id))
    }
    agent = signed.sender, signed.key
    others = sum(is_out for other, is_out in agents.items() if other != agent)
    most = min(MOST_AGENTS, max(1, ANSWER_BYTES // max(1, size)))
    if isinstance(signed, Message) and others >= most:
        raise Refused(
            "too-many-agents",
            f"{caller.name!r} has {others} agents with a message here, expected at most {most} "
            f"with messages of {size:,} bytes: withdraw one, or publish under one of their names",
        )
    if agent not in agents and len(agents) >= MOST_NAMES:
        raise Refused(
            "too-many-agents",
            f"the agents of {caller.name!r} have had {MOST_NAMES} names here (a name counts again "
            "under each new key), and cannot have more: publish under one of these names with its "
            "key, or leave and join again",
        )


def _most(place: FederationRow) -> int:
    """Return how many messages of a federation one answer has at most."""
    return max(1, min(MOST_PEERS, ANSWER_BYTES // max(1, place.agreed.sent_bytes)))


def _heard(place: FederationRow) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a message is of this federation, and not of a suspended member."""
    is_suspended = exists().where(member.c.id == message.c.member, member.c.is_suspended)
    return message.c.federation == place.id, ~is_suspended


def _changed_since(
    connection: Connection, place: FederationRow, since: int, most: int
) -> list[Row[Any]]:
    """Return the rows that have changed since a cursor, the latest last, at most so many."""
    columns = message.c.id, message.c.is_out, message.c.content
    query = select(*columns).where(*_heard(place), message.c.cursor > since)
    return [*connection.execute(query.order_by(message.c.cursor.desc()).limit(most))][::-1]


def _latest(connection: Connection, place: FederationRow, most: int) -> tuple[Handed, ...]:
    """Return the messages that were published last, the latest last."""
    query = select(message.c.id, message.c.content).where(*_heard(place), message.c.is_out)
    latest = connection.execute(query.order_by(message.c.cursor.desc()).limit(most))
    return _handed([*latest][::-1])


def _handed(rows: Iterable[Row[Any]]) -> tuple[Handed, ...]:
    return tuple(Handed(row.id, bytes(row.content)) for row in rows)


def _released(place: FederationRow, since: int, *columns: Any) -> Any:
    """Select the latest release, if it was made after a cursor."""
    return (
        select(*columns, release.c.content)
        .where(
            release.c.federation == place.id,
            release.c.cursor > since,
            release.c.content.is_not(None),
        )
        .order_by(release.c.sequence.desc())
        .limit(1)
    )
