"""What the server of a fleet keeps, and what it hands out to each node.

The server keeps the latest message of each sender in a folder (`FolderExchange`), so that a server
that is started again still has them. If the federation has a privacy plan, it keeps contributions
in the same way, and hands out its latest private release and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedbo.exchange import FolderExchange, Ledger
from fedbo.exchange.choice import most_in
from fedbo.exchange.contributions import make_release
from fedbo.exchange.hub.wire import MOST_PEERS
from fedbo.federation import Federation
from fedbo.federation.likeness import Likeness
from fedbo.flower.site import log
from fedbo.identity import Keyring, listed_keys
from fedbo.message import Message, MessageRefused, Release
from fedbo.privacy.budget import BudgetSpent, one_each
from fedbo.state import make_folder

#: Which peers a node hears if there are more than it may hear.
Hear = Literal["uniform", "alike"]

_GROWTH = 2  # times the trials of the last release are worth the next one


class Mailbox:
    """The latest message of each sender, and who hears which.

    Args:
        folder: Where messages and the ledger of releases are kept.
        federation: What all agents agree on. If it lists its members, the private releases are
            signed with the key of the party that makes them.
        hear: Of more than ``most`` messages, a node hears a random sample that changes as little as
            possible ("uniform"), or those that are most like its own ("alike").
        most: The most messages that a node hears.

    >>> import tempfile
    >>> from fedbo import Agent, Federation, Float
    >>> federation = Federation({"x": Float(0, 1)})
    >>> agent = Agent(federation, name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mailbox = Mailbox(Path(folder), federation)
    ...     mailbox.put(7, agent.message().encode())
    ...     len(mailbox), len(mailbox.messages_for([7, 8])[8])
    'site-a'
    (1, 1)
    """

    def __init__(
        self,
        folder: Path,
        federation: Federation,
        *,
        hear: Hear = "uniform",
        most: int = MOST_PEERS,
    ) -> None:
        if hear not in get_args(Hear):
            raise ValueError(f"hear is {hear!r}, expected one of {', '.join(get_args(Hear))}")
        if not isinstance(most, int) or not 1 <= most <= MOST_PEERS:
            raise ValueError(f"most is {most!r}, expected 1 to {MOST_PEERS:,} messages")
        plan = federation.privacy
        self._keys = None if plan is None else listed_keys(federation, plan.by)
        self.federation, self._hear, self._most = federation, hear, most
        make_folder(folder)
        self._keyring = Keyring()  # it needs to know nobody: see `put`
        self._exchange = FolderExchange(folder / "messages", self._keyring)
        self._ledger = Ledger(folder / "ledger.jsonl")
        self._names: dict[int, str] = {}  # of nodes, in this run
        self._held = {message.sender: message for message in self._kept()}

    def _kept(self) -> list[Message]:
        if self.federation.privacy is not None:
            return self._exchange.contributions(self.federation)
        return [m for m in self._exchange.fetch(self.federation) if isinstance(m, Message)]

    def __len__(self) -> int:
        return len(self._held)

    def name(self, node: int) -> str:
        """Return what to call a node in a log: its name, if it is known in this run, and its id.

        Args:
            node: The node.
        """
        known = self._names.get(node)
        return f"node {node}" if known is None else f"{known} (node {node})"

    def put(self, node: int, data: bytes, present: Sequence[int] = ()) -> str:
        """Keep a node's message in place of its earlier one; return its sender.

        A name belongs to the first node that uses it in a run, until this node has left. That node
        may also start anew, after it lost its trials.

        Args:
            node: The node that sent the message.
            data: The bytes of the message.
            present: The nodes that are there now.

        Raises:
            MessageRefused: If the message is damaged, does not fit the federation, or does not come
                from the sender that it names.
        """
        if len(data) > (most := most_in(self.federation)):
            raise MessageRefused(f"it has {len(data):,} bytes, expected up to {most:,}")
        message = Message.decode(data)
        self.federation.check(message)
        if message.epoch != self.federation.epoch:
            raise MessageRefused(
                f"it is of epoch {message.epoch}, and the server is in {self.federation.epoch}: "
                "use the same federation file everywhere"
            )
        if message.key and not self.federation.members:
            raise MessageRefused(
                "it is signed, but the federation lists no members, so that anybody could claim a "
                "name for ever: list all keys in the federation file, or send it unsigned"
            )
        self._keyring.check(self.federation, [message])
        self._check_name(node, message.sender, present)
        self._store(message)
        self._names = {n: name for n, name in self._names.items() if name != message.sender}
        self._names[node] = message.sender
        return message.sender

    def _store(self, message: Message) -> None:
        held = self._held.get(message.sender)
        if not self._exchange.publish(message):
            if held is not None and message.key:
                return  # an earlier one, which the member signed before
            log.warning("%s starts anew: its earlier message is dropped", message.sender)
            self._exchange.withdraw(self.federation, message.sender)
            self._exchange.publish(message)
        self._held[message.sender] = message

    def _check_name(self, node: int, sender: str, present: Sequence[int]) -> None:
        own = self._names.get(node)
        if own is not None and own != sender:
            raise MessageRefused(f"node {node} is {own!r}, and now calls itself {sender!r}")
        for other, name in self._names.items():
            if name == sender and other != node and other in present:
                raise MessageRefused(
                    f"node {node} calls itself {sender!r}, which is the name of node {other}: give "
                    "each node its own name"
                )

    def release(self) -> Release | None:
        """Make the next private release if the plan allows one and it is worth it; else None.

        ``least_members`` members (at least one) must have contributed what the plan asks for, and
        their trials must have doubled since the last release. A release that was recorded, and not
        published because the server was killed, is published first.
        """
        plan, last = self.federation.require_plan(), self._last_release()
        if last is None or last in self._exchange.fetch(self.federation):
            counted = one_each(self.federation, self._kept())
            trials = sum(message.t_n for message in counted)
            if len(counted) < max(plan.least_members, 1):
                return None
            if last is not None and trials < _GROWTH * last.trials:
                return None
        try:
            made, _ = make_release(self._exchange, self.federation, self._ledger, self._keys)
            return made
        except BudgetSpent:
            return None

    def _last_release(self) -> Release | None:
        made = self._ledger.releases(self.federation)
        return made[-1] if made and made[-1].epoch == self.federation.epoch else None

    def messages_for(self, nodes: Sequence[int]) -> dict[int, list[bytes]]:
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
        if len(everything) <= self._most:
            return dict.fromkeys(nodes, everything)
        chosen = self._alike(nodes, senders) if self._hear == "alike" else {}
        others = [node for node in nodes if node not in chosen]
        chosen |= self._uniform(others, senders)
        return {node: [everything[i] for i in sorted(chosen[node])] for node in nodes}

    def _uniform(self, nodes: Sequence[int], senders: list[str]) -> dict[int, list[int]]:
        """Choose at random. A sender that comes or goes replaces at most one that is chosen."""
        theirs = np.array([_hashed(sender) for sender in senders], dtype=np.uint64)
        found = {}
        for node in nodes:
            own = _hashed(self._names.get(node, str(node)))
            ranks = _mixed(theirs ^ np.uint64(own))
            ranks[theirs == own] = np.iinfo(np.uint64).max  # one's own message comes last
            found[node] = np.argsort(ranks, kind="stable")[: self._most].tolist()
        return found

    def _alike(self, nodes: Sequence[int], senders: list[str]) -> dict[int, list[int]]:
        """Choose the messages that are most like those of each node that has sent one."""
        likeness = Likeness(self.federation)
        U = likeness.directions([_vector(self._held[sender]) for sender in senders])
        row = {sender: i for i, sender in enumerate(senders)}
        found = {}
        for node in nodes:
            own = row.get(self._names.get(node, ""))
            if own is not None:
                likes = U @ U[own]
                likes[own] = -np.inf
                found[node] = np.argsort(-likes, kind="stable")[: self._most].tolist()
        return found


def _vector(message: Message) -> NDArray[np.float32]:
    return message.omega if message.kind == "weights" else message.nu


def _hashed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble numbers so that their order looks random: the last step of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
