"""What an exchange is: a place where the latest message of each agent can be had."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod

from fedbo.federation import Federation
from fedbo.message import Message, MessageRefused

_ADVICE = {
    errno.EACCES: "ask for the right to use it",
    errno.EPERM: "ask for the right to use it",
    errno.EROFS: "ask for the right to use it",
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.EFBIG: "make room there, or raise the limit on the size of files",
    errno.ENAMETOOLONG: "use a shorter one",
}


class ExchangeError(OSError):
    """A place that cannot be reached; its text says what was tried, where, and what to do."""


class ExchangeWarning(UserWarning):
    """Something in an exchange was skipped; its text says what and why."""


class Exchange(ABC):
    """A place where the latest message of each agent can be had.

    The contract: an exchange knows messages and federations, and nothing of what agents make of
    them. All three methods may be called from any thread, by many processes at once, and again
    after an error; they raise `ExchangeError` when the place cannot be reached, and the place is
    then as it was. After a crash a message is there whole, or the one before it is. A copy of an
    exchange (``copy.deepcopy``) is the same place. ``address`` says where messages go, for people
    and for the log of what left.
    """

    address: str

    @abstractmethod
    def publish(self, message: Message) -> bool:
        """Hand out the message, instead of its sender's earlier one for this federation and epoch.

        If one with the same sequence or a later one is there, that one stays and nothing happens:
        workers that share an agent may overtake one another, and a retry changes nothing. True if
        this very message is now the one that is handed out, as after a retry; False if another is.
        """

    @abstractmethod
    def fetch(self, federation: Federation) -> list[Message]:
        """The latest message of every sender for this federation and epoch, by senders' names.

        The caller's own is among them. What is damaged or does not fit is left out, with one
        `ExchangeWarning` for as long as it stays the same; it is never an exception. Where there is
        much of it, some is named and the rest counted.
        """

    @abstractmethod
    def withdraw(self, federation: Federation, sender: str) -> bool:
        """Hand out the sender's messages for this federation no more, whatever their epoch.

        True if there was one. Peers that have it already may keep it.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"


def refusal(federation: Federation, message: Message) -> str | None:
    """Why the message does not fit the federation, or None if it does."""
    try:
        federation.check(message)
    except MessageRefused as error:
        return str(error)
    return None


def same_federation(federation: Federation, message: Message) -> bool:
    """Whether the message was made for this federation, in this epoch or another."""
    part = federation.fingerprint.difference(message.fingerprint)
    return part is None or (part == "scalars" and message.epoch != federation.epoch)


def failed(what: str, error: OSError) -> ExchangeError:
    """What could not be done, why, and what to do about it."""
    advice = _ADVICE.get(error.errno or 0, "see whether it is there, and can be reached")
    return ExchangeError(f"{what}: {error.strerror or error}; {advice}")
