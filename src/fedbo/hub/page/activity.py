"""Activity over time: how much happened in each hour of the last week."""

from __future__ import annotations

import time
from typing import Literal

import msgspec
from sqlalchemy import BigInteger, Connection, cast, func, select

from fedbo.hub.schema import audit

#: How many hours are shown.
HOURS = 168
_HOUR = 3600
_LATE = 120.0  # seconds after which nothing is added to an hour that is over

Kind = Literal["published", "refused", "other"]


class Activity(msgspec.Struct, frozen=True):
    """How many lines the audit log has of each hour.

    Args:
        start: When the first hour begins.
        published: Messages.
        refused: What was refused.
        other: Everything else.
    """

    start: float
    published: list[int]
    refused: list[int]
    other: list[int]


class Hours:
    """Counts the lines of a federation. Hours that are over are counted only once."""

    def __init__(self) -> None:
        self._over: dict[int, dict[Kind, int]] = {}
        self._next: int | None = None  # the first hour that is not over yet

    def count(self, connection: Connection, federation: str) -> Activity:
        """Return the activity until now.

        Args:
            connection: To the database.
            federation: The name of the federation.
        """
        now = time.time()
        last = int(now // _HOUR)
        first = last - HOURS + 1
        since = first if self._next is None else max(first, self._next)
        found = {**self._over, **_counts(connection, federation, since)}
        over = int((now - _LATE) // _HOUR)
        self._over = {hour: counts for hour, counts in found.items() if first <= hour < over}
        self._next = over
        hours = range(first, last + 1)
        series = [
            [found.get(hour, {}).get(kind, 0) for hour in hours]
            for kind in ("published", "refused", "other")
        ]
        return Activity(float(first * _HOUR), *series)


def _counts(connection: Connection, federation: str, since: int) -> dict[int, dict[Kind, int]]:
    hour = (cast(audit.c.time, BigInteger) // _HOUR).label("hour")
    here = audit.c.federation == federation, audit.c.time >= float(since * _HOUR)
    query = select(hour, audit.c.action, func.count()).where(*here).group_by(hour, audit.c.action)
    found: dict[int, dict[Kind, int]] = {}
    for number, action, lines in connection.execute(query):
        kind: Kind = action if action in ("published", "refused") else "other"
        counts = found.setdefault(int(number), {})
        counts[kind] = counts.get(kind, 0) + lines
    return found
