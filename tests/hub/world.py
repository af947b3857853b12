"""A hub in this process with federations, members and an operator, for tests of its API."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import httpx
import msgspec
import numpy as np
import pytest
from sqlalchemy import Engine, select

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.proof import Statement, hashed
from fedbo.exchange.hub.wire import MEDIA_TYPE, News, Progress, Publication, Wanted
from fedbo.federation import Federation, Plan
from fedbo.hub import store
from fedbo.hub.app import JsonLines, create_app
from fedbo.hub.names import COMMAND_LINE as ACTOR
from fedbo.hub.problems import Refused
from fedbo.hub.records import ReleaseInfo, ReleaseLedger
from fedbo.hub.settings import Settings
from fedbo.hub.store import schema
from fedbo.identity import KeyPair
from fedbo.message import Message, Release, Withdrawal
from fedbo.space import Float

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Starlette, about the client that it uses
    from starlette.testclient import TestClient

M = 8
SPACE = {"x": Float(0, 1), "y": Float(0, 1)}
AGREED = Federation(SPACE, features=M, seed=3, kind="weights")
PLAN = Plan(epsilon=2.0, delta=1e-3, releases=2, least_trials=3)
HERE = "/v1/federations/liver"
_LOG = logging.getLogger("fedbo.hub")
BINARY = {"content-type": MEDIA_TYPE}


class World:
    """A running hub. Use it in a ``with`` statement.

    Args:
        url: The address of its database.
        **settings: Of the hub; by default it has no limits on requests.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        self.lines = io.StringIO()
        self.app = create_app(Settings(db=url, **{"rate": 0.0, **settings}))
        self.service = self.app.state.service

    def __enter__(self) -> World:
        self._handler = logging.StreamHandler(self.lines)
        self._handler.setFormatter(JsonLines())
        _LOG.addHandler(self._handler)
        _LOG.setLevel(logging.INFO)
        self.client = TestClient(self.app, raise_server_exceptions=False)
        self.client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.__exit__(None, None, None)
        _LOG.removeHandler(self._handler)

    @property
    def engine(self) -> Engine:
        engine: Engine = self.service.engine
        return engine

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]

    def operator(self, name: str = "ann") -> str:
        with store.begin(self.engine) as connection:
            return store.new_operator(connection, name, actor=ACTOR)

    def federation(self, name: str = "liver", agreed: Federation = AGREED) -> str:
        """Create a federation; return the secret of an invitation to it."""
        with store.begin(self.engine) as connection:
            store.create_federation(connection, name, agreed, actor=ACTOR)
            invited = store.invite(connection, name, uses=1000, actor=ACTOR)
        return Invitation.parse(invited.invitation).secret

    def enrol(self, secret: str, name: str, keys: KeyPair | None = None) -> str:
        """Enrol a member; return its token."""
        with store.begin(self.engine) as connection:
            key = None if keys is None else keys.public
            return store.enrol(connection, secret, name, key).token

    def ask(self, method: str, path: str, token: str | None = None, **given: Any) -> httpx.Response:
        """Send a request."""
        headers = dict(given.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.client.request(method, path, headers=headers, **given)

    def put(
        self,
        content: Message | Withdrawal | bytes,
        token: str,
        *,
        progress: Progress | None = None,
        here: str = HERE,
    ) -> httpx.Response:
        """Publish something."""
        data = content if isinstance(content, bytes) else content.encode()
        body = msgspec.msgpack.encode(Publication(data, progress))
        return self.ask("PUT", f"{here}/messages", token, content=body, headers=BINARY)

    def fetch(self, token: str, cursor: str = "", *, here: str = HERE) -> News:
        """Return what is handed out."""
        body = msgspec.msgpack.encode(Wanted(cursor))
        answer = self.ask("POST", f"{here}/fetch", token, content=body, headers=BINARY)
        assert answer.status_code == 200, answer.text
        return msgspec.msgpack.decode(answer.content, type=News)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return all that is stored, except for when members were seen."""
        with self.engine.connect() as connection:
            return {
                name: [
                    tuple(row)
                    for row in connection.execute(
                        select(*(c for c in table.c if c.name != "seen")).order_by(table.c.id)
                    )
                ]
                for name, table in schema.metadata.tables.items()
            }

    def audit(self, action: str) -> list[dict[str, Any]]:
        """Return the lines of the audit log about an action."""
        lines = map(json.loads, store.audit_lines(self.engine))
        return [line for line in lines if line["action"] == action]


class Lung:
    """The federation ``lung`` with a privacy plan, an operator and members without keys."""

    def __init__(self, world: World, agreed: Federation, *names: str) -> None:
        self.world, self.agreed = world, agreed
        self.operator = world.operator()
        self.secret = world.federation("lung", agreed)
        self.tokens = {name: world.enrol(self.secret, name) for name in names}
        self.here = "/v1/federations/lung"

    def ask(self, method: str, path: str, who: str = "", **given: Any) -> httpx.Response:
        """Send a request of a member, or of the operator."""
        token = self.tokens[who] if who else self.operator
        return self.world.ask(method, self.here + path, token, **given)

    def contribute(self, *names: str, sequence: int = 1, **given: Any) -> None:
        for name in names:
            made = contribution(self.agreed, name, sequence, **given)
            answer = self.world.put(made, self.tokens[name], here=self.here)
            assert answer.json() == {"out": True}, answer.text

    def fetch(self, who: str = "a", cursor: str = "") -> list[Release]:
        """Return the releases that a member is handed out; fail if it gets anything else."""
        handed = self.world.fetch(self.tokens[who], cursor, here=self.here).handed
        return [Release.decode(each.content) for each in handed]

    def ledger(self) -> ReleaseLedger:
        with self.world.engine.connect() as connection:
            return store.ledger(connection, "lung")

    def recorded(self) -> list[Any]:
        """Return the rows of the table of releases."""
        with self.world.engine.connect() as connection:
            query = select(schema.release).order_by(schema.release.c.sequence)
            return [*connection.execute(query)]

    def make(self, *, keys: KeyPair | None = None, number: int | None = None) -> ReleaseInfo:
        """Make a release as the command line does."""
        with store.begin(self.world.engine) as connection:
            return store.make_release(connection, "lung", actor=ACTOR, keys=keys, number=number)

    def refuses(self, number: int | None = None) -> str:
        """Return why no release can be made."""
        with pytest.raises(Refused) as refused:
            self.make(number=number)
        return refused.value.slug


def private_federation(plan: Plan = PLAN, **given: Any) -> Federation:
    """Return a federation with a privacy plan."""
    return Federation(SPACE, features=20, seed=3, privacy=plan, **given)


def contribution(
    agreed: Federation, sender: str, sequence: int = 1, *, cell: int = 0, t_n: int = 5
) -> Message:
    """Return a contribution with a shape that depends on the sender and the sequence."""
    rng = np.random.default_rng([sequence, *sender.encode()])
    return Message.of_contribution(
        rng.standard_normal(agreed.shape_coordinates),
        cell,
        fingerprint=agreed.fingerprint,
        sender=sender,
        sequence=sequence,
        t_n=t_n,
    )


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
    shared = federation, agreed.fingerprint, member, hashed(secret)
    return {"key": str(keys), "proof": Statement(purpose, *shared).sign(keys)}


def message(
    sender: str,
    sequence: int = 1,
    *,
    agreed: Federation = AGREED,
    keys: KeyPair | None = None,
    **header: Any,
) -> Message:
    """Return a message of an agent."""
    omega = np.random.default_rng(sequence).standard_normal(agreed.features)
    given = {"fingerprint": agreed.fingerprint, "sequence": sequence, "t_n": 3, **header}
    made = Message.of_weights(omega, sender=sender, **given)
    return made if keys is None else keys.sign(made)


def withdrawal(sender: str, sequence: int, keys: KeyPair) -> Withdrawal:
    """Return a signed withdrawal."""
    made = Withdrawal(fingerprint=AGREED.fingerprint, sender=sender, sequence=sequence)
    return keys.sign(made)


def problem(response: httpx.Response) -> str:
    """Return which problem an answer is about; fail if it is not a whole one."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    document: Mapping[str, Any] = response.json()
    assert document["status"] == response.status_code
    assert document["instance"] == response.headers["x-request-id"]
    assert document["title"] and document["detail"]
    return str(document["type"]).removeprefix("/problems/")
