"""Rows for the tests of a hub's database: messages, and something in each table."""

from __future__ import annotations

import secrets
import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, insert, select

from fedbo import Federation, Float
from fedbo.federation import Scalars
from fedbo.hub import admin, schema
from fedbo.hub.database import begin
from fedbo.hub.tokens import digest, new_secret
from fedbo.identity import KeyPair

AGREED = Federation({"x": Float(0, 1)}, features=20)
ACTOR = admin.COMMAND_LINE


class Filled(NamedTuple):
    """What `fill` made."""

    secret: str  # of the invitation
    tokens: dict[str, str]  # of members and the operator, and a cookie


def all_rows(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables."""
    with engine.connect() as connection:
        return {
            name: [tuple(row) for row in connection.execute(select(table).order_by(table.c.id))]
            for name, table in schema.metadata.tables.items()
        }


def publish(
    connection: Connection, own: admin.MemberRow, sender: str, epoch: int = 0, t_n: int = 7
) -> int:
    """Put a message into the database, as if the member had published it; return its cursor."""
    (cursor,) = admin.take_cursors(connection, own.federation)
    row = {
        "federation": own.federation,
        "member": own.id,
        "epoch": epoch,
        "sender": sender,
        "key": own.key or b"",
        "sequence": 1,
        "t_n": t_n,
        "is_out": True,
        "content": secrets.token_bytes(100),
        "cursor": cursor,
        "changed": time.time(),
    }
    connection.execute(insert(schema.message).values(row))
    return cursor


def share(
    connection: Connection, own: admin.MemberRow, sender: str, scale: float, t_n: int
) -> None:
    """Put the scalars of an agent into the database."""
    shared = Scalars(
        fingerprint=AGREED.fingerprint,
        sender=sender,
        length_scales=(scale,),
        noise_variance=3e-3,
        t_n=t_n,
    )
    row = {"federation": own.federation, "member": own.id, "sender": sender, "epoch": 0}
    content = {"content": shared.encode(), "changed": 1.5}
    connection.execute(insert(schema.scalars).values(**row, **content))


def fill(engine: Engine) -> Filled:
    """Put something into every table."""
    with begin(engine) as connection:
        here = admin.create_federation(connection, "liver", AGREED, actor=ACTOR)
        secret = admin.invite(connection, "liver", actor=ACTOR).invitation.secret
        clinic = admin.enrol(connection, secret, "clinic", KeyPair.generate().public)
        zurich = admin.enrol(connection, secret, "Zürich 2")
        left = admin.enrol(connection, secret, "left")
        operator = admin.new_operator(connection, "anna", actor=ACTOR)
        for one in (clinic, zurich, left):
            for sender in (one.member.name, f"{one.member.name}/a"):
                publish(connection, one.member, sender)
        admin.leave(connection, left.member.id)
        share(connection, clinic.member, "clinic", 0.25, 9)
        own = {"federation": here.id, "member": clinic.member.id, "sender": "clinic"}
        row = {**own, "trials": 9, "best": 0.1, "saved": None, "changed": 1.5}
        connection.execute(insert(schema.progress).values(row))
        (cursor,) = admin.take_cursors(connection, here.id)
        counts = {"sequence": 1, "members": 2, "trials": 14, "cursor": cursor}
        made = {"federation": here.id, "epoch": 0, "content": secrets.token_bytes(99), "time": 1.5}
        connection.execute(insert(schema.release).values(**counts, **made))
        cookie = new_secret()
        row = {"secret": digest(cookie), "member": clinic.member.id, "expires": 2e9}
        connection.execute(insert(schema.session).values(row))
    tokens = {"clinic": clinic.token, "Zürich 2": zurich.token, "left": left.token}
    return Filled(secret, {**tokens, "anna": operator, "cookie": cookie})
