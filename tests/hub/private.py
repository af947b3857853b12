"""A federation with a privacy plan at a hub in this process, for tests of private releases."""

from __future__ import annotations

from typing import Any

import numpy as np
from hub.world import ACTOR, World, news, wanted
from sqlalchemy import select

from fedbo.exchange.hub.wire import MEDIA_TYPE
from fedbo.federation import Federation, Plan
from fedbo.hub import admin, schema
from fedbo.hub.database import begin
from fedbo.identity import KeyPair
from fedbo.message import Message, Release
from fedbo.space import Float

PLAN = Plan(epsilon=2.0, delta=1e-3, releases=2, least_trials=3)
HERE = "/v1/federations/lung"
BINARY = {"headers": {"content-type": MEDIA_TYPE}}


def federation(plan: Plan = PLAN, **given: Any) -> Federation:
    """Return a federation with a privacy plan."""
    space = {"x": Float(0, 1), "y": Float(0, 1)}
    return Federation(space, features=20, seed=3, privacy=plan, **given)


def contribution(
    agreed: Federation, sender: str, sequence: int = 1, *, cell: int = 0, t_n: int = 5
) -> Message:
    """Return a contribution with a shape that depends on the sender and the sequence."""
    rng = np.random.default_rng([sequence, *sender.encode()])
    return Message.of_contribution(
        rng.standard_normal(agreed.shape_coordinates),
        cell,
        fingerprint=agreed.fingerprint,
        epoch=agreed.epoch,
        sender=sender,
        sequence=sequence,
        t_n=t_n,
    )


class Lung:
    """The federation ``lung`` at a running hub, with an operator and members without keys.

    Args:
        world: The hub.
        agreed: What the members agree on.
        *names: Of the members.
    """

    def __init__(self, world: World, agreed: Federation, *names: str) -> None:
        self.world, self.agreed = world, agreed
        self.operator = world.operator()
        self.secret = world.federation("lung", agreed)
        self.tokens = {name: world.enrol(self.secret, name) for name in names}

    def ask(self, method: str, path: str, who: str = "", **given: Any) -> Any:
        """Send a request of a member, or of the operator."""
        token = self.tokens[who] if who else self.operator
        return self.world.ask(method, HERE + path, token, **given)

    def put(self, content: Message | bytes, who: str = "a") -> Any:
        data = content if isinstance(content, bytes) else content.encode()
        return self.ask("PUT", "/messages", who, content=data, **BINARY)

    def contribute(self, *names: str, sequence: int = 1, **given: Any) -> None:
        for name in names:
            made = contribution(self.agreed, name, sequence, **given)
            answer = self.put(made, name)
            assert answer.json() == {"out": True}, answer.text

    def release(self, **body: Any) -> Any:
        return self.ask("POST", "/releases", json=body)

    def fetch(self, who: str = "a", **given: Any) -> list[Release]:
        """Return the releases that a member is handed out; fail if it gets anything else."""
        found = news(self.ask("POST", "/fetch", who, **wanted(**given)))
        return [Release.decode(one.content) for one in found.handed]

    def ledger(self) -> dict[str, Any]:
        return dict(self.ask("GET", "/releases").json())

    def recorded(self) -> list[Any]:
        """Return the rows of the table of releases."""
        with self.world.engine.connect() as connection:
            query = select(schema.release).order_by(schema.release.c.sequence)
            return [*connection.execute(query)]

    def make(self, *, keys: KeyPair | None = None, number: int | None = None) -> admin.Made:
        """Make a release as the command line does."""
        with begin(self.world.engine) as connection:
            return admin.make_release(connection, "lung", actor=ACTOR, keys=keys, number=number)
