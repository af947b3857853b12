"""What an exchange is: a place that hands out the latest message of each agent."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod

from fedbo.federation import Federation
from fedbo.message import Message, MessageRefused

_ADVICE = {
    errno.EACCES: "ask for permission to use it",
    errno.EPERM: "ask for permission to use it",
    errno.EROFS: "ask for permission to use it",
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
    errno.EFBIG: "free some space there, or raise the limit on the size of files",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "put a folder there instead",
}


class ExchangeError(OSError):
    """A place cannot be reached; the text says what was tried, where, and what to do."""


class ExchangeWarning(UserWarning):
    """Something in an exchange was skipped; the text says what and why."""


class Exchange(ABC):
    """A place that hands out the latest message of each agent.

    The contract: An exchange knows messages and federations, but not what agents do with them.
    All three methods may be called from any thread, by many processes at once, and again after an
    error. They raise `ExchangeError` if the place cannot be reached, and then leave it as it was.
    After a crash, a message is there complete, or the previous one is. A copy of an exchange
    (``copy.deepcopy``) is the same place.

    Attributes:
        address: Where messages go, for people and for the ledger.
    """

    address: str

    @abstractmethod
    def publish(self, message: Message) -> bool:
        """Hand out the message in place of its sender's earlier one.

        There is one message for each sender, federation and epoch. If the place already has one
        with the same or a later sequence, nothing happens: workers that share an agent may
        overtake one another, and a retry changes nothing.

        Returns:
            Whether the place now hands out exactly this message. True after a retry.
        """

    @abstractmethod
    def fetch(self, federation: Federation) -> list[Message]:
        """Return the latest message of every sender, sorted by sender.

        The messages are for this federation and epoch. The caller's own is among them. Messages
        that are damaged or do not fit never raise an exception. They are left out, with one
        `ExchangeWarning` until they change; if there are many, some are named and the rest counted.
        """

    @abstractmethod
    def withdraw(self, federation: Federation, sender: str) -> bool:
        """Stop handing out the sender's messages for this federation, in any epoch.

        Peers that already have a message may keep it.

        Returns:
            Whether there was a message.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"


def refusal(federation: Federation, message: Message) -> str | None:
    """Say why the message does not fit the federation; None if it fits."""
    try:
        federation.check(message)
    except MessageRefused as error:
        return str(error)
    return None


def same_federation(federation: Federation, message: Message) -> bool:
    """Whether the message is for this federation, in this epoch or another."""
    part = federation.fingerprint.difference(message.fingerprint)
    return part is None or (part == "scalars" and message.epoch != federation.epoch)


def failed(what: str, error: OSError) -> ExchangeError:
    """Build an error that says what failed, why, and what to do."""
    advice = _ADVICE.get(error.errno or 0, "check whether it exists and can be reached")
    return ExchangeError(f"{what}: {error.strerror or error}; {advice}")


def printable(text: str) -> str:
    """Escape control characters in a text from others, so that it cannot move the cursor.

    >>> printable("Zürich \\x1b[2J")
    'Zürich \\\\x1b[2J'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
