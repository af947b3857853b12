"""Operators of a hub: their tokens allow everything but to speak for a member."""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from fedbo.hub.admin.audit import record
from fedbo.hub.admin.names import check_person
from fedbo.hub.problems import Refused
from fedbo.hub.schema import hub, operator, session
from fedbo.hub.tokens import digest, new_token


class OperatorRow(NamedTuple):
    """An operator, without the token."""

    id: int
    name: str
    created: float


def new_operator(connection: Connection, name: str, *, actor: str) -> str:
    """Add an operator.

    Args:
        connection: In a transaction that writes.
        name: The name of the operator, for the audit log.
        actor: Who does it.

    Returns:
        The operator's token.
    """
    check_person(name)
    connection.execute(select(hub.c.id).with_for_update())  # one at a time
    if connection.execute(select(operator.c.id).where(operator.c.name == name)).first():
        raise Refused("name-taken", f"this hub has an operator {name!r} already")
    token, now = new_token("operator"), time.time()
    connection.execute(insert(operator).values(name=name, token=digest(token), created=now))
    added = {"change": "added"}
    record(connection, "operator", actor=actor, subject=name, detail=added, when=now)
    return token


def drop_operator(connection: Connection, name: str, *, actor: str) -> None:
    """Drop an operator: the token and the sessions are no longer valid.

    Args:
        connection: In a transaction that writes.
        name: The name of the operator.
        actor: Who does it.
    """
    connection.execute(select(hub.c.id).with_for_update())
    named = select(operator.c.id).where(operator.c.name == name)
    found = connection.scalar(named.with_for_update())
    if found is None:
        raise Refused("not-found", f"this hub has no operator {name!r}")
    connection.execute(delete(session).where(session.c.operator == found))
    connection.execute(delete(operator).where(operator.c.id == found))
    record(connection, "operator", actor=actor, subject=name, detail={"change": "dropped"})


def operators(connection: Connection) -> list[OperatorRow]:
    """Return the operators by name.

    Args:
        connection: To the database.
    """
    query = select(operator.c.id, operator.c.name, operator.c.created).order_by(operator.c.name)
    return [OperatorRow(*row) for row in connection.execute(query)]
