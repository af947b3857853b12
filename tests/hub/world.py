"""A hub in this process with federations, members and an operator, for tests of its API."""

from __future__ import annotations

import io
import json
import time
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import httpx
import msgspec
import numpy as np
from sqlalchemy import Engine, select

from fedbo.exchange.hub.proof import Statement
from fedbo.exchange.hub.wire import MEDIA_TYPE, News, Wanted
from fedbo.federation import Federation, Scalars
from fedbo.hub import admin, schema
from fedbo.hub.app import create_app
from fedbo.hub.database import begin
from fedbo.hub.log import Log
from fedbo.hub.settings import Settings
from fedbo.hub.tokens import digest
from fedbo.identity import KeyPair
from fedbo.message import Message
from fedbo.space import Float

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Starlette, about the client that it uses
    from starlette.testclient import TestClient

M = 8
AGREED = Federation({"x": Float(0, 1), "y": Float(0, 1)}, features=M, seed=3, kind="weights")
ACTOR = admin.COMMAND_LINE


class World:
    """A running hub. Use it in a ``with`` statement.

    Args:
        url: The address of its database.
        **settings: Of the hub; by default it has no limits on requests.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        self.lines = io.StringIO()
        limits = {"rate": 0.0, "failures": 0}
        self.app = create_app(
            Settings(db=url, **{**limits, **settings}), log=Log("json", self.lines)
        )
        self.service = self.app.state.service

    def __enter__(self) -> World:
        self.client = TestClient(self.app, raise_server_exceptions=False)
        self.client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.__exit__(None, None, None)

    @property
    def engine(self) -> Engine:
        engine: Engine = self.service.engine
        return engine

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log, once the hub has stopped."""
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]

    def operator(self, name: str = "ann") -> str:
        with begin(self.engine) as connection:
            return admin.new_operator(connection, name, actor=ACTOR)

    def federation(self, name: str = "liver", agreed: Federation = AGREED) -> str:
        """Create a federation; return the secret of an invitation to it."""
        with begin(self.engine) as connection:
            admin.create_federation(connection, name, agreed, actor=ACTOR)
            return admin.invite(connection, name, uses=1000, actor=ACTOR).invitation.secret

    def enrol(self, secret: str, name: str, keys: KeyPair | None = None) -> str:
        """Enrol a member; return its token."""
        with begin(self.engine) as connection:
            key = None if keys is None else keys.public
            return admin.enrol(connection, secret, name, key).token

    def ask(self, method: str, path: str, token: str | None = None, **given: Any) -> httpx.Response:
        """Send a request."""
        headers = dict(given.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.client.request(method, path, headers=headers, **given)

    def rows(self, *leave_out: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return all that is stored, except for when members were seen, and some tables."""
        with self.engine.connect() as connection:
            return {
                name: [
                    tuple(row)
                    for row in connection.execute(
                        select(*(c for c in table.c if c.name != "seen")).order_by(table.c.id)
                    )
                ]
                for name, table in schema.metadata.tables.items()
                if name not in leave_out
            }

    def audit(self, action: str) -> list[dict[str, Any]]:
        """Return the lines of the audit log about an action."""
        lines = map(json.loads, admin.audit_lines(self.engine))
        return [line for line in lines if line["action"] == action]


def key_given(
    purpose: Literal["enrol", "rekey"],
    member: str,
    secret: str,
    keys: KeyPair,
    *,
    federation: str = "liver",
    agreed: Federation = AGREED,
) -> dict[str, str]:
    """Return a key and its proof, as a request to enrol or to change the key has them.

    Args:
        purpose: Which of the two.
        member: The name of the member.
        secret: The secret of the invitation, or the member's token.
        keys: The key pair.
        federation: The name of the federation.
        agreed: The federation.
    """
    shared = federation, agreed.fingerprint, member, digest(secret)
    return {"key": str(keys), "proof": Statement(purpose, *shared).sign(keys)}


def message(
    sender: str,
    sequence: int = 1,
    *,
    agreed: Federation = AGREED,
    keys: KeyPair | None = None,
    omega: Any = None,
    **header: Any,
) -> Message:
    """Return a message of an agent."""
    if omega is None:
        omega = np.random.default_rng(sequence).standard_normal(agreed.features)
    given: dict[str, Any] = {
        "fingerprint": agreed.fingerprint,
        "epoch": agreed.epoch,
        "sender": sender,
        "sequence": sequence,
        "t_n": 3,
        **header,
    }
    made = Message.of_weights(omega, **given)
    return made if keys is None else keys.sign(made)


def scalars(sender: str, agreed: Federation = AGREED) -> Scalars:
    """Return the scalars of an agent."""
    return Scalars(
        fingerprint=agreed.fingerprint,
        sender=sender,
        length_scales=(0.4, 0.5),
        noise_variance=0.01,
        t_n=20,
    )


def wanted(**given: Any) -> dict[str, Any]:
    """Return what a fetch sends."""
    content = msgspec.msgpack.encode(Wanted(**{"epoch": 0, **given}))
    return {"content": content, "headers": {"content-type": MEDIA_TYPE}}


def news(response: httpx.Response) -> News:
    """Return what a fetch was answered."""
    assert response.status_code == 200, response.text
    return msgspec.msgpack.decode(response.content, type=News)


def problem(response: httpx.Response) -> str:
    """Return which problem an answer is about; fail if it is not a whole one."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    document: Mapping[str, Any] = response.json()
    assert document["status"] == response.status_code
    assert document["instance"] == response.headers["x-request-id"]
    assert document["title"] and document["detail"]
    return str(document["type"]).removeprefix("/problems/")


def later(seconds: float = 1.1) -> None:
    """Wait until a token that was found is looked up again."""
    time.sleep(seconds)
