"""Key figures of a federation and of the hub."""

from __future__ import annotations

import time

from sqlalchemy import Connection, case, distinct, func, select

from fedbo.hub.records import Figures
from fedbo.hub.store.schema import federation, member, message, release
from fedbo.hub.store.transaction import FederationRow

_DAY = 86400.0


def figures_of(connection: Connection, row: FederationRow) -> Figures:
    """Return the key figures of a federation."""
    yesterday = time.time() - _DAY
    is_seen = member.c.token.is_not(None) & (member.c.seen >= yesterday)
    members = select(
        func.count(member.c.token).label("members"),
        func.count(case((member.c.token.is_(None), 1))).label("revoked"),
        func.count(case((is_seen, 1))).label("seen"),
    ).where(member.c.federation == row.id)
    messages = select(
        func.count(distinct(message.c.sender)).label("agents"),
        func.count().label("messages"),
        func.coalesce(func.sum(func.length(message.c.content)), 0).label("bytes"),
        func.count(case((message.c.changed >= yesterday, 1))).label("new"),
    ).where(message.c.federation == row.id, message.c.is_out)
    rows = (connection.execute(query).mappings().one() for query in (members, messages))
    return Figures(**{name: int(value) for each in rows for name, value in each.items()})


def counts(connection: Connection) -> dict[str, int]:
    """Return how many federations, members and releases there are."""
    tables = {
        "federations": select(func.count()).select_from(federation),
        "members": select(func.count()).where(member.c.token.is_not(None)),
        "releases": select(func.count()).select_from(release),
    }
    return {name: connection.scalar(query) or 0 for name, query in tables.items()}
