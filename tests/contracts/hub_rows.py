"""What tests put into a hub's database: federations, members, messages, something in each table."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Engine, insert, select

from fedbo import Federation, Float, Message
from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub import store
from fedbo.hub.store import schema
from fedbo.message import Withdrawal
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair

ACTOR = "command line/test"
GIVEN: dict[str, Any] = {"features": 8, "seed": 3, "kind": "weights"}
AGREED = Federation({"x": Float(0, 1), "y": Float(0, 1)}, **GIVEN)


class Desk:
    """Whoever runs a hub, at its database."""

    engine: Engine

    def federation(self, name: str = "liver", agreed: Federation = AGREED) -> str:
        """Create a federation; return the secret of an invitation to it."""
        with store.begin(self.engine) as connection:
            store.create_federation(connection, name, agreed, actor=ACTOR)
        return self.invite(name)

    def invite(self, name: str = "liver") -> str:
        """Return the secret of a new invitation."""
        with store.begin(self.engine) as connection:
            invited = store.invite(connection, name, uses=1000, actor=ACTOR)
        return Invitation.parse(invited.invitation).secret

    def enrol(self, secret: str, name: str, keys: KeyPair | None = None) -> str:
        """Enrol a member, with the key of its name if no other is given; return its token."""
        with store.begin(self.engine) as connection:
            return store.enrol(connection, secret, name, (keys or keys_of(name)).public).token

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of all tables."""
        return all_rows(self.engine)


class Filled(NamedTuple):
    """What `fill` made."""

    secret: str  # of the invitation
    tokens: dict[str, str]  # of members


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


def message(
    sender: str,
    sequence: int = 1,
    *,
    agreed: Federation = AGREED,
    keys: KeyPair | None = None,
    **header: Any,
) -> Message:
    """Return a message of an agent, signed with the key of its member if no other is given."""
    omega = np.random.default_rng(sequence).standard_normal(agreed.features)
    given = {"fingerprint": agreed.fingerprint, "sequence": sequence, "t_n": 3, **header}
    made = Message.of_weights(omega, sender=sender, **given)
    return (keys or keys_of(sender)).sign(made)


def withdrawal(sender: str, sequence: int, keys: KeyPair | None = None) -> Withdrawal:
    """Return a withdrawal, signed likewise."""
    made = Withdrawal(fingerprint=AGREED.fingerprint, sender=sender, sequence=sequence)
    return (keys or keys_of(sender)).sign(made)


def publish(connection: Connection, token: str, content: Message | Withdrawal) -> bool:
    """Publish as a member, without a request."""
    own = caller(connection, token)
    return store.publish(connection, own, content, content.encode())


def fill(engine: Engine) -> Filled:
    """Put something into every table."""
    desk = Desk()
    desk.engine = engine
    secret, tokens = desk.federation(), {}
    for name in ("clinic", "Zürich 2", "left"):
        tokens[name] = desk.enrol(secret, name)
        with store.begin(engine) as connection:
            for sender in (name, f"{name}/a"):
                publish(connection, tokens[name], message(sender, t_n=7))
    with store.begin(engine) as connection:
        store.log_in(connection, caller(connection, tokens["clinic"]))
        store.leave(connection, caller(connection, tokens["left"]))
        place = store.find_federation(connection, "liver")
        (cursor,) = store.take_cursors(connection, place.id)
        counts = {"sequence": 1, "members": 2, "trials": 14, "cursor": cursor}
        made = {"federation": place.id, "content": secrets.token_bytes(99), "time": 1.5}
        connection.execute(insert(schema.release).values(**counts, **made))
    return Filled(secret, tokens)
