"""A hub in this process with federations and members, for tests of its API."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import httpx2
import msgspec
import numpy as np
import pytest
from contracts.hub_rows import ACTOR, AGREED, Desk
from sqlalchemy import Engine, select

from fedbo.exchange.hub.proof import Statement, change, hashed
from fedbo.exchange.hub.wire import MEDIA_TYPE, News, Wanted
from fedbo.federation import Federation, Plan
from fedbo.federation.shared import Shared
from fedbo.hub import store
from fedbo.hub.app import JsonLines, create_app
from fedbo.hub.problems import Refused
from fedbo.hub.records import ReleaseInfo, ReleaseLedger
from fedbo.hub.service import release_keys
from fedbo.hub.settings import Settings
from fedbo.hub.store import schema
from fedbo.message import Message, Release, Withdrawal
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Starlette, about anyio
    from starlette.testclient import TestClient

PLAN = Plan(epsilon=2.0, delta=1e-3, releases=2, least_trials=3)
HERE = "/v1/federations/liver"
_LOG = logging.getLogger("fedbo.hub")
BINARY = {"content-type": MEDIA_TYPE}


class World(Desk):
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
    def engine(self) -> Engine:  # type: ignore[override]
        engine: Engine = self.service.engine
        return engine

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]

    def ask(
        self, method: str, path: str, token: str | None = None, **given: Any
    ) -> httpx2.Response:
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
        here: str = HERE,
    ) -> httpx2.Response:
        """Publish something."""
        data = content if isinstance(content, bytes) else content.encode()
        return self.ask("PUT", f"{here}/messages", token, content=data, headers=BINARY)

    def fetch(self, token: str, cursor: str = "", *, here: str = HERE) -> News:
        """Return what is handed out."""
        body = msgspec.msgpack.encode(Wanted(cursor))
        answer = self.ask("POST", f"{here}/fetch", token, content=body, headers=BINARY)
        assert answer.status_code == 200, answer.text
        return msgspec.msgpack.decode(answer.content, type=News)

    def audit(self, action: str) -> list[dict[str, Any]]:
        """Return the lines of the audit log about an action."""
        lines = map(json.loads, store.audit_lines(self.engine))
        return [line for line in lines if line["action"] == action]


class Lung:
    """The federation ``lung`` with a privacy plan, and members."""

    def __init__(self, world: World, agreed: Federation, *names: str) -> None:
        self.world, self.agreed = world, agreed
        self.secret = world.federation("lung", agreed)
        self.tokens = {name: world.enrol(self.secret, name) for name in names}
        self.here = "/v1/federations/lung"

    def ask(self, method: str, path: str, who: str, **given: Any) -> httpx2.Response:
        """Send a request of a member."""
        return self.world.ask(method, self.here + path, self.tokens[who], **given)

    def contribute(self, *names: str, sequence: int = 1, **given: Any) -> None:
        for name in names:
            made = contribution(self.agreed, name, sequence, **given)
            answer = self.world.put(made, self.tokens[name], here=self.here)
            assert answer.json() == {"out": True}, answer.text

    def withdraw(self, sent: Message) -> None:
        header = {"fingerprint": sent.fingerprint, "sender": sent.sender}
        gone = keys_of(sent.sender).sign(Withdrawal(sequence=sent.sequence, **header))
        token = self.tokens[sent.sender.partition("/")[0]]
        assert self.world.put(gone, token, here=self.here).json() == {"out": True}

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
        keys = keys or release_keys(self.world.service.settings)
        with store.begin(self.world.engine) as connection:
            return store.make_release(connection, "lung", actor=ACTOR, keys=keys, number=number)

    def refuses(self, number: int | None = None) -> str:
        """Return why no release can be made."""
        with pytest.raises(Refused) as refused:
            self.make(number=number)
        return refused.value.slug


def private_federation(plan: Plan = PLAN, **given: Any) -> Federation:
    """Return a federation with a privacy plan."""
    return Federation(AGREED.space, features=20, seed=3, privacy=plan, **given)


def contribution(
    agreed: Federation, sender: str, sequence: int = 1, *, cell: int = 0, t_n: int = 5
) -> Message:
    """Return a signed contribution with a shape that depends on the sender and the sequence."""
    rng = np.random.default_rng([sequence, *sender.encode()])
    made = Message.of_contribution(
        rng.standard_normal(Shared.of(agreed).shape_coordinates),
        cell,
        basis=Shared.of(agreed).basis.digest,
        fingerprint=agreed.fingerprint,
        sender=sender,
        sequence=sequence,
        t_n=t_n,
    )
    return keys_of(sender).sign(made)


def newcomer(secret: str, name: str, keys: KeyPair | None = None, **given: Any) -> dict[str, str]:
    """Return the body of a request to enrol, with the key of the name if no other is given."""
    return {"secret": secret, "name": name, **proof("enrol", name, hashed(secret), keys, **given)}


def proof(
    purpose: Literal["enrol", "rekey"],
    member: str,
    signed: bytes,
    keys: KeyPair | None = None,
    *,
    federation: str = "liver",
    agreed: Federation = AGREED,
) -> dict[str, str]:
    """Return a key and the proof that a member has it."""
    keys = keys or keys_of(member)
    statement = Statement(purpose, federation, agreed.fingerprint, member, signed)
    return {"key": str(keys), "proof": statement.sign(keys)}


def new_key(nonce: str, member: str, old: KeyPair, new: KeyPair, **given: Any) -> dict[str, str]:
    """Return the body of a request to change a key."""
    signed = change(old.public, new.public, bytes.fromhex(nonce))
    by_old = proof("rekey", member, signed, old, **given)["proof"]
    return {**proof("rekey", member, signed, new, **given), "old_proof": by_old}


def problem(response: httpx2.Response) -> str:
    """Return which problem an answer is about; fail if it is not a whole one."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    document: Mapping[str, Any] = response.json()
    assert document["status"] == response.status_code
    assert document["instance"] == response.headers["x-request-id"]
    assert document["title"] and document["detail"]
    return str(document["type"]).removeprefix("/problems/")
