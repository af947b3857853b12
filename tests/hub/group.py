"""A federation with members in the database of a hub, for tests of what is below the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Engine, insert, select, update

from fedbo.federation import Federation
from fedbo.hub import admin, schema
from fedbo.hub.database import begin
from fedbo.message import Message, Withdrawal
from fedbo.space import Float

M = 8
FEDERATION = Federation({"x": Float(0, 1), "y": Float(0, 1)}, features=M, seed=3, kind="weights")


class Group:
    """Members of one federation.

    Args:
        engine: The database.
        members: How many there are.
        name: Of the federation.
        signed: Whether members have keys. They are not real: nothing here checks signatures.
    """

    def __init__(
        self, engine: Engine, members: int, *, name: str = "liver", signed: bool = False
    ) -> None:
        self.engine = engine
        with begin(engine) as connection:
            self.id = admin.create_federation(connection, name, FEDERATION, actor="test").id
            for i in range(members):
                key = bytes([1 + i % 255]) * 32 if signed else None
                row = {"federation": self.id, "name": f"m{i}", "key": key}
                token = f"{name} {i}".encode()
                connection.execute(
                    insert(schema.member).values(token=token, **row, joined=0, seen=0)
                )
        self.members: Sequence[Any] = self.all(schema.member, federation=self.id)

    def all(self, table: Any, **where: object) -> Sequence[Any]:
        """Return the rows of a table, sorted by id."""
        query = select(table).order_by(table.c.id)
        with self.engine.connect() as connection:
            return connection.execute(query.filter_by(**where)).all()

    def out(self, epoch: int = 0) -> dict[str, bytes]:
        """Return what is handed out, by sender."""
        rows = self.all(schema.message, federation=self.id, epoch=epoch, is_out=True)
        return {row.sender: row.content for row in rows}

    def cursor(self) -> int:
        (row,) = self.all(schema.federation, id=self.id)
        return int(row.cursor)

    def change(self, table: Any, id: int, **values: object) -> None:
        with begin(self.engine) as connection:
            connection.execute(update(table).where(table.c.id == id).values(**values))

    def message(
        self, sender: str, sequence: int, *, epoch: int = 0, omega: Any = None, key: bytes = b""
    ) -> Message:
        """Return a message; without weights they depend on the sequence alone."""
        if omega is None:
            omega = np.random.default_rng(sequence).standard_normal(M)
        return Message.of_weights(
            omega,
            fingerprint=FEDERATION.fingerprint,
            epoch=epoch,
            sender=sender,
            sequence=sequence,
            t_n=3,
            **({"key": key, "signature": bytes(64)} if key else {}),
        )

    def withdrawal(self, sender: str, sequence: int, key: bytes, *, epoch: int = 0) -> Withdrawal:
        return Withdrawal(
            fingerprint=FEDERATION.fingerprint,
            epoch=epoch,
            sender=sender,
            sequence=sequence,
            key=key,
            signature=bytes(64),
        )
