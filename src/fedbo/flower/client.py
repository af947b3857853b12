"""The ClientApp of a fleet: a node runs trials of its own objective and answers with a message."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedbo.agent.settings import Settings
from fedbo.federation.federation import Federation
from fedbo.flower import wire
from fedbo.flower.folders import site_folder
from fedbo.flower.site import Score, Site
from fedbo.flower.wire import log
from fedbo.message.signed import SENDER_BYTES
from fedbo.policy import Policy


class NothingSent(RuntimeError):
    """The node does not answer. Its server sees this text, which names only kinds of errors."""


def client_app(
    federation: Federation | str | os.PathLike[str],
    objective: Callable[[Context], Score],
    *,
    policy: Policy | None = None,
    settings: Settings | None = None,
    seed: int | None = None,
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

    >>> from fedbo import Federation, Float
    >>> def objective(context):
    ...     best = context.node_config["partition-id"] / 10
    ...     return lambda params: -abs(params["x"] - best)
    >>> app = client_app(Federation({"x": Float(0, 1)}), objective, seed=0)
    """
    agreed = federation if isinstance(federation, Federation) else Federation.load(federation)
    app = ClientApp()

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
