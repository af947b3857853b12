"""The contract of an exchange, and what all exchanges use."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping

from fedbo.federation import Federation
from fedbo.message import Message
from fedbo.message.fingerprint import PARTS

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
    """A place cannot be reached; the text says what failed, why, and what to do."""


class ExchangeWarning(UserWarning):
    """Something in an exchange was skipped; the text says what and why."""


class Exchange(ABC):
    """A place that hands out the latest message of each agent.

    All three methods may be called from any thread, by many processes at once, and again after an
    error. They raise `ExchangeError` if the place cannot be reached, and then leave it as it was.
    After a crash, the place has the new message complete, or still has the previous one. A copy of
    an exchange (``copy.deepcopy``) is the same place.
    """

    address: str  # where messages go, for people and for the ledger

    @abstractmethod
    def publish(self, message: Message) -> bool:
        """Hand out the message in place of its sender's earlier one.

        There is one message for each sender, federation and epoch. If the place already has one
        with the same or a later sequence, nothing happens: a retry changes nothing, and workers
        that share an agent may finish in any order.

        Args:
            message: The message to hand out.

        Returns:
            Whether the place now hands out exactly this message. True after a retry.
        """

    @abstractmethod
    def fetch(self, federation: Federation) -> list[Message]:
        """Return the latest message of every sender, the caller included, sorted by sender.

        The messages are for this federation and epoch. One that is damaged or does not fit is left
        out with an `ExchangeWarning`, which is not repeated until that message changes.

        Args:
            federation: The federation, in the epoch to fetch.
        """

    @abstractmethod
    def withdraw(self, federation: Federation, sender: str) -> bool:
        """Stop handing out the sender's messages for this federation, in any epoch.

        Args:
            federation: The federation that the messages are for.
            sender: The name of the agent that sent them.

        Returns:
            Whether there was a message. Peers that already have it may keep it.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"


def same_federation(federation: Federation, message: Message) -> bool:
    """Return whether the message is for this federation, in any epoch."""
    part = federation.fingerprint.difference(message.fingerprint)
    return part is None or (part == "scalars" and message.epoch != federation.epoch)


def foreign_notice(address: str, federation: Federation, counts: Mapping[bytes, int]) -> str:
    """Say that messages of other federations are here, and in what these federations differ.

    Args:
        address: The place.
        federation: The federation whose messages were looked for.
        counts: How many messages there are of each other federation, by fingerprint.
    """
    n = sum(counts.values())
    parts = {federation.fingerprint.difference(fingerprint): None for fingerprint in counts}
    messages = "1 message" if n == 1 else f"{n:,} messages"
    others = "another federation" if len(counts) == 1 else f"{len(counts):,} other federations"
    return (
        f"{messages} of {others} {'is' if n == 1 else 'are'} here, in {address}, and ignored: "
        f"{'; or '.join(PARTS[part] for part in PARTS if part in parts)}. If they should be heard, "
        "give all agents the same federation.toml"
    )


def failed(what: str, error: OSError) -> ExchangeError:
    advice = _ADVICE.get(error.errno or 0, "check whether it exists and can be reached")
    return ExchangeError(f"{what}: {error.strerror or error}; {advice}")
