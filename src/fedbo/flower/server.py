"""The ServerApp of a fleet: rounds in which nodes run trials and hear of one another.

In a round, every node that is there is asked for some trials, and handed what it may hear. The
server waits until all have answered, or for ``timeout`` seconds. It never waits twice for the same
node: one that did not answer in time is still asked, and its answer counts whenever it comes, but
nobody waits for it until then. A node that joins later takes part from the next round on.

What a server needs in the next run is in its folder, and what a node needs is in its own. So a run
that was stopped in any way is simply started again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fedbo.exchange import ExchangeError
from fedbo.federation import Federation
from fedbo.flower import wire
from fedbo.flower.folders import server_folder
from fedbo.flower.mailbox import MOST, Hear, Mailbox
from fedbo.flower.site import log
from fedbo.identity import KeyPair
from fedbo.message import MessageRefused
from fedbo.outside import printable, shortened

_PAUSE = 0.25  # seconds between two looks for answers
_LONGEST = 500  # characters of an error of a node


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """How a server runs a federation.

    The run config of an app (``[tool.flwr.app.config]``, or ``flwr run --run-config``) may replace
    ``rounds``, ``trials``, ``nodes`` and ``timeout``.

    Args:
        federation: What all nodes agree on.
        rounds: How many rounds a run has.
        trials: How many trials each node runs in a round.
        nodes: How many nodes must be there before the first round begins.
        timeout: Seconds to wait for the answers of a round, and for these nodes.
        hear: Which messages a node hears if there are more than ``most``: "uniform", a random
            sample that stays the same, or "alike", those that are most like its own.
        most: The most messages that a node hears.
        keys: The key pair that signs private releases; without one they are not signed.

    >>> from fedbo import Federation, Float
    >>> Rounds(federation=Federation({"x": Float(0, 1)})).with_config({"rounds": 5}).rounds
    5
    """

    federation: Federation
    rounds: int = 3
    trials: int = 3
    nodes: int = 1
    timeout: float = 600.0
    hear: Hear = "uniform"
    most: int = MOST
    keys: KeyPair | None = None

    def __post_init__(self) -> None:
        for name in ("rounds", "trials", "nodes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is {value!r}, expected an int of 1 or more")
        if not 0.0 < self.timeout < float("inf"):
            raise ValueError(f"timeout is {self.timeout!r}, expected a number of seconds above 0")

    def with_config(self, config: Mapping[str, Any]) -> Rounds:
        """Return the same with what a run config gives.

        Args:
            config: The run config; other keys in it are ignored.
        """
        names = ("rounds", "trials", "nodes", "timeout")
        return msgspec.structs.replace(self, **{n: config[n] for n in names if n in config})

    def run(self, grid: Grid, context: Context) -> Mailbox:
        """Run all rounds; return the mailbox with the latest messages.

        Args:
            grid: Flower's grid.
            context: Flower's context of the ServerApp.

        Raises:
            RuntimeError: If there are too few nodes, or if none answered in any round.
        """
        asked = self.with_config(context.run_config)
        folder = server_folder(self.federation, context)
        mailbox = Mailbox(folder, self.federation, hear=self.hear, most=self.most, keys=self.keys)
        log.info("the server starts with %d messages from %s", len(mailbox), folder)
        return _Run(asked, grid, mailbox).run()


def server_app(
    federation: Federation | str | os.PathLike[str],
    *,
    hear: Hear = "uniform",
    most: int = MOST,
    keys: KeyPair | None = None,
) -> ServerApp:
    """Return a ServerApp that runs a federation, see `Rounds`.

    To do something before or after the rounds, write a ServerApp of your own and call
    `Rounds.run` in it. If the federation has a privacy plan, nodes send contributions and hear
    private releases. A release is made at the beginning of a round, as long as there are releases
    left, when ``least_members`` members have contributed.

    Args:
        federation: What all nodes agree on, or the path of its file.
        hear: As for `Rounds`.
        most: As for `Rounds`.
        keys: As for `Rounds`.

    >>> from fedbo import Federation, Float
    >>> app = server_app(Federation({"x": Float(0, 1)}))
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        agreed = federation if isinstance(federation, Federation) else Federation.load(federation)
        Rounds(federation=agreed, hear=hear, most=most, keys=keys).run(grid, context)

    return app


class _Run:
    """The rounds of one run."""

    def __init__(self, asked: Rounds, grid: Grid, mailbox: Mailbox) -> None:
        self.asked, self.grid, self.mailbox = asked, grid, mailbox
        self.open: dict[str, int] = {}  # the node of each message that is not answered yet
        self.answers = 0
        self.error = ""  # of the last node that reported one

    def run(self) -> Mailbox:
        nodes = self._enough_nodes()
        for number in range(1, self.asked.rounds + 1):
            self._round(number, nodes)
            nodes = self._present()
        if not self.answers:
            why = f"; the last error was: {self.error}" if self.error else ""
            raise RuntimeError(
                f"no node answered in {self.asked.rounds} rounds of up to {self.asked.timeout:g} s"
                f"{why}"
            )
        return self.mailbox

    def _present(self) -> list[int]:
        return sorted(self.grid.get_node_ids())

    def _enough_nodes(self) -> list[int]:
        """Wait until enough nodes are there."""
        least, deadline = self.asked.nodes, time.monotonic() + self.asked.timeout
        while len(nodes := self._present()) < least:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{len(nodes)} nodes are there after {self.asked.timeout:g} s, expected "
                    f"{least}: start more nodes, or lower 'nodes' in the run config"
                )
            time.sleep(_PAUSE)
        return nodes

    def _round(self, number: int, nodes: Sequence[int]) -> None:
        if self.mailbox.federation.privacy is not None:
            self._release()
        late = {*self.open.values()}
        sent = self._send(number, nodes)
        awaited = {one for one, node in sent.items() if node not in late}
        self.open |= sent
        before, deadline = self.answers, time.monotonic() + self.asked.timeout
        while True:
            self._collect()
            if not awaited & self.open.keys() or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE)
        log.info(
            "round %d of %d: %d of %d nodes asked, %d answers, %d messages held",
            number, self.asked.rounds, len(sent), len(nodes), self.answers - before,
            len(self.mailbox),
        )  # fmt: skip
        if missing := sorted({self.open[one] for one in awaited & self.open.keys()}):
            log.warning("no answer in %g s from nodes %s", self.asked.timeout, _listed(missing))

    def _release(self) -> None:
        try:
            if (made := self.mailbox.release()) is not None:
                log.info("private release %d of %d members", made.sequence, made.members)
        except ExchangeError as error:  # the round goes on with the releases that there are
            log.warning("no private release: %s", error)

    def _send(self, number: int, nodes: Sequence[int]) -> dict[str, int]:
        """Ask the nodes; return the ids of the messages to them."""
        heard = self.mailbox.heard_by(nodes)
        messages = [
            Message(
                wire.packed(
                    wire.Instruction(
                        round=number,
                        trials=self.asked.trials,
                        heard=heard[node],
                        patience=self.asked.timeout,
                    )
                ),
                dst_node_id=node,
                message_type=wire.MESSAGE_TYPE,
                group_id=str(number),
            )
            for node in nodes
        ]
        pushed = {one for one in self.grid.push_messages(messages) if one}
        if messages and not pushed:
            largest = max(sum(map(len, each)) for each in heard.values())
            raise RuntimeError(
                f"the SuperLink took none of {len(messages)} messages of up to {largest:,} bytes: "
                "if they are too large, let nodes hear fewer messages (most=...)"
            )
        ids = {one.metadata.message_id: one.metadata.dst_node_id for one in messages}
        return {one: node for one, node in ids.items() if one in pushed}

    def _collect(self) -> None:
        """Take the answers that have arrived."""
        if self.open:
            for reply in self.grid.pull_messages([*self.open]):
                node = self._close(reply.metadata.reply_to_message_id)
                if node is not None:
                    self._take(node, reply)

    def _close(self, answered: str) -> int | None:
        """Wait no longer for the answer to a message, nor to earlier ones; return its node.

        A node works in order: what it has left out, because it was killed, it never answers.
        """
        node = self.open.get(answered)
        for one in [each for each, other in self.open.items() if other == node]:
            del self.open[one]
            if one == answered:
                break
        return node

    def _take(self, node: int, reply: Message) -> None:
        if reply.has_error():
            reason = printable(shortened(reply.error.reason or "no reason given", _LONGEST))
            self.error = f"node {node} failed with code {reply.error.code}: {reason}"
            log.warning(self.error)
            return
        try:
            if message := wire.answer(reply.content).message:
                self.mailbox.put(node, message, self._present())
            self.answers += 1
        except (MessageRefused, wire.Refused, ExchangeError) as error:
            self.error = f"the answer of node {node} is refused: {error}"
            log.warning(self.error)


def _listed(nodes: Iterable[int]) -> str:
    first = [str(node) for node in nodes]
    return ", ".join(first[:5]) + (f" and {len(first) - 5} more" if len(first) > 5 else "")
