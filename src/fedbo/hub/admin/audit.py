"""The audit log: one line for every change. The database refuses to change or delete lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, FromClause, Row, func, insert, or_, select

from fedbo.hub.schema import audit
from fedbo.outside import printable

_PAGE = 1000  # lines that are read at once
_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
_ACTOR, _SUBJECT = 80, 128  # characters, at most


def record(
    connection: Connection,
    action: str,
    *,
    actor: str,
    federation: str = "",
    subject: str = "",
    detail: Mapping[str, Any] | None = None,
    when: float | None = None,
) -> None:
    """Add a line to the audit log.

    Args:
        connection: In the transaction that makes the change.
        action: What was done: created, invited, joined, published, withdrew, left, revoked,
            removed, rotated, rekeyed, shared, reported, epoch, refused, operator, restored,
            released, reconciled.
        actor: Who did it: a member's name, `operator_actor`, `COMMAND_LINE`, `SCHEDULE` or
            `UNKNOWN`.
        federation: The name of the federation; empty if it concerns the whole hub.
        subject: What it was done to, such as a member or a sender.
        detail: More about it, such as a sequence number; never a secret.
        when: The time; now by default.
    """
    line = {
        "time": time.time() if when is None else when,
        "federation": federation,
        "actor": printable(actor)[:_ACTOR],
        "action": action,
        "subject": printable(subject)[:_SUBJECT],
        "detail": msgspec.json.encode(detail or {}).decode(),
    }
    connection.execute(insert(audit), [line])


def audit_lines(
    engine: Engine,
    federation: str | None = None,
    *,
    member: str | None = None,
    since: float = 0.0,
) -> Iterator[str]:
    """Yield the lines of the audit log as JSON, each with a line break at its end.

    A slow reader does not hold a transaction open. Lines that are added meanwhile are left out.

    Args:
        engine: The database.
        federation: Only lines about the federation of this name; "" for those about the hub.
        member: Only lines of which this member is the actor or the subject.
        since: Only lines from this time on, such as when the member joined: someone else may have
            had its name before.
    """
    wanted = [audit.c.time >= since] if since else []
    if federation is not None:
        wanted.append(audit.c.federation == federation)
    if member is not None:
        wanted.append(concerns(audit, member))
    with engine.connect() as connection:
        last = connection.scalar(select(func.max(audit.c.id))) or 0
    after = 0
    while after < last:
        page = audit.c.id.between(after + 1, last)
        query = select(audit).where(page, *wanted).order_by(audit.c.id).limit(_PAGE)
        with engine.connect() as connection:
            rows = connection.execute(query).all()
        yield from map(_line, rows)
        after = rows[-1].id if len(rows) == _PAGE else last


def concerns(lines: FromClause, member: str) -> ColumnElement[bool]:
    """Return the condition that a line is about a member: what it or its agents did or met.

    Args:
        lines: Lines of the audit log.
        member: The name of the member.
    """
    agents = f"{member}/"
    begins = func.substr(lines.c.subject, 1, len(agents))  # LIKE ignores case on SQLite
    return or_(lines.c.actor == member, lines.c.subject == member, begins == agents)


def _line(row: Row[Any]) -> str:
    line = {
        "number": row.id,
        "time": datetime.fromtimestamp(row.time, UTC),
        "federation": row.federation,
        "actor": row.actor,
        "action": row.action,
        "subject": row.subject,
        "detail": msgspec.Raw(row.detail.encode()),
    }
    # JSON does not escape these control characters, and a terminal may obey them.
    return msgspec.json.encode(line).decode().translate(_ESCAPES) + "\n"
