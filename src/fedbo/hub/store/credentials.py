"""Operators of a hub, and the tokens of operators and members.

Tokens and secrets are random, shown once, and stored only as hashes: they have too many bits to be
guessed.
"""

from __future__ import annotations

import secrets
import time

from sqlalchemy import Connection, delete, insert, select

from fedbo.exchange.hub.proof import hashed
from fedbo.hub.names import check_person
from fedbo.hub.problems import Refused
from fedbo.hub.records import Operator
from fedbo.hub.store.schema import hub, operator
from fedbo.hub.store.transaction import Role, record

_PREFIXES: dict[Role, str] = {"member": "fedbo-m-", "operator": "fedbo-o-"}


def new_token(role: Role) -> str:
    """Return a new token with 256 random bits; its beginning tells people whose it is.

    >>> new_token("member")[:8], len(new_token("operator"))
    ('fedbo-m-', 51)
    """
    return _PREFIXES[role] + secrets.token_urlsafe(32)


def new_secret() -> str:
    """Return a new secret for an invitation, with 192 random bits."""
    return secrets.token_urlsafe(24)


def new_operator(connection: Connection, name: str, *, actor: str) -> str:
    """Add an operator, and return the operator's token."""
    check_person(name)
    connection.execute(select(hub.c.id).with_for_update())  # one at a time
    if connection.execute(select(operator.c.id).where(operator.c.name == name)).first():
        raise Refused("name-taken", f"this hub has an operator {name!r} already")
    token = new_token("operator")
    row = {"name": name, "token": hashed(token), "created": time.time()}
    connection.execute(insert(operator).values(row))
    record(connection, "operator", actor=actor, subject=name, detail={"change": "added"})
    return token


def drop_operator(connection: Connection, name: str, *, actor: str) -> None:
    """Drop an operator: the token is no longer valid."""
    connection.execute(select(hub.c.id).with_for_update())
    number = connection.scalar(select(operator.c.id).where(operator.c.name == name))
    if number is None:
        raise Refused("not-found", f"this hub has no operator {name!r}")
    connection.execute(delete(operator).where(operator.c.id == number))
    record(connection, "operator", actor=actor, subject=name, detail={"change": "dropped"})


def operators(connection: Connection) -> list[Operator]:
    """Return the operators by name."""
    query = select(operator.c.id, operator.c.name, operator.c.created).order_by(operator.c.name)
    return [Operator(**row) for row in connection.execute(query).mappings()]
