"""Flower's `Grid` in one process: its nodes call a ClientApp directly, and answer when told to.

It stands for nodes that are late, die or join at an exact moment, which a real deployment cannot be
made to do. Real deployments and simulations are tested in test_deployment.py and test_example.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

NEVER = float("inf")


class Loopback(Grid):
    """A grid of nodes that run ``app``, with the node config that ``config`` returns.

    ``answers[node]`` says in which round its answer to a round is there, by default in the same;
    `NEVER` is a node that was killed. ``arrives[node]`` is the round from which on it is there.
    """

    def __init__(
        self, app: ClientApp, nodes: int, folder: Path, config: Callable[[int], dict[str, Any]]
    ) -> None:
        self.app, self.nodes, self.folder, self.config = app, nodes, folder, config
        self.answers: dict[int, Callable[[int], float]] = {}
        self.arrives: dict[int, int] = {}
        self.rounds: list[list[int]] = []  # the nodes that were asked in each round
        self._replies: dict[str, tuple[float, Message]] = {}
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # of this process

    @property
    def run(self) -> Run:
        raise AssertionError("nobody needs it")

    def set_run(self, run: Run) -> None:
        raise AssertionError("nobody needs it")

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise AssertionError("it is deprecated")

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        raise AssertionError("it would lose answers that are late")

    def get_node_ids(self) -> list[int]:
        now = len(self.rounds) + 1
        return [node for node in range(self.nodes) if self.arrives.get(node, 1) <= now]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids, nodes = [], []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            ids.append(message.metadata.message_id)
            nodes.append(message.metadata.dst_node_id)
            now = len(self.rounds) + 1
            when = self.answers.get(nodes[-1], float)(now)
            if when < NEVER:
                self._replies[ids[-1]] = when, self._answer(message)
        self.rounds.append(nodes)
        return ids

    def _answer(self, message: Message) -> Message:
        try:
            return self.app(message, self.context(message.metadata.dst_node_id))
        except Exception as error:  # as Flower does
            return Message(Error(code=2, reason=repr(error)), reply_to=message)

    def context(self, node: int = 0, **run_config: Any) -> Context:
        return Context(
            run_id=1,
            node_id=node,
            node_config=self.config(node),
            state=RecordDict(),
            run_config={"folder": str(self.folder), **run_config},
        )

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        due = [
            message_id
            for message_id in reversed([*message_ids])  # grids promise no order
            if self._replies.get(message_id, (NEVER, None))[0] <= len(self.rounds)
        ]
        return [self._replies.pop(message_id)[1] for message_id in due]


def partition(node: int) -> dict[str, Any]:
    """The node config of a simulated node."""
    return {"partition-id": node}
