"""Rows for the tests of a hub's database: messages, and something in each table."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Engine, insert, select

from fedbo import Federation, Float, Message
from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.wire import Progress
from fedbo.hub import store
from fedbo.hub.names import COMMAND_LINE as ACTOR
from fedbo.hub.store import schema
from fedbo.identity import KeyPair

AGREED = Federation({"x": Float(0, 1)}, features=20, kind="weights")


class Filled(NamedTuple):
    """What `fill` made."""

    secret: str  # of the invitation
    tokens: dict[str, str]  # of members and the operator


def all_rows(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables."""
    with engine.connect() as connection:
        return {
            name: [tuple(row) for row in connection.execute(select(table).order_by(table.c.id))]
            for name, table in schema.metadata.tables.items()
        }


def caller(connection: Connection, token: str) -> store.Caller:
    """Return whose token this is."""
    known = store.by_token(connection, token)
    assert known is not None
    return known


def publish(
    connection: Connection,
    own: store.Caller,
    sender: str,
    keys: KeyPair | None = None,
    progress: Progress | None = None,
    **header: Any,
) -> Message:
    """Publish a message as a member, without a request."""
    given = {"sender": sender, "sequence": 1, "t_n": 7, **header}
    omega = np.random.default_rng(given["sequence"]).standard_normal(AGREED.features)
    message = Message.of_weights(omega, fingerprint=AGREED.fingerprint, **given)
    message = message if keys is None else keys.sign(message)
    store.publish(connection, own, message, message.encode(), progress)
    return message


def fill(engine: Engine) -> Filled:
    """Put something into every table."""
    keys = KeyPair.generate()
    with store.begin(engine) as connection:
        store.create_federation(connection, "liver", AGREED, actor=ACTOR)
        secret = Invitation.parse(store.invite(connection, "liver", actor=ACTOR).invitation).secret
        tokens = {}
        for name, pair in (("clinic", keys), ("Zürich 2", None), ("left", None)):
            key = None if pair is None else pair.public
            tokens[name] = store.enrol(connection, secret, name, key).token
            own = caller(connection, tokens[name])
            for sender in (name, f"{name}/a"):
                publish(connection, own, sender, pair, Progress(9, best=0.1))
        store.leave(connection, caller(connection, tokens["left"]))
        tokens["anna"] = store.new_operator(connection, "anna", actor=ACTOR)
        place = store.find_federation(connection, "liver")
        (cursor,) = store.take_cursors(connection, place.id)
        counts = {"sequence": 1, "members": 2, "trials": 14, "cursor": cursor}
        made = {"federation": place.id, "content": secrets.token_bytes(99), "time": 1.5}
        connection.execute(insert(schema.release).values(**counts, **made))
    return Filled(secret, tokens)
