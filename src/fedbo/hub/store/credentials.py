"""Who may ask a hub for something: members and operators, their tokens, and log-ins at the page.

Tokens and secrets are random, shown once, and stored only as hashes: they have too many bits to be
guessed.
"""

from __future__ import annotations

import secrets
import time
from typing import Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from fedbo.exchange.hub.proof import hashed
from fedbo.hub.names import check_person, operator_actor
from fedbo.hub.problems import Refused
from fedbo.hub.records import Operator
from fedbo.hub.store.audit import record
from fedbo.hub.store.schema import federation, hub, member, operator, session

Role = Literal["member", "operator"]

_PREFIXES: dict[Role, str] = {"member": "fedbo-m-", "operator": "fedbo-o-"}
_MOST_SESSIONS = 20  # of one member or operator
_SEEN = 60.0  # seconds for which nobody need know that a member was seen again


class Caller(NamedTuple):
    """A member or an operator who asks for something."""

    role: Role
    id: int
    name: str
    token: bytes  # its hash
    federation: int = 0  # of a member
    federation_name: str = ""
    key: bytes = b""  # a member's public key; empty if its messages are not signed
    seen: float = 0.0

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"

    @property
    def actor(self) -> str:
        """Its name in the audit log."""
        return operator_actor(self.name) if self.is_operator else self.name


def new_token(role: Role) -> str:
    """Return a new token with 256 random bits; its beginning tells people whose it is.

    >>> new_token("member")[:8], len(new_token("operator"))
    ('fedbo-m-', 51)
    """
    return _PREFIXES[role] + secrets.token_urlsafe(32)


def new_secret() -> str:
    """Return a new secret for an invitation or a session, with 192 random bits."""
    return secrets.token_urlsafe(24)


_MEMBER = select(
    member.c.id,
    member.c.name,
    member.c.token,
    member.c.federation,
    federation.c.name.label("federation_name"),
    member.c.key,
    member.c.seen,
).join(federation, federation.c.id == member.c.federation)
_OPERATOR = select(operator.c.id, operator.c.name, operator.c.token)


def by_token(connection: Connection, token: str) -> Caller | None:
    """Return whose token this is; None if it is nobody's."""
    digest = hashed(token)
    return _caller(connection, member.c.token == digest, operator.c.token == digest)


def by_session(connection: Connection, secret: str) -> Caller | None:
    """Return who has logged in with this cookie; None if nobody has, or not any more."""
    query = select(session.c.operator, session.c.member).where(
        session.c.secret == hashed(secret), session.c.expires > time.time()
    )
    if (opened := connection.execute(query).first()) is None:
        return None
    is_member = (member.c.id == opened.member) & member.c.token.is_not(None)
    return _caller(connection, is_member, operator.c.id == opened.operator)


def is_seen_anew(caller: Caller) -> bool:
    """Tell whether it should be noted that a member was seen."""
    return not caller.is_operator and caller.seen + _SEEN < time.time()


def note_seen(connection: Connection, caller: Caller) -> None:
    """Note when a member was seen, in a transaction that writes."""
    change = update(member).where(member.c.id == caller.id)
    connection.execute(change.values(seen=time.time()))


def check_still(connection: Connection, caller: Caller) -> None:
    """Raise `Refused` if a token or key was replaced since the caller was looked up.

    Args:
        connection: In a transaction that writes; the caller's row is locked.
        caller: Who changes something.
    """
    table = operator if caller.is_operator else member
    row = connection.execute(select(table).where(table.c.id == caller.id).with_for_update()).first()
    if row is None or row.token != caller.token:
        raise Refused("wrong-token", "the token was revoked or replaced meanwhile")
    if not caller.is_operator and bytes(row.key or b"") != caller.key:
        raise Refused("wrong-key", f"the key of {caller.name!r} was replaced meanwhile")


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


def _caller(
    connection: Connection, is_member: ColumnElement[bool], is_operator: ColumnElement[bool]
) -> Caller | None:
    if member_row := connection.execute(_MEMBER.where(is_member)).mappings().first():
        return Caller("member", **dict(member_row) | {"key": bytes(member_row["key"] or b"")})
    operator_row = connection.execute(_OPERATOR.where(is_operator)).first()
    return None if operator_row is None else Caller("operator", *operator_row)
