"""The ServerApp of a fleet: rounds in which nodes run trials and hear of one another.

In a round, every connected node is asked for some trials, and handed what it may hear. The
server waits until all have answered, or for ``timeout`` seconds. A node that did not answer in time
is *late*: its answer counts whenever it comes, but nobody waits for it until then. It is asked once
more, in case it was killed and has forgotten what it was asked, and then not before it answers. A
node that joins later takes part from the next round on.

What a server needs in the next run is in its folder, and what a node needs is in its own. So a run
that was stopped in any way is simply started again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp
from msgspec import Meta

from fedbo.errors import ExchangeError, MessageRefused
from fedbo.federation.federation import Federation
from fedbo.flower import wire
from fedbo.flower.folders import run_folder
from fedbo.flower.mailbox import Mailbox
from fedbo.flower.wire import log
from fedbo.outside import printable, shortened

_PAUSE = 0.25  # seconds between two looks for answers
_ASKED = 2  # messages that a node may have to answer
_LOST = 3.0  # time-outs after which nobody expects an answer any more
_LONGEST = 500  # characters of an error of a node
_NAMED = 5  # nodes that a line of the log names
_CONFIG = ("rounds", "trials", "nodes", "timeout")  # what a run config may replace


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """How a server runs a federation.

    The run config of an app (``[tool.flwr.app.config]``, or ``flwr run --run-config``) may replace
    ``rounds``, ``trials``, ``nodes`` and ``timeout``.

    Args:
        federation: What all nodes agree on.
        rounds: How many rounds a run has.
        trials: How many trials each node runs in a round; at most 10,000.
        nodes: How many nodes must be connected before the first round begins.
        timeout: Seconds to wait for the answers of a round, and for nodes to connect.

    >>> from fedbo import Federation, Float
    >>> Rounds(federation=Federation({"x": Float(0, 1)})).with_config({"rounds": 5}).rounds
    5
    """

    federation: Federation
    rounds: Annotated[int, Meta(ge=1)] = 3
    trials: Annotated[int, Meta(ge=1, le=wire.MOST_TRIALS)] = 3
    nodes: Annotated[int, Meta(ge=1)] = 1
    timeout: Annotated[float, Meta(gt=0.0, le=wire.MOST_PATIENCE)] = 600.0

    def with_config(self, config: Mapping[str, Any]) -> Rounds:
        """Return the same with what a run config says; other keys in it are ignored."""
        values = msgspec.structs.asdict(self)
        values |= {name: config[name] for name in _CONFIG if name in config}
        try:
            return msgspec.convert(values, Rounds)
        except msgspec.ValidationError as error:
            raise ValueError(f"rounds of a fleet: {error}") from None

    def run(self, grid: Grid, context: Context) -> Mailbox:
        """Run all rounds; return the mailbox with the latest messages.

        Raises:
            RuntimeError: If there are too few nodes, or if none answered in any round.
        """
        wanted = self.with_config(context.run_config)
        folder = run_folder(self.federation, context) / "server"
        mailbox = Mailbox(folder, self.federation)
        log.info("the server starts with %d messages from %s", len(mailbox), folder)
        return _Run(wanted, grid, mailbox).run()


def server_app(federation: Federation | str | os.PathLike[str]) -> ServerApp:
    """Return a ServerApp that runs a federation, see `Rounds`.

    To do something before or after the rounds, write a ServerApp of your own and call
    `Rounds.run` in it. If the federation has a privacy plan, nodes send contributions and hear
    private releases; `fedbo.privacy.budget.is_due` says when one is made.

    >>> from fedbo import Federation, Float
    >>> app = server_app(Federation({"x": Float(0, 1)}))
    """
    agreed = federation if isinstance(federation, Federation) else Federation.load(federation)
    rounds, app = Rounds(federation=agreed), ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        rounds.run(grid, context)

    return app


class _Run:
    """The rounds of one run."""

    def __init__(self, wanted: Rounds, grid: Grid, mailbox: Mailbox) -> None:
        self.wanted, self.grid, self.mailbox = wanted, grid, mailbox
        # of each message that may be answered, in the order sent: the node, and when it was sent
        self.pending: dict[str, tuple[int, float]] = {}
        self.answers = 0
        self.error = ""  # of the last node that reported one

    def run(self) -> Mailbox:
        for number in range(1, self.wanted.rounds + 1):
            self._round(number, self._enough_nodes(self.wanted.nodes if number == 1 else 1))
        if not self.answers:
            why = f"; the last error was: {self.error}" if self.error else ""
            raise RuntimeError(
                f"no node answered in {self.wanted.rounds} rounds of up to "
                f"{self.wanted.timeout:g} s{why}"
            )
        return self.mailbox

    def _enough_nodes(self, least: int) -> list[int]:
        """Wait until enough nodes are connected."""
        wait = self.wanted.timeout
        deadline = time.monotonic() + wait
        nodes = sorted(self.grid.get_node_ids())
        if len(nodes) < least:
            log.info("waiting up to %g s for %d nodes, %d are connected", wait, least, len(nodes))
        while len(nodes) < least:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"after {wait:g} s, {len(nodes)} nodes are connected, expected {least}: start "
                    "more nodes, or lower 'nodes' in the run config"
                )
            self._collect()
            time.sleep(_PAUSE)
            nodes = sorted(self.grid.get_node_ids())
        return nodes

    def _round(self, number: int, nodes: Sequence[int]) -> None:
        if self.mailbox.federation.privacy is not None:
            self._release()
        late = {node: self._late(node) for node in nodes}
        sent = self._send(number, [node for node in nodes if late[node] < _ASKED])
        awaited = {key for key, node in sent.items() if not late[node]}
        before, deadline = self.answers, time.monotonic() + self.wanted.timeout
        while True:
            is_any = self._collect() or self.answers > before
            missing = awaited & self.pending.keys()
            # if all nodes are late, one answer is worth the next round
            if (not missing and (awaited or is_any)) or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE)
        log.info(
            "round %d of %d: nodes present %d, asked %d, answers %d, messages held %d",
            number, self.wanted.rounds, len(nodes), len(sent), self.answers - before,
            len(self.mailbox),
        )  # fmt: skip
        if missing:
            names = self._listed({sent[key] for key in missing})
            log.warning("no answer in %g s from %s", self.wanted.timeout, names)

    def _late(self, node: int) -> int:
        """Count the messages that a node has still to answer."""
        since = time.monotonic() - _LOST * self.wanted.timeout
        return sum(to == node and when > since for to, when in self.pending.values())

    def _release(self) -> None:
        try:
            if (made := self.mailbox.release()) is not None:
                log.info("private release %d of %d members", made.sequence, made.members)
        except ExchangeError as error:  # the round goes on with earlier releases
            log.warning("no private release: %s", error)

    def _send(self, number: int, nodes: Sequence[int]) -> dict[str, int]:
        """Ask the nodes; return the ids of the messages to them."""
        task = wire.Instruction(
            round=number,
            trials=self.wanted.trials,
            heard=self.mailbox.handed_out(),
            patience=self.wanted.timeout / 2.0,
        )
        messages = [
            Message(wire.packed(task), node, wire.MESSAGE_TYPE, group_id=str(number))
            for node in nodes
        ]
        taken = {*self.grid.push_messages(messages)} - {""}
        keys = [(m.metadata.message_id, m.metadata.dst_node_id) for m in messages]
        if refused := {node for key, node in keys if key not in taken}:
            size = sum(map(len, task.heard))
            self._warn(
                f"the SuperLink did not take messages of {size:,} bytes to "
                f"{self._listed(refused)}: these nodes have left, or it takes only smaller ones"
            )
        sent = {key: node for key, node in keys if key in taken}
        self.pending |= {key: (node, time.monotonic()) for key, node in sent.items()}
        return sent

    def _collect(self) -> bool:
        """Take the answers that have arrived; return whether there were any, or errors."""
        keys = [*self.pending]
        replies = {
            reply.metadata.reply_to_message_id: reply
            for reply in (self.grid.pull_messages(keys) if keys else ())
        }
        present = [*self.grid.get_node_ids()] if replies else []
        for key in keys:  # in the order in which they were asked
            if key in replies and key in self.pending:
                self._take(key, replies[key], present)
        return bool(replies)

    def _take(self, key: str, reply: Message, present: Sequence[int]) -> None:
        node, sent = self.pending.pop(key)
        if reply.has_error():
            reason = reply.error.reason or "no reason given"
            return self._warn(f"{self.mailbox.name(node)} failed: {reason}")
        # A node works in order: what it left out, because it was killed, it will not answer.
        for earlier in [k for k, (to, when) in self.pending.items() if to == node and when < sent]:
            del self.pending[earlier]
        try:
            if message := wire.unpacked(reply.content, wire.Answer).message:
                self.mailbox.put(node, message, present)
            self.answers += 1
        except (MessageRefused, wire.Refused, ExchangeError) as error:
            self._warn(f"the answer of {self.mailbox.name(node)} is refused: {error}")

    def _listed(self, nodes: Iterable[int]) -> str:
        names = [self.mailbox.name(node) for node in sorted(nodes)]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ", ".join(names[:_NAMED]) + more

    def _warn(self, error: str) -> None:
        self.error = printable(shortened(error, _LONGEST))
        log.warning(self.error)
