"""The ClientApp of a fleet: a node runs trials of its own objective and answers with a message."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedbo.agent.settings import Settings
from fedbo.federation.federation import Federation
from fedbo.flower import wire
from fedbo.flower.folders import site_folder
from fedbo.flower.site import Score, Site
from fedbo.flower.wire import log
from fedbo.message import Message as FedboMessage
from fedbo.message.signed import SENDER_BYTES
from fedbo.policy import Policy

_local_epsilon: ContextVar[float | None] = ContextVar(
    "local_epsilon", default=None
)  # while the mod is at work


class NothingSent(RuntimeError):
    """What would have left the node was stopped. The text has no more than kinds of errors."""


def client_app(
    federation: Federation | str | os.PathLike[str],
    objective: Callable[[Context], Score],
    *,
    policy: Policy | None = None,
    settings: Settings | None = None,
    seed: int | None = None,
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """Return a ClientApp whose nodes are the agents of a federation.

    In each round, a node hears what the server hands out, runs some trials, and answers with its
    message. Its trials stay in a folder of the node, and outlive every run: `fedbo.flower.folders`
    says where. What a node is called is decided by ``name`` in its node config, or, in a
    simulation, by its partition: ``site-0``, ``site-1`` and so on.

    Args:
        federation: What all nodes agree on, or the path of its file. If it lists members, nodes
            sign with the keys of their users.
        objective: Called once in each round with Flower's context of the node. It returns the
            function that scores params, for example one that has loaded the node's data.
        policy: How queries are chosen; the default policy if None.
        settings: How agents start and model their objectives.
        seed: For simulations: the agent of partition i has the seed ``seed + i``. Leave it out if
            messages must stay private.
        mods: Flower mods, such as `local_votes`.

    >>> from fedbo import Federation, Float
    >>> def objective(context):
    ...     best = context.node_config["partition-id"] / 10
    ...     return lambda params: -abs(params["x"] - best)
    >>> app = client_app(Federation({"x": Float(0, 1)}), objective, seed=0)
    """
    agreed = federation if isinstance(federation, Federation) else Federation.load(federation)
    app = ClientApp(mods=[*mods])

    @app.train()
    def work(message: Message, context: Context) -> Message:
        task = wire.unpacked(message.content, wire.Instruction)
        site = _site(agreed, context, policy, settings, seed)
        log.info(
            "%s: round %d, %d messages handed out, trials are in %s",
            site.name, task.round, len(task.heard), site.path,
        )  # fmt: skip
        try:
            score = objective(context)
        except Exception as error:
            log.exception("%s: there is no objective", site.name)
            raise NothingSent(
                f"the objective of {site.name!r} raised {type(error).__name__}; the log of the "
                "node says more"
            ) from None
        handed_out = site.work(task.heard, task.trials, score, patience=task.patience)
        return Message(wire.packed(wire.Answer(message=handed_out)), reply_to=message)

    return app


def _site(
    federation: Federation,
    context: Context,
    policy: Policy | None,
    settings: Settings | None,
    seed: int | None,
) -> Site:
    """Return the site of a node."""
    if (epsilon := _local_epsilon.get()) is not None:
        settings = msgspec.structs.replace(settings or Settings(), local_epsilon=epsilon)
    name, partition = node_name(context.node_config), context.node_config.get("partition-id")
    if seed is not None:
        if not isinstance(partition, int):
            raise ValueError(
                f"seed is {seed}, but node {name!r} has no partition-id, so that all nodes would "
                "ask the same queries: leave out the seed, which is for simulations"
            )
        seed += partition
    return Site(site_folder(federation, name, context), name, federation, policy, settings, seed)


def node_name(node_config: Mapping[str, Any]) -> str:
    """Return what the node with this configuration is called among its peers.

    >>> node_name({"name": "clinic-a"}), node_name({"partition-id": 3})
    ('clinic-a', 'site-3')
    """
    chosen, partition = node_config.get("name"), node_config.get("partition-id")
    if chosen is None and partition is None:
        raise ValueError(
            "this node has no name, and without one its trials could not be found again: start it "
            "with flower-supernode --node-config 'name=\"clinic-a\"'"
        )
    name = str(f"site-{partition}" if chosen is None else chosen)
    if not name.isprintable() or not 1 <= len(name.encode()) <= SENDER_BYTES:
        raise ValueError(
            f"name in the node config is {name[:80]!r}, expected 1 to {SENDER_BYTES} bytes of "
            "printable UTF-8"
        )
    return name


def local_votes(epsilon: float) -> Mod:
    """Return a Flower mod that lets nothing but a randomised vote leave the site.

    The federation must have a privacy plan. The agent's vote then depends on its first trials and a
    secret, never changes, and costs ε of local privacy once, however many rounds there are; see
    `fedbo.privacy.local`. The mod looks at what leaves, and stops anything else. Of an error, the
    server only hears that there was one.

    >>> from fedbo.flower import client_app
    >>> app = client_app("federation.toml", objective, mods=[local_votes(4.0)])  # doctest: +SKIP
    """
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon is {epsilon}, expected a number above 0, not infinite")

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        before = _local_epsilon.set(epsilon)
        try:
            answer = wire.unpacked(call_next(message, context).content, wire.Answer)
        except Exception:
            log.exception("the node failed")
            raise NothingSent("the node failed; its own log says why") from None
        finally:
            _local_epsilon.reset(before)
        sent = FedboMessage.decode(answer.message) if answer.message else None
        if sent is not None and (not 0.0 < (sent.local_epsilon or 0.0) <= epsilon or sent.y.any()):
            raise NothingSent(
                f"nothing was sent: the answer is not a vote with local ε = {epsilon}; use the "
                "ClientApp of fedbo.flower.client_app"
            )
        return Message(wire.packed(answer), reply_to=message)

    return mod
