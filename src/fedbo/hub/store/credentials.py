"""Who may ask a hub for something: members and operators, their tokens, and log-ins at the page.

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
from fedbo.hub.store.schema import hub, operator, session
from fedbo.hub.store.transaction import Caller, Role, check_still, record

_PREFIXES: dict[Role, str] = {"member": "fedbo-m-", "operator": "fedbo-o-"}
_MOST_SESSIONS = 20  # of one member or operator


def new_token(role: Role) -> str:
    """Return a new token with 256 random bits; its beginning tells people whose it is.

    >>> new_token("member")[:8], len(new_token("operator"))
    ('fedbo-m-', 51)
    """
    return _PREFIXES[role] + secrets.token_urlsafe(32)


def new_secret() -> str:
    """Return a new secret for an invitation or a session, with 192 random bits."""
    return secrets.token_urlsafe(24)


def open_session(connection: Connection, caller: Caller, expires: float) -> str:
    """Return the secret of a new log-in at the page, which lasts until a time."""
    check_still(connection, caller)
    connection.execute(delete(session).where(session.c.expires < time.time()))
    own = session.c.operator if caller.is_operator else session.c.member
    ids = select(session.c.id).where(own == caller.id).order_by(session.c.id.desc())
    oldest = connection.scalars(ids.offset(_MOST_SESSIONS - 1)).all()
    connection.execute(delete(session).where(session.c.id.in_(oldest)))
    secret = new_secret()
    values = {"secret": hashed(secret), "expires": expires, own.name: caller.id}
    connection.execute(insert(session).values(values))
    return secret


def close_session(connection: Connection, secret: str) -> None:
    """End a log-in at the page."""
    connection.execute(delete(session).where(session.c.secret == hashed(secret)))


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
    """Drop an operator: the token and the sessions are no longer valid."""
    connection.execute(select(hub.c.id).with_for_update())
    number = connection.scalar(select(operator.c.id).where(operator.c.name == name))
    if number is None:
        raise Refused("not-found", f"this hub has no operator {name!r}")
    connection.execute(delete(session).where(session.c.operator == number))
    connection.execute(delete(operator).where(operator.c.id == number))
    record(connection, "operator", actor=actor, subject=name, detail={"change": "dropped"})


def operators(connection: Connection) -> list[Operator]:
    """Return the operators by name."""
    query = select(operator.c.id, operator.c.name, operator.c.created).order_by(operator.c.name)
    return [Operator(**row) for row in connection.execute(query).mappings()]
