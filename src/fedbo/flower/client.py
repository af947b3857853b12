"""The ClientApp of a fleet: a node runs trials of its own objective and answers with a message."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from fedbo.agent.settings import Settings
from fedbo.federation import Federation
from fedbo.flower import votes, wire
from fedbo.flower.folders import site_folder
from fedbo.flower.site import Score, Site, log
from fedbo.policy import Policy


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
        federation: What all nodes agree on, or the path of its file.
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
    app = ClientApp(mods=[*mods])
    loaded = _Loaded(federation)

    @app.train()
    def work(message: Message, context: Context) -> Message:
        asked = wire.instruction(message.content)
        site = _site(loaded(), context, policy, settings, seed)
        log.info("%s: round %d, %d messages heard", site.name, asked.round, len(asked.heard))
        handed_out = site.work(
            asked.heard, asked.trials, objective(context), patience=asked.patience
        )
        return Message(wire.packed(wire.Answer(message=handed_out)), reply_to=message)

    return app


class _Loaded:
    """A federation that is read from its file when it is first needed."""

    def __init__(self, given: Federation | str | os.PathLike[str]) -> None:
        self._given = given

    def __call__(self) -> Federation:
        if not isinstance(self._given, Federation):
            self._given = Federation.load(self._given)
        return self._given


def _site(
    federation: Federation,
    context: Context,
    policy: Policy | None,
    settings: Settings | None,
    seed: int | None,
) -> Site:
    """Return the site of a node."""
    epsilon = votes.asked.get()
    if epsilon is not None:
        settings = msgspec.structs.replace(settings or Settings(), local_epsilon=epsilon)
    partition = int(context.node_config.get("partition-id", 0))
    name = node_name(context.node_config)
    return Site(
        site_folder(federation, name, context),
        name,
        federation,
        policy=policy,
        settings=settings,
        seed=None if seed is None else seed + partition,
    )


def node_name(node_config: Mapping[str, Any]) -> str:
    """Return what a node is called among its peers.

    Args:
        node_config: The configuration of the node.

    >>> node_name({"name": "clinic-a"}), node_name({"partition-id": 3})
    ('clinic-a', 'site-3')
    """
    if name := node_config.get("name"):
        return str(name)
    if (partition := node_config.get("partition-id")) is not None:
        return f"site-{partition}"
    raise ValueError(
        "this node has no name, and without one its trials could not be found again: start it with "
        "flower-supernode --node-config 'name=\"clinic-a\"'"
    )
