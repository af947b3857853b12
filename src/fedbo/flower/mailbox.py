"""What the server of a fleet keeps, and what it hands out to each node.

The server keeps the latest message of each sender in a folder (`FolderExchange`), so that a server
that is started again still has them. If the federation has a privacy plan, it keeps contributions
in the same way, and hands out its latest private release and nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from fedbo.exchange import FolderExchange, Ledger
from fedbo.exchange.contributions import make_release, one_each
from fedbo.exchange.ledger import BudgetSpent
from fedbo.federation import Federation
from fedbo.federation.likeness import Likeness
from fedbo.identity import KeyPair, Keyring
from fedbo.message import Message, MessageRefused, Release
from fedbo.state import make_folder

#: Which peers a node hears if there are more than it may hear.
Hear = Literal["uniform", "alike"]

MOST = 1024  #: messages that a node hears; a pool takes no more


class Mailbox:
    """The latest message of each sender, and who hears which.

    Args:
        folder: Where messages, the ledger of releases and known keys are kept.
        federation: What all agents agree on.
        hear: Of more than ``most`` messages, a node hears a random sample that stays the same
            ("uniform"), or those that are most like its own ("alike").
        most: The most messages that a node hears.
        keys: The key pair that signs private releases; without one they are not signed.

    >>> import tempfile
    >>> from fedbo import Agent, Federation, Float
    >>> federation = Federation({"x": Float(0, 1)})
    >>> agent = Agent(federation, name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mailbox = Mailbox(Path(folder), federation)
    ...     mailbox.put(7, agent.message().encode())
    ...     len(mailbox), len(mailbox.heard_by([7, 8])[8])
    'site-a'
    (1, 1)
    """

    def __init__(
        self,
        folder: Path,
        federation: Federation,
        *,
        hear: Hear = "uniform",
        most: int = MOST,
        keys: KeyPair | None = None,
    ) -> None:
        if hear not in get_args(Hear):
            raise ValueError(f"hear is {hear!r}, expected one of {', '.join(get_args(Hear))}")
        if not isinstance(most, int) or most < 1:
            raise ValueError(f"most is {most!r}, expected a number of messages of 1 or more")
        self.federation, self._hear, self._most, self._keys = federation, hear, most, keys
        make_folder(folder)
        self._exchange = FolderExchange(folder / "messages", Keyring(folder / "known_keys.json"))
        self._ledger = Ledger(folder / "ledger.jsonl")
        self._names: dict[int, str] = {}  # of nodes, in this run
        self._held: dict[str, Message] = {}
        kept = (
            self._exchange.fetch(federation)
            if federation.privacy is None
            else self._exchange.contributions(federation)
        )
        for message in kept:
            if isinstance(message, Message):
                self._held[message.sender] = message

    def __len__(self) -> int:
        return len(self._held)

    def put(self, node: int, data: bytes, present: Sequence[int] = ()) -> str:
        """Keep a node's message in place of its earlier one; return its sender.

        A name belongs to the first node that uses it in a run, until this node has left.

        Args:
            node: The node that sent the message.
            data: The bytes of the message.
            present: The nodes that are there now.

        Raises:
            MessageRefused: If the message is damaged, does not fit the federation, or does not come
                from the sender that it names.
        """
        message = Message.decode(data)
        self.federation.check(message)
        if message.epoch != self.federation.epoch:
            raise MessageRefused(
                f"it is of epoch {message.epoch}, and the server is in {self.federation.epoch}: "
                "use the same federation file everywhere"
            )
        self._check_name(node, message.sender, present)
        keyring = self._exchange.keyring
        assert keyring is not None
        keyring.check(self.federation, [message])
        self._exchange.publish(message)
        self._names[node] = message.sender
        held = self._held.get(message.sender)
        if held is None or held.sequence < message.sequence or held.key != message.key:
            self._held[message.sender] = message
        return message.sender

    def _check_name(self, node: int, sender: str, present: Sequence[int]) -> None:
        own = self._names.get(node)
        if own is not None and own != sender:
            raise MessageRefused(f"node {node} is {own!r}, and now calls itself {sender!r}")
        others = [other for other, name in self._names.items() if name == sender and other != node]
        for other in others:
            if other in present:
                raise MessageRefused(
                    f"node {node} calls itself {sender!r}, which is the name of node {other}: give "
                    "each node its own name"
                )
            del self._names[other]

    def release(self) -> Release | None:
        """Make the next private release if the plan allows one and there is something new.

        A release is made when ``least_members`` members (at least one) have contributed what the
        plan asks for.
        """
        plan = self.federation.require_plan()
        counted = one_each(self.federation, self._held.values())
        if len(counted) < max(plan.least_members, 1):
            return None
        try:
            made, _ = make_release(self._exchange, self.federation, self._ledger, self._keys)
            return made
        except BudgetSpent:
            return None

    def heard_by(self, nodes: Sequence[int]) -> dict[int, list[bytes]]:
        """Return the messages that each node may hear, as bytes.

        Its own may be among them: agents ignore their own messages.

        Args:
            nodes: The nodes.
        """
        if self.federation.privacy is not None:
            published = [one.encode() for one in self._exchange.fetch(self.federation)]
            return dict.fromkeys(nodes, published)
        senders = sorted(self._held)
        everything = [self._held[sender].encode() for sender in senders]
        if len(everything) <= self._most + 1:  # one's own does not count
            return dict.fromkeys(nodes, everything)
        chosen = {node: self._uniform(node, len(everything)) for node in nodes}
        if self._hear == "alike":
            chosen |= self._alike(nodes, senders)
        return {node: [everything[i] for i in sorted(chosen[node])] for node in nodes}

    def _uniform(self, node: int, n: int) -> list[int]:
        rng = np.random.default_rng(zlib.crc32(self._names.get(node, str(node)).encode()))
        return [int(i) for i in rng.choice(n, self._most, replace=False)]

    def _alike(self, nodes: Sequence[int], senders: list[str]) -> dict[int, list[int]]:
        """Return the messages that are most like those of each node that has sent one."""
        likeness = Likeness(self.federation)
        U = likeness.directions([_vector(self._held[sender]) for sender in senders])
        row = {sender: i for i, sender in enumerate(senders)}
        found = {}
        for node in nodes:
            own = row.get(self._names.get(node, ""))
            if own is not None:
                found[node] = np.argsort(-(U @ U[own]), kind="stable")[: self._most + 1].tolist()
        return found


def _vector(message: Message) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return message.omega if message.kind == "weights" else message.nu
