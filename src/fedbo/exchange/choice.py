"""What all exchanges decide alike: which message is handed out, and who may withdraw it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping

from fedbo.exchange.base import ExchangeError, failed
from fedbo.federation import Federation
from fedbo.files import FileRefused
from fedbo.identity import KeyPair, Keyring, verify
from fedbo.message import Heard, Message, MessageRefused, Release, Withdrawal
from fedbo.message.signed import PARTS, member


def same_federation(federation: Federation, message: Heard | Withdrawal) -> bool:
    """Return whether the message is for this federation, in any epoch."""
    part = federation.fingerprint.difference(message.fingerprint)
    return part is None or (part == "scalars" and message.epoch != federation.epoch)


class Outlawed:
    """Which messages their senders have withdrawn.

    Args:
        withdrawals: Their withdrawals, with valid signatures.
    """

    def __init__(self, withdrawals: Iterable[Withdrawal]) -> None:
        self._upto: dict[tuple[bytes, int, str, bytes], int] = {}
        for one in withdrawals:
            self._upto[origin(one)] = max(one.sequence, self._upto.get(origin(one), 0))

    def __contains__(self, message: Heard) -> bool:
        if not isinstance(message, Message):  # a release is never withdrawn
            return False
        return message.sequence <= self._upto.get(origin(message), -1)


def origin(signed: Heard | Withdrawal) -> tuple[bytes, int, str, bytes]:
    """Return what messages that replace each other have in common."""
    return signed.fingerprint, signed.epoch, signed.sender, signed.key


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
            message = max(message, other, key=lambda one: (one.sequence, one.encode()))
        latest[key] = message
    with _looking_up(keyring):
        return keyring.admit(federation, [latest[key] for key in sorted(latest)])


def unlisted_fault(
    federation: Federation, keyring: Keyring, content: Heard | Withdrawal
) -> str | None:
    """Say why the federation's list of members rules this out; None if it does not.

    Args:
        federation: The federation that it is for.
        keyring: Which keys belong to whom.
        content: A message or withdrawal without a signature or with a valid one.
    """
    listed = federation.members
    if not listed or (content.key and listed.get(member(content.sender)) == content.key):
        return None
    with _looking_up(keyring):
        _, refused = keyring.review(federation, [content])
    return refused[0][1] if refused else None


@contextlib.contextmanager
def _looking_up(keyring: Keyring) -> Iterator[None]:
    try:
        yield
    except FileRefused as error:
        raise ExchangeError(str(error)) from None
    except OSError as error:
        raise failed(f"keys cannot be looked up in {keyring}", error) from error


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
    return (
        message.sender == sender
        and message.key == (b"" if keys is None else keys.public)
        and same_federation(federation, message)
        and signature_fault(message) is None
        and (mine is None or mine(message))
    )


def audible(federation: Federation, chosen: Iterable[Heard]) -> list[Heard]:
    """Return what agents may hear: releases if the federation has a privacy plan, else messages.

    Args:
        federation: The federation.
        chosen: What `chosen` returned.
    """
    wanted = Message if federation.privacy is None else Release
    return [one for one in chosen if isinstance(one, wanted)]


def contributed(federation: Federation, chosen: Iterable[Heard]) -> list[Message]:
    """Return the contributions for whoever makes the private releases; a ValueError if nobody does.

    Args:
        federation: The federation.
        chosen: What `chosen` returned.
    """
    federation.require_plan()
    return [one for one in chosen if isinstance(one, Message)]


def withdrawal_of(message: Message, keys: KeyPair) -> Withdrawal:
    """Return the signed withdrawal of a message and all earlier ones."""
    fingerprint, epoch, sender, _ = origin(message)
    return keys.sign(
        Withdrawal(fingerprint=fingerprint, epoch=epoch, sender=sender, sequence=message.sequence)
    )


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
        f"{'; or '.join(PARTS[part] for part in PARTS if part in parts)}. Sites hear one another "
        "if they have the same federation file, or, without a file, the same parameters and "
        f"ranges; fedbo exchange status {shlex.quote(address)} lists all"
    )
