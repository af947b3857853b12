"""A hub as an exchange, and what a member holds of a federation between two fetches."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import chain
from typing import Any

from fedbo.errors import MessageRefused, NotSent
from fedbo.exchange.base import Exchange, Holding, Identity
from fedbo.exchange.folder import LISTED
from fedbo.exchange.hearing import Hearing
from fedbo.exchange.hub.member import Member
from fedbo.exchange.hub.memberships import HubUrl, Membership, Memberships
from fedbo.exchange.hub.wire import ANSWER_BYTES, MOST_HANDED, News, Wanted
from fedbo.exchange.latest import Content
from fedbo.federation.federation import Federation
from fedbo.files import Lock
from fedbo.message import Message, Release, Withdrawal, read
from fedbo.message.message import MOST_PEERS
from fedbo.message.signed import member as member_of
from fedbo.trust import Keyring, Trusted

_BESIDE = 64  # bytes beside each message in an answer
_OTHERS = 400 * MOST_HANDED  # bytes of all withdrawals in an answer


class HubExchange(Exchange):
    """An exchange through a hub, of which this user is a member.

    ``fedbo join ADDRESS --invite …`` makes a member. Which member publishes follows from the
    federation and from the name of the sender. Nothing is asked of the hub before it is needed. A
    copy, a forked process, or a program that is started again goes on as the same member.

    Args:
        address: ``https://HOST[:PORT]``, or ``https://HOST[:PORT]/FEDERATION`` if this user is in
            several federations there that agree on the same. Plain ``http://`` is only for a hub
            on this machine.
        keyring: Which keys belong to whom; by default the user's keyring.

    >>> HubExchange("https://Hub.example.org/liver/").address
    'https://hub.example.org/liver'
    """

    def __init__(self, address: str, keyring: Keyring | None = None) -> None:
        self.url = HubUrl.parse(address)
        self.address = str(self.url)
        self.keyring = Keyring.user() if keyring is None else keyring
        self._memberships = Memberships()
        self._lock, self._fetching = Lock(), Lock()
        self._members: dict[Membership, Member] = {}
        self._held: dict[tuple[bytes, str, str], _Held] = {}  # by fingerprint, place and member

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no token and no connection. It fetches for itself.
        return type(self), (self.address, self.keyring)

    def publish(self, content: Content) -> bool:
        if isinstance(content, Release):
            raise NotSent(
                f"releases at {self.address} are made by the hub itself, and nobody can publish "
                "one there: whoever runs it makes them with fedbo hub release"
            )
        return self.member(content.fingerprint, content.sender).publish(content)

    def fetch(self, federation: Federation) -> list[Trusted]:
        mine = self.member(federation.fingerprint)
        with self._fetching:
            own = mine.membership
            key = federation.fingerprint, own.place, own.member
            new = _Held(federation, Hearing(federation, self.keyring, self.address))
            held = self._held.setdefault(key, new)
            is_new = held.take(mine.fetch(Wanted(held.cursor), held.most_bytes))
            if is_new or not held.hearing.is_settled(federation):
                label = f"a message at {self.address}"
                held.hearing.hear((label, _contribution(federation, data) or data) for data in held)
        return held.hearing.messages()

    def holdings(self) -> list[Holding]:
        """Return the user's own messages and at most 1,024 others, those that have changed last.

        Of a federation with a privacy plan, these are the user's own contributions, and the latest
        release. Nothing is checked.
        """
        mine = self.member()
        contents = ((_read(listed.content), listed.when) for listed in mine.listed())
        place = mine.membership.place
        return [Holding.of(c, when, place) for c, when in contents if not isinstance(c, Withdrawal)]

    def identity(self, federation: Federation) -> Identity:
        mine = self.member(federation.fingerprint).membership
        return Identity(mine.member, mine.key)

    def member(self, fingerprint: bytes | None = None, sender: str | None = None) -> Member:
        """Return this user's member of a federation, for what no other exchange can do.

        It raises an `ExchangeError` if this user is not a member, or could be one of several.

        Args:
            fingerprint: Of the federation; by default that of the only one at this address.
            sender: The name of an agent that it must be able to publish for; any by default.
        """
        memberships = self._memberships_for(fingerprint)
        for membership in memberships:
            if sender is None or membership.member == member_of(sender):
                return self._session(membership)
        name = memberships[0].member
        raise NotSent(
            f"{sender!r} is not an agent of yours at {self.address}, where you are the member "
            f"{name!r}: name it {name!r} or {f'{name}/{sender}'!r}"
        )

    def _memberships_for(self, fingerprint: bytes | None) -> list[Membership]:
        """Return this user's memberships in one federation, or raise an error."""
        here = self._memberships.at(self.url)
        fitting = [row for row in here if fingerprint in (None, row.agreed)]
        places = " and ".join(dict.fromkeys(row.place for row in fitting or here))
        join = f"fedbo join {shlex.quote(self.address)} --invite FILE"
        if not here:
            others = dict.fromkeys(row.place for row in self._memberships.all())
            only = f", only of {' and '.join(others)}: check the address, or" if others else ":"
            raise NotSent(
                f"you are not a member of a federation at {self.address}{only} ask whoever runs "
                f"the hub for an invitation, and run {join}"
            )
        if fingerprint is not None and not fitting:
            raise NotSent(
                f"you are a member of {places}, but this is another federation: "
                f"{here[0].agreed.mismatch(fingerprint)}. Use the federation file from the hub, or "
                f"join this one too: {join}"
            )
        if len({row.place for row in fitting}) > 1:
            raise NotSent(
                f"you are a member of several federations at {self.address}: give the address of "
                f"one of them, {places}"
            )
        return fitting

    def _session(self, membership: Membership) -> Member:
        """Return the member with the token that is stored now."""
        with self._lock:
            if membership not in self._members:
                self._members[membership] = Member(membership, self._memberships)
            return self._members[membership]


class _Held:
    """What a member holds of a federation: the latest that it was handed.

    Withdrawals are counted apart: many of them do not displace messages.
    """

    def __init__(self, federation: Federation, hearing: Hearing) -> None:
        self.cursor, self.hearing = "", hearing
        self._most = federation.most_bytes
        # by number at the hub, the latest last
        self._messages: dict[int, bytes] = {}
        self._withdrawals: dict[int, bytes] = {}

    def __iter__(self) -> Iterator[bytes]:
        return chain(self._messages.values(), self._withdrawals.values())

    @property
    def most_bytes(self) -> int:
        """The most bytes that an answer can have."""
        messages = min(MOST_PEERS * self._most, max(ANSWER_BYTES, self._most))
        return messages + MOST_HANDED * _BESIDE + _OTHERS

    def take(self, news: News) -> bool:
        """Take in what has changed; return whether anything has."""
        changed = [*news.gone, *(handed.number for handed in news.handed)]
        for held in (self._messages, self._withdrawals):
            for number in [*held] if news.is_all else changed:
                held.pop(number, None)
        for handed in news.handed:
            is_withdrawal = isinstance(_read(handed.content), Withdrawal)
            held = self._withdrawals if is_withdrawal else self._messages
            held[handed.number] = handed.content
        for held, most in ((self._messages, MOST_PEERS), (self._withdrawals, MOST_HANDED)):
            for number in [*held][: max(0, len(held) - most)]:
                del held[number]
        self.cursor = news.cursor
        return bool(news.is_all or news.gone or news.handed)


def _contribution(federation: Federation, data: bytes) -> str | None:
    """Return what is wrong with these bytes if they are a contribution to private releases."""
    if federation.privacy is None or not isinstance(content := _read(data), Message):
        return None
    name = f"message {content.sequence} of {content.sender!r}"
    return f"{name} is a contribution, which no member should be handed"


def _read(data: bytes) -> Content | str:
    """Return what is in these bytes, or why nobody can read them."""
    if len(data) > LISTED:
        return f"it has {len(data):,} bytes, expected at most {LISTED:,}"
    try:
        return read(data)
    except MessageRefused as error:
        return str(error)
