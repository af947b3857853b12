"""What a member holds of one federation and epoch, kept up to date with the news from its hub."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from fedbo.exchange.choice import Outlawed, origin, signature_fault
from fedbo.exchange.file import most_in
from fedbo.exchange.hub.wire import ANSWER_BYTES, MOST_HANDED, MOST_PEERS, Handed, News, Wanted
from fedbo.federation import Federation
from fedbo.message import Heard, Message, MessageRefused, Withdrawal, read

_MOST_HELD = 2 * MOST_PEERS  # messages, and withdrawals that replace them
_BESIDE = 64  # bytes beside each message in an answer
_OTHERS = 400 * MOST_HANDED  # bytes of all withdrawals in an answer


class Fault(NamedTuple):
    """Something that a hub handed out and that cannot be used: its digest, and why."""

    digest: bytes
    text: str

    @classmethod
    def of(cls, content: bytes, text: str) -> Fault:
        return cls(hashlib.sha256(content).digest(), text)


class Held:
    """What is held, by its number at the hub. Each message is checked once, when it arrives.

    Args:
        federation: The federation, in one epoch.
        place: The address of the federation.
        name: The name of the member that holds it.
    """

    def __init__(self, federation: Federation, place: str, name: str) -> None:
        self.owner = place, name
        self._federation = federation
        self._most = most_in(federation)
        self._cursor = ""
        self._found: dict[int, Heard | Fault] = {}
        self._withdrawals: dict[object, Withdrawal] = {}  # by origin
        self.told: set[Fault] = set()  # each has had its warning
        self.latest = federation.epoch  # that the caller was told of

    @property
    def most_bytes(self) -> int:
        """The most bytes that an answer can have."""
        messages = min(MOST_PEERS * self._most, max(ANSWER_BYTES, self._most))
        return messages + MOST_HANDED * _BESIDE + _OTHERS

    def wanted(self) -> Wanted:
        """Return the next question."""
        return Wanted(self._federation.epoch, self._cursor)

    def take(self, data: bytes) -> int:
        """Take in what has changed; a ValueError, and no change, if no hub would say so.

        Args:
            data: The answer of the hub.

        Returns:
            The current epoch of the federation.
        """
        news = msgspec.msgpack.decode(data, type=News)
        found = {} if news.is_all else {**self._found}
        for number in news.gone:
            found.pop(number, None)
        if len(found.keys() | {one.number for one in news.handed}) > _MOST_HELD:
            raise ValueError(f"it hands out more than {MOST_PEERS:,} messages")
        for one in news.handed:
            checked = self._checked(one)
            if isinstance(checked, Withdrawal):
                self._outlaw(checked)
                found.pop(one.number, None)
            else:
                found[one.number] = checked
        self._found = found
        self._cursor = news.cursor
        return news.epoch

    def restart(self) -> bool:
        """Ask for everything the next time; return whether that is another question."""
        was_asked, self._cursor = bool(self._cursor), ""
        return was_asked

    def heard(self) -> list[Heard]:
        """Return the messages, or the release, that fit and were not withdrawn."""
        outlawed = Outlawed(self._withdrawals.values())
        found = (one for one in self._found.values() if not isinstance(one, Fault))
        return [one for one in found if one not in outlawed]

    def faults(self) -> list[Fault]:
        """Return what cannot be used."""
        return [one for one in self._found.values() if isinstance(one, Fault)]

    def _checked(self, handed: Handed) -> Heard | Withdrawal | Fault:
        """Return what was handed out, or why it cannot be used."""
        size, known = len(handed.content), self._found.get(handed.number)
        if isinstance(known, Heard) and known.encode() == handed.content:
            return known
        if size > self._most:
            text = f"it has {size:,} bytes, expected at most {self._most:,}"
            return Fault.of(handed.content, text)
        try:
            found = read(handed.content)
            self._check(found)
            return found
        except MessageRefused as error:
            return Fault.of(handed.content, str(error))

    def _outlaw(self, withdrawal: Withdrawal) -> None:
        """Remember a withdrawal, so that not even the hub can put the message back."""
        before = self._withdrawals.pop(origin(withdrawal), withdrawal)
        self._withdrawals[origin(withdrawal)] = max(
            before, withdrawal, key=lambda one: one.sequence
        )
        if len(self._withdrawals) > MOST_HANDED:
            del self._withdrawals[next(iter(self._withdrawals))]

    def _check(self, found: Heard | Withdrawal) -> None:
        what = f"{found.type} {found.sequence} of {found.sender!r}"
        if found.epoch != self._federation.epoch:
            raise MessageRefused(f"{what} is of epoch {found.epoch}")
        if isinstance(found, Message) and self._federation.privacy is not None:
            raise MessageRefused(f"{what} is a contribution, which no member should be handed out")
        if isinstance(found, Heard):
            self._federation.check(found)
        elif fault := self._federation.fingerprint.mismatch(found.fingerprint, same_epoch=True):
            raise MessageRefused(f"{what}: {fault}")
        if (fault := signature_fault(found)) is not None:
            raise MessageRefused(fault)
