"""The contract of an exchange."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from fedbo.exchange.hearing import Hearing
from fedbo.exchange.latest import Content
from fedbo.federation.federation import Federation
from fedbo.message import Heard, Message
from fedbo.trust import Keyring, Trusted


class Identity(NamedTuple):
    """As whom this user takes part in a federation at a place with members."""

    member: str  # a sender is this name, or ``member/agent``
    key: str  # public, as text


class Holding(NamedTuple):
    """Something at a place, of any federation."""

    message: Heard | None  # None if it cannot be read
    when: float  # it was put there, in seconds since 1970
    place: str  # the path of a file, for example
    fault: str | None  # why it cannot be read

    @classmethod
    def of(cls, content: Heard | str, when: float, place: str) -> Holding:
        """Return what is at a place: a message, or why there is none that can be read."""
        if isinstance(content, str):
            return cls(None, when, place, content)
        return cls(content, when, place, None)


class Exchange(ABC):
    """A place that hands out what counts of each agent: its latest message, if not withdrawn.

    All methods may be called from any thread, by many processes at once, and again after an error.
    They raise `ExchangeError` if the place cannot be reached, and then leave it as it was. After a
    crash, the place has the new message complete, or still has the previous one. A copy of an
    exchange (``copy.deepcopy``) is the same place.

    A name alone proves nothing: at most places, anyone may publish under any name. So messages with
    different keys never replace each other, and a keyring decides which of them is heard.
    """

    address: str  # where messages go, for people and for the ledger
    keyring: Keyring | None = None  # whose key is whose; None: agents of one program need no keys

    @abstractmethod
    def publish(self, content: Content) -> bool:
        """Put a message, a withdrawal or a release in its place, if it counts there.

        There is one place for each sender, key and federation, and `fedbo.exchange.latest.latest`
        decides what counts of it and of what is there. So a retry changes nothing, workers that
        share an agent may finish in any order, and what was withdrawn cannot be put back.

        Returns:
            Whether exactly this is now in its place. True after a retry.
        """

    @abstractmethod
    def fetch(self, federation: Federation) -> list[Trusted]:
        """Return the latest message of every sender, the caller included, sorted by sender.

        If the federation has a privacy plan, this is the latest release, and nothing else.

        All are trusted: they were opened here (`fedbo.trust.open`). One that is damaged, does
        not fit or is not from its sender is left out with an `ExchangeWarning`, which is not
        repeated. If the place tells of other federations, there is one warning for each of them.

        A place with more than 1,024 peers may return a selection of at most so many, in which the
        caller's own messages may be missing. Once a message is no longer returned (it was
        withdrawn, its sender has left, or others were selected), the caller should forget it too.
        """

    def identity(self, federation: Federation) -> Identity | None:
        """Return as whom this user takes part; None (default) if any name and key will do.

        This neither waits for the place nor needs it; it raises an `ExchangeError` that says how to
        join if this user is no member.
        """
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"


class OpenExchange(Exchange):
    """An exchange whose place shows everything to those who can reach it, contributions too."""

    @abstractmethod
    def _hearing(self, federation: Federation) -> Hearing:
        """Hear what is at the place now."""

    def fetch(self, federation: Federation) -> list[Trusted]:
        return self._hearing(federation).messages()

    def contributions(self, federation: Federation) -> list[Message]:
        """Return the latest contribution of every sender, for the party that makes releases.

        Args:
            federation: A federation with a privacy plan.
        """
        federation.require_plan()
        return self._hearing(federation).contributions()
