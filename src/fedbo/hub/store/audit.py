"""The audit log: one line for every change.

The database refuses to change a line, and to delete one unless another line, which stays, says that
all up to it are deleted: `prune` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Row,
    delete,
    func,
    or_,
    select,
)

from fedbo.hub.records import AuditLine
from fedbo.hub.store.schema import audit, member
from fedbo.hub.store.transaction import record

_PAGE = 1000  # lines that are read at once
LOOKED_AT = 5000  # lines, to find the latest ones of a member
_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def audit_lines(engine: Engine, federation: str | None = None, *, after: int = 0) -> Iterator[str]:
    """Yield the lines of the audit log as JSON, each with a line break at its end.

    A slow reader does not hold a transaction open. Lines that are added meanwhile are left out.

    Args:
        engine: The database.
        federation: Only lines about the federation of this name.
        after: Only lines with a larger number.
    """
    wanted = [] if federation is None else [audit.c.federation == federation]
    with engine.connect() as connection:
        last = connection.scalar(select(func.max(audit.c.id))) or 0
    while after < last:
        page = audit.c.id.between(after + 1, last)
        query = select(audit).where(page, *wanted).order_by(audit.c.id).limit(_PAGE)
        with engine.connect() as connection:
            rows = connection.execute(query).all()
        for row in rows:
            yield as_json(_line(row))
        after = rows[-1].id if len(rows) == _PAGE else last


def latest_lines(
    connection: Connection, federation: str, most: int, *, member_id: int | None = None
) -> list[AuditLine]:
    """Return the latest lines about a federation, the last one first.

    Those of one member are looked for among the federation's latest 5,000 only: those that the
    others have made cost it no time.
    """
    latest = select(audit).where(audit.c.federation == federation)
    latest = latest.order_by(audit.c.time.desc(), audit.c.id.desc())
    if member_id is None:
        return [_line(row) for row in connection.execute(latest.limit(most))]
    is_it = select(member.c.name, member.c.joined).where(member.c.id == member_id)
    name, joined = connection.execute(is_it).one()
    recent = latest.where(audit.c.time >= joined).limit(LOOKED_AT).subquery()
    own = select(recent).where(_concerns(recent, name)).limit(most)
    own = own.order_by(recent.c.time.desc(), recent.c.id.desc())
    return [_line(row) for row in connection.execute(own)]


def prune(connection: Connection, before: float, *, actor: str) -> int:
    """Delete lines from before a time, and leave one that says so; return how many there were."""
    old = select(func.max(audit.c.id)).where(audit.c.time < before)
    last = connection.scalar(old) or 0
    wanted = (audit.c.id <= last) & (audit.c.action != "pruned")
    count = connection.scalar(select(func.count()).select_from(audit).where(wanted)) or 0
    if count:
        detail = {"lines": count, "before": datetime.fromtimestamp(before, UTC).isoformat()}
        record(connection, "pruned", actor=actor, subject=str(last), detail=detail)
        connection.execute(delete(audit).where(wanted))
    return count


def as_json(line: AuditLine) -> str:
    """Return a line as JSON, with a line break at its end."""
    # JSON does not escape these control characters, and a terminal may obey them.
    return line.model_dump_json().translate(_ESCAPES) + "\n"


def _concerns(lines: FromClause, name: str) -> ColumnElement[bool]:
    """Return the condition that a line is about a member: what it or its agents did or met."""
    agents = f"{name}/"
    begins = func.substr(lines.c.subject, 1, len(agents))  # LIKE ignores case on SQLite
    return or_(lines.c.actor == name, lines.c.subject == name, begins == agents)


def _line(row: Row[Any]) -> AuditLine:
    return AuditLine(
        number=row.id,
        time=datetime.fromtimestamp(row.time, UTC),
        federation=row.federation,
        actor=row.actor,
        action=row.action,
        subject=row.subject,
        detail=json.loads(row.detail),
    )
