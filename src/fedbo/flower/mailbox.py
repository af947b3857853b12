"""What the server of a fleet keeps, and what it hands out.

The server keeps the latest message of each sender in a folder (`FolderExchange`), so that a server
that is started again still has them. If the federation has a privacy plan, it keeps contributions
in the same way, and hands out its latest private release and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from fedbo.errors import BudgetSpent, MessageRefused
from fedbo.exchange import FolderExchange, Ledger
from fedbo.exchange.contributions import make_release
from fedbo.federation.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message import Message, Release
from fedbo.message.message import MOST_PEERS
from fedbo.privacy.budget import is_due
from fedbo.state import make_folder
from fedbo.trust import KeyPair, Keyring, NotTrusted, listed_keys, open
from fedbo.trust.keyring import NAME, Reason


class Mailbox:
    """The latest message of each sender.

    Args:
        folder: Where messages and the ledger of releases are kept.
        federation: What all agents agree on. Private releases are signed with the listed key of
            the party that makes them, or else with the server's own key, in the same folder.

    >>> import tempfile
    >>> from fedbo import Agent, Federation, Float
    >>> federation = Federation({"x": Float(0, 1)})
    >>> agent = Agent(federation, name="site-a", seed=0, keys=KeyPair.generate())
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mailbox = Mailbox(Path(folder), federation)
    ...     mailbox.put(7, agent.message().encode())
    ...     len(mailbox), len(mailbox.handed_out())
    'site-a'
    (1, 1)
    """

    def __init__(self, folder: Path, federation: Federation) -> None:
        plan = federation.privacy
        if plan is not None and not plan.least_members:
            raise ValueError(
                "least_members of the privacy plan is 0, expected 1 or more: the server of a fleet "
                "makes a release when so many members have contributed"
            )
        self.federation = federation
        make_folder(folder)
        if plan is not None:
            self._keys = listed_keys(federation, plan.by) or KeyPair.own(folder)
        self._start = folder / "federation.toml"
        if not self._start.exists():
            federation.save(self._start)
        self._keyring = Keyring(folder / NAME)
        self._exchange = FolderExchange(folder / "messages", self._keyring)
        self._ledger = Ledger(folder / "ledger.jsonl")
        self._nodes: dict[str, int] = {}  # whose name it is, in this run
        kept = self._exchange.contributions(federation) if plan is not None else None
        if kept is None:
            heard = (trusted.content for trusted in self._exchange.fetch(federation))
            kept = [message for message in heard if isinstance(message, Message)]
        self._held = {message.sender: message for message in kept}

    def __len__(self) -> int:
        return len(self._held)

    def name(self, node: int) -> str:
        """Return what to call a node in a log: its id, and its name once it has answered."""
        names = [name for name, owner in self._nodes.items() if owner == node]
        return f"{names[0]} (node {node})" if names else f"node {node}"

    def put(self, node: int, data: bytes, present: Sequence[int] = ()) -> str:
        """Keep a node's message in place of its earlier one; return its sender.

        A name belongs to the key that the server saw first under it, and in a run to one node,
        until this node has left.

        Args:
            node: The node that sent the message.
            data: The bytes of the message.
            present: The nodes that are connected now.

        Raises:
            MessageRefused: If the message is damaged, does not fit the federation, or does not come
                from the sender that it names.
        """
        message = self.federation.read(data)
        Shared.of(self.federation).check(message)
        if not isinstance(message, Message):
            raise MessageRefused(f"it is a {message.type}, expected the message of an agent")
        self._check_name(node, message.sender, present)
        try:
            open(self.federation, self._keyring, data)
        except NotTrusted as error:
            if error.reason is not Reason.OTHER_KEY:
                raise
            raise MessageRefused(
                f"node {node} calls itself {message.sender!r}, a name that belongs to another key: "
                "a site that has lost its folder, and so its key, takes a new name"
            ) from None
        if self._exchange.publish(message):  # else the site has sent a later one before
            self._held.pop(message.sender, None)
            self._held[message.sender] = message  # the latest comes last
        self._nodes[message.sender] = node
        return message.sender

    def _check_name(self, node: int, sender: str, present: Sequence[int]) -> None:
        for name, owner in self._nodes.items():
            if owner == node and name != sender:
                raise MessageRefused(f"node {node} is {name!r}, and now calls itself {sender!r}")
            if name == sender and owner != node and owner in present:
                raise MessageRefused(
                    f"node {node} calls itself {sender!r}, which is the name of node {owner}: give "
                    "each node its own name"
                )

    def release(self) -> Release | None:
        """Make the next private release if it is due by the plan and within its budget; else None.

        A release that was recorded, and not published because the server was killed, is published
        first.
        """
        holdings, made = self._exchange.holdings(), self._ledger.releases(self.federation)
        published = {h.message: h.when or 0.0 for h in holdings if isinstance(h.message, Release)}
        if not made or made[-1] in published:
            last = max(published.values(), default=0.0)
            new = [
                holding.message
                for holding in holdings
                if isinstance(holding.message, Message) and (holding.when or 0.0) > last
            ]
            last = last or self._start.stat().st_mtime
            if not is_due(self.federation, new, last=last, now=time.time()):
                return None
        try:
            return make_release(self._exchange, self.federation, self._ledger, self._keys)[0]
        except BudgetSpent:
            return None

    def handed_out(self) -> list[bytes]:
        """Return the messages that all nodes may hear, as bytes: of more than 1,024 the latest.

        A node's own may be among them: agents ignore their own messages.
        """
        if self.federation.privacy is not None:
            return [trusted.content.encode() for trusted in self._exchange.fetch(self.federation)]
        latest = [*self._held.values()][-MOST_PEERS:]
        return [message.encode() for message in sorted(latest, key=lambda each: each.sender)]
