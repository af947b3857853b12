"""What all exchanges decide alike: what fits, which message counts, and who may withdraw it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeGuard

from fedbo.caller import warn
from fedbo.exchange.base import Exchange
from fedbo.exchange.errors import ExchangeWarning, failing
from fedbo.federation.federation import Federation
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair, verify
from fedbo.message import Heard, Message, MessageRefused, Release, Withdrawal
from fedbo.outside import printable, shortened

LARGEST = 64 * 2**20  # bytes of a message: enough for a belief with M = 5,700
NAMED = 5  # things skipped that one fetch names; the rest are counted
LISTED = 2**20  # bytes of a message of any federation that is listed
_LONGEST = 1000  # characters of a warning that may quote others

#: What is at a place: a message, a release, a withdrawal, or why nobody can read it.
Content = Heard | Withdrawal | str


class Origin(NamedTuple):
    """What messages that replace each other have in common."""

    fingerprint: bytes
    sender: str
    key: bytes


def origin(signed: Heard | Withdrawal) -> Origin:
    """Return what messages that replace each other have in common."""
    return Origin(signed.fingerprint, signed.sender, signed.key)


class OpenExchange(Exchange):
    """An exchange whose place shows everything to those who can reach it, contributions too."""

    @abstractmethod
    def _chosen(self, federation: Federation) -> list[Heard]:
        """Return what `choose` returns, and warn of what does not count."""

    def fetch(self, federation: Federation) -> list[Heard]:
        wanted = Message if federation.privacy is None else Release
        return [message for message in self._chosen(federation) if isinstance(message, wanted)]

    def contributions(self, federation: Federation) -> list[Message]:
        """Return the latest contribution of every sender, for the party that makes releases.

        Nothing is protected from those who can reach the place.
        """
        federation.require_plan()
        messages = self._chosen(federation)
        return [message for message in messages if isinstance(message, Message)]


def signature_fault(signed: Heard | Withdrawal) -> str | None:
    """Say what is wrong with a signature; None if it is valid, or if there is none."""
    try:
        if signed.key:
            verify(signed)
    except MessageRefused as error:
        return str(error)
    return None


def replaces(message: Heard, other: Content | None) -> bool:
    """Return whether a message takes the place of what is where it goes."""
    return (
        not isinstance(other, Heard)
        or origin(other) != origin(message)
        or other.sequence < message.sequence
        or signature_fault(other) is not None  # a forged message blocks nobody
    )


def standing(messages: Sequence[Heard], withdrawals: Iterable[Content | None]) -> list[Heard]:
    """Return the messages that their senders have not withdrawn; a release never is."""
    upto: dict[Origin, int] = {}
    for withdrawal in withdrawals:
        if isinstance(withdrawal, Withdrawal) and signature_fault(withdrawal) is None:
            source = origin(withdrawal)
            upto[source] = max(withdrawal.sequence, upto.get(source, 0))
    return [
        message
        for message in messages
        if isinstance(message, Release) or message.sequence > upto.get(origin(message), -1)
    ]


def choose(
    federation: Federation, keyring: Keyring, contents: Iterable[tuple[str, Content]]
) -> tuple[list[Heard], list[str]]:
    """Choose the latest message of each sender that the keyring accepts, and the latest release.

    The contents of a place may be in any order, each with a name for people.

    Returns:
        These messages, sorted by sender, and what was skipped, with the reason.
    """
    from fedbo.federation.shared import Shared  # loads the models: only agents need it

    labels: dict[Heard | Withdrawal, str] = {}
    faults: list[str] = []
    shared = Shared.of(federation)
    for label, content in contents:
        try:
            if isinstance(content, str):
                raise MessageRefused(content)
            shared.check(content)
            if content.key:
                verify(content)
            labels[content] = label
        except MessageRefused as error:
            faults.append(f"{label} was skipped: {error}")
    latest: dict[tuple[str, bytes, str], Heard] = {}
    for message in standing([each for each in labels if isinstance(each, Heard)], labels):
        key = message.sender, message.key, message.type
        if (other := latest.get(key)) is not None:  # of equally late ones, all keep the same
            message = max(message, other, key=lambda each: (each.sequence, each.encode()))
        latest[key] = message
    with failing(f"keys cannot be looked up in {keyring}"):
        accepted, refused = keyring.admit(federation, [latest[key] for key in sorted(latest)])
    faults += [f"{labels[message]} was skipped: {error}" for message, error in refused]
    return accepted, faults


def tell(faults: Iterable[str], told: set[str], address: str) -> None:
    """Warn of each fault that was not told the last time; of very many, the rest is counted."""
    now = dict.fromkeys(printable(shortened(text, _LONGEST)) for text in faults)
    news = [text for text in now if text not in told]
    told.clear()
    told.update(now)
    for text in news[:NAMED]:
        warn(text, ExchangeWarning)
    if (surplus := len(news) - NAMED) > 0:
        warn(f"{surplus:,} more messages in {address} were skipped", ExchangeWarning)


def foreign(address: str, federation: Federation, other: bytes) -> str:
    """Say that another federation is at a place too, and in what it differs."""
    return (
        f"another federation is here, in {address}, and ignored: "
        f"{federation.fingerprint.mismatch(other)}. Sites hear one another if they have the same "
        "federation file"
    )


def is_withdrawable(
    message: Content | None,
    federation: Federation,
    sender: str,
    keys: KeyPair | None,
    mine: Callable[[Message], bool] | None,
) -> TypeGuard[Message]:
    """Return whether `Exchange.withdraw` with these arguments withdraws the message.

    One with a forged signature is not handed out, and must not determine the sequence up to which
    messages are withdrawn.
    """
    return (
        isinstance(message, Message)
        and origin(message) == origin_of(federation, sender, keys)
        and signature_fault(message) is None
        and (mine is None or mine(message))
    )


def origin_of(federation: Federation, sender: str, keys: KeyPair | None) -> Origin:
    """Return the origin of what an agent sends in a federation, signed with these keys if any."""
    return Origin(bytes(federation.fingerprint), sender, b"" if keys is None else keys.public)


def withdrawal_of(message: Heard, keys: KeyPair) -> Withdrawal:
    """Return the signed withdrawal of a message and all earlier ones."""
    fingerprint, sender, _ = origin(message)
    return keys.sign(Withdrawal(fingerprint=fingerprint, sender=sender, sequence=message.sequence))
