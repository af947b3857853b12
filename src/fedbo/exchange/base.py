"""The contract of an exchange, and what all exchanges use."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from fedbo.exchange.progress import Progress
from fedbo.federation import Federation
from fedbo.federation.scalars import Scalars
from fedbo.identity import KeyPair, Keyring
from fedbo.message import Heard, Message

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


class Identity(NamedTuple):
    """As whom this user takes part in a federation at a place with members.

    Args:
        member: The name of the member: a sender is this name, or ``member/agent``.
        key: The public key, as text, that messages must be signed with; empty if only messages
            that are not signed are taken; None if any will do.
    """

    member: str
    key: str | None


class Holding(NamedTuple):
    """Something at a place, of any federation.

    Args:
        message: The message or release; None if it cannot be read.
        when: When it was put there, in seconds since 1970; None if that is not known.
        place: Where it is: the path of a file, for example.
        fault: Why it is not handed out to anybody; None if it is.
    """

    message: Heard | None
    when: float | None
    place: str
    fault: str | None


class Exchange(ABC):
    """A place that hands out the latest message of each agent.

    All methods may be called from any thread, by many processes at once, and again after an error.
    They raise `ExchangeError` if the place cannot be reached, and then leave it as it was. After a
    crash, the place has the new message complete, or still has the previous one. A copy of an
    exchange (``copy.deepcopy``) is the same place.

    A name alone proves nothing: at most places, anyone may publish under any name. So messages with
    different keys never replace each other, and a keyring decides which of them is heard.

    `publish`, `fetch` and `withdraw` are what every place can do. Beside them, a place may know
    its members, carry the scalars from which a new epoch is agreed, hand out that epoch, and show
    the progress of those who want it; a hub does, and a folder does not.
    """

    address: str  # where messages go, for people and for the ledger
    keyring: Keyring | None = None  # which keys belong to whom; None: it does not look at keys

    @abstractmethod
    def publish(self, message: Heard) -> bool:
        """Hand out the message, or the release, in place of its sender's earlier one.

        There is one message for each sender, key, federation and epoch. If the place already has
        one with the same or a later sequence, or a withdrawal of it, nothing happens: a retry
        changes nothing, and workers that share an agent may finish in any order.

        Args:
            message: The message or the private release to hand out.

        Returns:
            Whether the place now hands out exactly this message. True after a retry.
        """

    @abstractmethod
    def fetch(self, federation: Federation) -> list[Heard]:
        """Return the latest message of every sender, the caller included, sorted by sender.

        If the federation has a privacy plan, this is the latest release, and nothing else.

        The messages are for this federation and epoch, and the keyring accepts their keys. One that
        is damaged, does not fit or is not from its sender is left out with an `ExchangeWarning`,
        which is not repeated until that message changes. If the place tells of other federations,
        their messages are ignored, with one warning for each such federation.

        A place with more than 1,024 peers may return a selection of at most so many, and the
        caller's own messages. Once a message is no longer returned (it was withdrawn, its sender
        has left, or others were selected), the caller should forget it too.

        Args:
            federation: The federation, in the epoch to fetch.
        """

    @abstractmethod
    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        """Stop handing out the sender's messages for this federation, in any epoch.

        With keys, a signed `fedbo.message.Withdrawal` stays at the place, so that nobody can put
        back a copy: the sender is heard again from the next sequence on.

        Args:
            federation: The federation that the messages are for.
            sender: The name of the agent that sent them.
            keys: Withdraw the messages that are signed with this key; unsigned ones if None.
            mine: Withdraw only messages for which this is true; all of them if None.

        Returns:
            Whether there was such a message. Peers forget it when they fetch again; nobody can
            make a hostile one do so.
        """

    def contributions(self, federation: Federation) -> list[Message]:
        """Return the latest contribution of every sender, for the party that makes releases.

        Args:
            federation: The federation, which has a privacy plan, in the epoch to fetch.
        """
        raise ExchangeError(
            f"{self.address} hands out no contributions; only it can make releases of them"
        )

    def holdings(self) -> list[Holding]:
        """Return everything at the place, of any federation, sorted by place.

        Nothing is checked against a federation or a keyring.
        """
        raise ExchangeError(f"{self.address} cannot list what it holds")

    def identity(self, federation: Federation) -> Identity | None:
        """Return as whom this user takes part; None (default) if any name and key will do.

        This neither waits for the place nor needs it; it raises an `ExchangeError` that says how to
        join if this user is no member.
        """
        return None

    def member(self, federation: Federation) -> str | None:
        """Return the name of the member as which this user takes part; None if any name will do.

        At a place with members, a sender is the member's name, or ``member/agent``. This neither
        waits for the place nor needs it; it raises an `ExchangeError` that says how to join if this
        user is no member.

        Args:
            federation: The federation, in any epoch.
        """
        return None

    def signer(self, federation: Federation) -> str | None:
        """Return the key that this user's messages must be signed with; None if any will do.

        It is a public key as text, or empty if only messages that are not signed are taken.

        Args:
            federation: The federation, in any epoch.
        """
        return None

    def latest(self, federation: Federation) -> Federation:
        """Return the federation in its latest epoch, as far as the place knows; itself by default.

        Args:
            federation: The federation, in an epoch that is already known.
        """
        return federation

    def share(self, scalars: Scalars) -> None:
        """Hand out an agent's scalars, in place of its earlier ones.

        Args:
            scalars: What `fedbo.Agent.scalars` returned.
        """
        raise ExchangeError(f"{self.address} cannot carry scalars; agree on them by hand")

    def shared(self, federation: Federation) -> list[Scalars]:
        """Return the scalars of all agents, sorted by sender.

        Args:
            federation: The federation, in the epoch from which the next one is to be agreed.
        """
        raise ExchangeError(f"{self.address} cannot carry scalars; agree on them by hand")

    def report(self, progress: Progress) -> None:
        """Show an agent's progress to the members of its federation, in place of its earlier one.

        Args:
            progress: What to show.
        """
        raise ExchangeError(f"{self.address} cannot show progress; only a hub can")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"


def failed(what: str, error: OSError) -> ExchangeError:
    advice = _ADVICE.get(error.errno or 0, "check whether it exists and can be reached")
    return ExchangeError(f"{what}: {error.strerror or error}; {advice}")
