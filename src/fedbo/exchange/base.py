"""The contract of an exchange."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from fedbo.federation.federation import Federation
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair
from fedbo.message import Heard, Message


class Identity(NamedTuple):
    """As whom this user takes part in a federation at a place with members."""

    member: str  # a sender is this name, or ``member/agent``
    key: str | None  # public, as text; empty: messages are not signed; None: any will do


class Holding(NamedTuple):
    """Something at a place, of any federation."""

    message: Heard | None  # None if it cannot be read
    when: float | None  # it was put there, in seconds since 1970; None if that is not known
    place: str  # the path of a file, for example
    fault: str | None  # why it cannot be read

    @classmethod
    def of(cls, content: Heard | str, when: float | None, place: str) -> Holding:
        """Return what is at a place: a message, or why there is none that can be read."""
        if isinstance(content, str):
            return cls(None, when, place, content)
        return cls(content, when, place, None)


class Exchange(ABC):
    """A place that hands out the latest message of each agent.

    All methods may be called from any thread, by many processes at once, and again after an error.
    They raise `ExchangeError` if the place cannot be reached, and then leave it as it was. After a
    crash, the place has the new message complete, or still has the previous one. A copy of an
    exchange (``copy.deepcopy``) is the same place.

    A name alone proves nothing: at most places, anyone may publish under any name. So messages with
    different keys never replace each other, and a keyring decides which of them is heard.
    """

    address: str  # where messages go, for people and for the ledger
    keyring: Keyring | None = None  # which keys belong to whom; None: it does not look at keys

    @abstractmethod
    def publish(self, message: Heard) -> bool:
        """Hand out the message, or the release, in place of its sender's earlier one.

        There is one message for each sender, key and federation. If the place already has one with
        the same or a later sequence, or a withdrawal of it, nothing happens: a retry changes
        nothing, and workers that share an agent may finish in any order.

        Returns:
            Whether the place now hands out exactly this message. True after a retry.
        """

    @abstractmethod
    def fetch(self, federation: Federation) -> list[Heard]:
        """Return the latest message of every sender, the caller included, sorted by sender.

        If the federation has a privacy plan, this is the latest release, and nothing else.

        The messages fit this federation, and the keyring accepts their keys. One that is damaged,
        does not fit or is not from its sender is left out with an `ExchangeWarning`, which is not
        repeated. If the place tells of other federations, there is one warning for each of them.

        A place with more than 1,024 peers may return a selection of at most so many, in which the
        caller's own messages may be missing. Once a message is no longer returned (it was
        withdrawn, its sender has left, or others were selected), the caller should forget it too.
        """

    @abstractmethod
    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        """Stop handing out the sender's message for this federation.

        With keys, a signed `fedbo.message.Withdrawal` stays at the place, so that nobody can put
        back a copy: the sender is heard again from the next sequence on.

        Args:
            federation: The federation that the message is for.
            sender: The name of the agent that sent it.
            keys: Withdraw the message that is signed with this key; an unsigned one if None.
            mine: Withdraw the message only if this is true for it.

        Returns:
            Whether there was such a message. Peers forget it when they fetch again; nobody can
            make a hostile one do so.
        """

    def identity(self, federation: Federation) -> Identity | None:
        """Return as whom this user takes part; None (default) if any name and key will do.

        This neither waits for the place nor needs it; it raises an `ExchangeError` that says how to
        join if this user is no member.
        """
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"
