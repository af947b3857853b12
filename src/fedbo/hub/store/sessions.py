"""Sessions at the page of a hub: who has logged in with a browser, and for how long."""

from __future__ import annotations

import secrets
import time

from sqlalchemy import Connection, delete, insert, select

from fedbo.exchange.hub.proof import hashed
from fedbo.hub.store.schema import member, session
from fedbo.hub.store.transaction import Caller, check_still, find_caller

#: How long a session is valid, in seconds.
VALID = 12 * 3600
_MOST = 8  # sessions of a member at once


def log_in(connection: Connection, caller: Caller) -> str:
    """Begin a session of a member, and return its secret, which only the browser keeps."""
    check_still(connection, caller)
    own = session.c.member == caller.id
    latest = select(session.c.id).where(own).order_by(session.c.id.desc()).limit(_MOST - 1)
    kept = list(connection.scalars(latest))
    is_over = (own & session.c.id.not_in(kept)) | (session.c.expires <= time.time())
    connection.execute(delete(session).where(is_over))
    secret = secrets.token_urlsafe(32)
    row = {"member": caller.id, "secret": hashed(secret), "expires": time.time() + VALID}
    connection.execute(insert(session).values(row))
    return secret


def by_session(connection: Connection, secret: str) -> Caller | None:
    """Return whose session this is; None if there is none, or it is over."""
    own = session.c.secret == hashed(secret), session.c.expires > time.time()
    number = select(session.c.member).where(*own).scalar_subquery()
    return find_caller(connection, member.c.id == number)


def log_out(connection: Connection, secret: str) -> None:
    """End a session."""
    connection.execute(delete(session).where(session.c.secret == hashed(secret)))
