"""What every transaction of a hub needs: to begin, to know who asks, to lock a federation, to log.

A transaction that changes a federation, its members or their messages locks the federation first,
and several in the order of their ids. Otherwise two transactions on PostgreSQL could wait for each
other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Connection, Engine, event, insert, select, update

from fedbo.federation.federation import Federation
from fedbo.hub.problems import Refused
from fedbo.hub.store.schema import audit, federation, member

_SEEN = 60.0  # seconds for which nobody need know that a member was seen again
_ACTOR, _SUBJECT = 80, 128  # characters of a line of the audit log, at most

_turns: WeakKeyDictionary[Engine, threading.Lock] = WeakKeyDictionary()  # of writers


@contextlib.contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    """Start a transaction that writes; it is committed at the end, or undone after an exception.

    On SQLite nobody else writes until it ends, and nothing that it reads can change. On PostgreSQL
    a transaction locks the rows that it is going to change.
    """
    with _turns.get(engine, contextlib.nullcontext()), engine.connect() as connection:
        connection.execution_options(is_write=True)
        with connection.begin():
            yield connection


def prepare_sqlite(engine: Engine) -> None:
    """Let transactions begin as `begin` says, and threads of this process write in turn.

    SQLite's own way of waiting, between processes, is to try again and again.
    """
    _turns[engine] = threading.Lock()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        is_write = connection.get_execution_options().get("is_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


# Who asks


class Caller(NamedTuple):
    """A member that asks for something."""

    id: int
    name: str
    token: bytes  # its hash
    federation: int
    federation_name: str
    is_suspended: bool
    key: bytes  # that signs its messages
    seen: float


_MEMBER = select(
    member.c.id,
    member.c.name,
    member.c.token,
    member.c.federation,
    federation.c.name.label("federation_name"),
    member.c.is_suspended,
    member.c.key,
    member.c.seen,
).join(federation, federation.c.id == member.c.federation)


def by_token(connection: Connection, token: str) -> Caller | None:
    """Return whose token this is; None if it is nobody's."""
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    return find_caller(connection, member.c.token == digest)


def find_caller(connection: Connection, is_it: ColumnElement[bool]) -> Caller | None:
    """Return the member of which something is true, unless it is revoked."""
    query = _MEMBER.where(is_it, member.c.token.is_not(None))
    row = connection.execute(query).mappings().first()
    return None if row is None else Caller(**dict(row) | {"key": bytes(row["key"] or b"")})


def is_seen_anew(caller: Caller) -> bool:
    """Tell whether it should be noted that a member was seen."""
    return caller.seen + _SEEN < time.time()


def note_seen(connection: Connection, caller: Caller) -> None:
    """Note when a member was seen, in a transaction that writes."""
    change = update(member).where(member.c.id == caller.id)
    connection.execute(change.values(seen=time.time()))


def check_still(connection: Connection, caller: Caller) -> None:
    """Lock a caller; raise `Refused` if its token or key was replaced since it was looked up."""
    own = select(member).where(member.c.id == caller.id)
    row = connection.execute(own.with_for_update()).first()
    if row is None or row.token != caller.token:
        raise Refused("wrong-token", "the token was revoked or replaced meanwhile")
    if bytes(row.key or b"") != caller.key:
        raise Refused("wrong-key", f"the key of {caller.name!r} was replaced meanwhile")


# A federation, and what is logged


class FederationRow(NamedTuple):
    """A federation, as its table has it."""

    id: int
    name: str
    fingerprint: bytes
    file: str
    cursor: int
    created: float
    is_private: bool
    is_restored: bool

    @property
    def agreed(self) -> Federation:
        """What its agents agree on."""
        return _read(self.file)


_COLUMNS = tuple(federation.c[name] for name in FederationRow._fields)


def find_federation(connection: Connection, name_or_id: str | int) -> FederationRow:
    """Return a federation by its name or id; `Refused` if there is none."""
    return _found(connection, name_or_id, is_locked=False)


def lock_federation(connection: Connection, name_or_id: str | int) -> FederationRow:
    """Return a federation, and keep others from changing it until the transaction ends."""
    return _found(connection, name_or_id, is_locked=True)


def take_cursors(connection: Connection, federation_id: int, count: int = 1) -> range:
    """Return the next cursors of a federation, which no other change gets. This locks it."""
    taken = update(federation).where(federation.c.id == federation_id)
    taken = taken.values(cursor=federation.c.cursor + count)
    last: int = connection.execute(taken.returning(federation.c.cursor)).scalar_one()
    return range(last - count + 1, last + 1)


def record(
    connection: Connection,
    action: str,
    *,
    actor: str,
    federation: str = "",
    subject: str = "",
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Add a line to the audit log.

    Args:
        action: What was done: created, updated, invited, cancelled, joined, published, withdrew,
            left, revoked, removed, rotated, rekeyed, restored, released, admitted,
            deleted, pruned, upgraded.
        actor: Who did it: a member's name, or one of `fedbo.hub.names`.
        federation: The name of the federation; empty if it concerns the whole hub.
        subject: What it was done to, such as a member or a sender.
        detail: More about it, such as a sequence number; never a secret.
    """
    line = {
        "time": time.time(),
        "federation": federation,
        "actor": actor[:_ACTOR],
        "action": action,
        "subject": subject[:_SUBJECT],
        "detail": json.dumps(detail or {}, ensure_ascii=False),
    }
    connection.execute(insert(audit), [line])


@lru_cache(maxsize=1024)
def _read(file: str) -> Federation:
    """Read a federation file; a long list of members takes long."""
    return Federation.from_toml(file)


def _found(connection: Connection, name_or_id: str | int, *, is_locked: bool) -> FederationRow:
    column = federation.c.name if isinstance(name_or_id, str) else federation.c.id
    query = select(*_COLUMNS).where(column == name_or_id)
    row = connection.execute(query.with_for_update() if is_locked else query).first()
    if row is None:
        raise Refused("no-such-federation", f"this hub has no federation {name_or_id!r}")
    return FederationRow(*row)
