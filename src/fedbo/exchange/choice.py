"""What all exchanges decide alike: what fits, which message counts, and who may withdraw it."""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fedbo.exchange.base import Exchange
from fedbo.exchange.errors import ExchangeError, failed
from fedbo.federation.federation import Federation
from fedbo.files import FileRefused
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair, verify
from fedbo.message import Heard, Message, MessageRefused, Release, Withdrawal

LARGEST = 64 * 2**20  # bytes of a message: enough for a belief with M = 5,700
RELEASE = 4096  # bytes of a release, which has at most 64 + 152 numbers of up to 9 bytes
_BESIDE = 512  # bytes beside the numbers, or more: title, digest, header, key, signature
_DIFFERENCES = 3  # of other federations that a notice names


class Origin(NamedTuple):
    """What messages that replace each other have in common."""

    fingerprint: bytes
    sender: str
    key: bytes


def origin(signed: Heard | Withdrawal) -> Origin:
    """Return what messages that replace each other have in common."""
    return Origin(signed.fingerprint, signed.sender, signed.key)


class Outlawed:
    """Which messages their senders have withdrawn.

    Args:
        withdrawals: Their withdrawals, with valid signatures.
    """

    def __init__(self, withdrawals: Iterable[Withdrawal]) -> None:
        self._upto: dict[Origin, int] = {}
        for withdrawal in withdrawals:
            source = origin(withdrawal)
            self._upto[source] = max(withdrawal.sequence, self._upto.get(source, 0))

    def __contains__(self, message: Heard) -> bool:
        if not isinstance(message, Message):  # a release is never withdrawn
            return False
        return message.sequence <= self._upto.get(origin(message), -1)


class OpenExchange(Exchange):
    """An exchange whose place shows everything to those who can reach it, contributions too."""

    @abstractmethod
    def _chosen(self, federation: Federation) -> list[Heard]:
        """Return what `chosen` returns, and warn of what does not count."""

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


def most_in(federation: Federation) -> int:
    """Return how many bytes a message or release of a federation can have at most."""
    most = most_bytes(federation.sent_bytes)
    return most if federation.privacy is None else max(most, RELEASE)


def most_bytes(numbers: int) -> int:
    """Return how many bytes a message can have whose numbers take so many."""
    return min(LARGEST, numbers + _BESIDE)


def check_fit(federation: Federation, content: Heard | Withdrawal) -> None:
    """Raise `MessageRefused` if it is not for this federation, or its signature is not valid."""
    if isinstance(content, Heard):
        federation.check(content)
    elif (difference := federation.fingerprint.mismatch(content.fingerprint)) is not None:
        what = f"{content.type} {content.sequence} of {content.sender!r}"
        raise MessageRefused(f"{what}: {difference}")
    if content.key:
        verify(content)


def signature_fault(signed: Heard | Withdrawal) -> str | None:
    """Say what is wrong with a signature; None if it is valid, or if there is none."""
    try:
        if signed.key:
            verify(signed)
    except MessageRefused as error:
        return str(error)
    return None


def replaces(message: Heard, other: Heard | None) -> bool:
    """Return whether a message takes the place of another one of the same origin."""
    if other is None or other.sequence < message.sequence:
        return True
    return signature_fault(other) is not None  # a forged message blocks nobody


def chosen(
    federation: Federation, keyring: Keyring, messages: Iterable[Heard]
) -> tuple[list[Heard], list[tuple[Heard, str]]]:
    """Choose the latest message of each sender that the keyring accepts, and the latest release.

    Args:
        federation: The federation that all messages fit.
        keyring: Which keys belong to whom.
        messages: Messages and releases without a signature or with a valid one, in any order.

    Returns:
        These messages, sorted by sender, and those that the keyring refuses, with the reason.
    """
    latest: dict[tuple[str, bytes, str], Heard] = {}
    for message in messages:
        key = message.sender, message.key, message.type
        if (other := latest.get(key)) is not None:  # of equally late ones, all keep the same
            message = max(message, other, key=lambda each: (each.sequence, each.encode()))
        latest[key] = message
    try:
        accepted, refused = keyring.admit(federation, [latest[key] for key in sorted(latest)])
    except FileRefused as error:
        raise ExchangeError(str(error)) from None
    except OSError as error:
        raise failed(f"keys cannot be looked up in {keyring}", error) from error
    return accepted, [(message, str(error)) for message, error in refused]


def is_withdrawable(
    message: Message,
    federation: Federation,
    sender: str,
    keys: KeyPair | None,
    mine: Callable[[Message], bool] | None,
) -> bool:
    """Return whether `Exchange.withdraw` with these arguments withdraws the message.

    One with a forged signature is not handed out, and must not determine the sequence up to which
    messages are withdrawn.
    """
    source = Origin(federation.fingerprint, sender, b"" if keys is None else keys.public)
    return (
        origin(message) == source
        and signature_fault(message) is None
        and (mine is None or mine(message))
    )


def withdrawal_of(message: Message, keys: KeyPair) -> Withdrawal:
    """Return the signed withdrawal of a message and all earlier ones."""
    fingerprint, sender, _ = origin(message)
    return keys.sign(Withdrawal(fingerprint=fingerprint, sender=sender, sequence=message.sequence))


def foreign_notice(address: str, federation: Federation, others: Iterable[bytes]) -> str:
    """Say that other federations are at a place too, and in what they differ.

    Args:
        address: The place.
        federation: The federation that was looked for.
        others: The fingerprints of other federations, at least one.
    """
    fingerprints = sorted(others)
    n = len(fingerprints)
    who = "another federation is" if n == 1 else f"{n:,} other federations are"
    mismatches = [federation.fingerprint.mismatch(other) for other in fingerprints]
    shown = "; or ".join(text for text in mismatches[:_DIFFERENCES] if text)
    return (
        f"{who} here, in {address}, and ignored: {shown}{'; …' if n > _DIFFERENCES else ''}. Sites "
        "hear one another if they have the same federation file; fedbo exchange status "
        f"{shlex.quote(address)} lists all"
    )
