"""A hub as an exchange, and what a member holds of a federation between two fetches."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from fedbo.exchange.base import Exchange, Holding, Identity
from fedbo.exchange.choice import (
    LISTED,
    Content,
    Origin,
    choose,
    is_withdrawable,
    origin,
    signature_fault,
    tell,
    withdrawal_of,
)
from fedbo.exchange.errors import NotSent
from fedbo.exchange.hub.member import Member
from fedbo.exchange.hub.memberships import HubUrl, Membership, Memberships
from fedbo.exchange.hub.wire import ANSWER_BYTES, MOST_HANDED, News, Wanted
from fedbo.federation.federation import Federation
from fedbo.files import Lock
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair
from fedbo.message import Heard, Message, MessageRefused, Release, Withdrawal, read
from fedbo.message.message import MOST_PEERS
from fedbo.message.signed import MOST_AGENTS, key_text
from fedbo.message.signed import member as member_of

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
        self.keyring: Keyring = Keyring.user() if keyring is None else keyring
        self._memberships = Memberships()
        self._lock, self._fetching = Lock(), Lock()
        self._members: dict[Membership, Member] = {}
        self._held: dict[tuple[bytes, str, str], _Held] = {}  # by fingerprint, place and member

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no token and no connection. It fetches for itself.
        return type(self), (self.address, self.keyring)

    def publish(self, message: Heard) -> bool:
        if isinstance(message, Release):
            raise NotSent(
                f"releases at {self.address} are made by the hub itself, and nobody can publish "
                "one there: whoever runs it makes them with fedbo hub release"
            )
        return self.member(message.fingerprint, message.sender).publish(message)

    def fetch(self, federation: Federation) -> list[Heard]:
        mine = self.member(federation.fingerprint)
        with self._fetching:
            own = mine.membership
            key = federation.fingerprint, own.place, own.member
            held = self._held.setdefault(key, _Held(federation))
            listed = {name: key_text(key) for name, key in federation.members.items()}
            known = listed or self.keyring.known(federation)
            held.take(mine.fetch(Wanted(held.cursor), held.most_bytes), known)
            label = f"a message at {self.address}"
            contents = ((label, content) for content in held.contents())
            messages, faults = choose(federation, self.keyring, contents)
            tell(faults, held.told, self.address)
        return messages

    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        memberships = self._memberships_for(federation.fingerprint)
        if all(membership.member != member_of(sender) for membership in memberships):
            return False  # this user cannot have published under this name
        own = self.member(federation.fingerprint, sender)
        is_withdrawn = False
        for listed in own.listed(sender):
            message = _read(listed.content, federation.most_bytes)
            if is_withdrawable(message, federation, sender, keys, mine):
                if keys is None:
                    own.withdraw(sender)
                else:
                    own.publish(withdrawal_of(message, keys))
                is_withdrawn = True
        return is_withdrawn

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
    """What a member holds of a federation: the latest 1,024 of what it was handed."""

    def __init__(self, federation: Federation) -> None:
        self.cursor = ""
        self.told: set[str] = set()  # each has had its warning
        self._federation, self._most = federation, federation.most_bytes
        self._contents: dict[int, Content] = {}  # by number at the hub, the latest last
        self._withdrawals: dict[Origin, Withdrawal] = {}

    @property
    def most_bytes(self) -> int:
        """The most bytes that an answer can have."""
        messages = min(MOST_PEERS * self._most, max(ANSWER_BYTES, self._most))
        return messages + MOST_HANDED * _BESIDE + _OTHERS

    def contents(self) -> list[Content]:
        """Return what is held. Not even the hub can put back what was withdrawn."""
        return [*self._contents.values(), *self._withdrawals.values()]

    def take(self, news: News, known: Mapping[str, str]) -> None:
        """Take in what has changed; ``known`` are the keys of members, the oldest first."""
        if news.is_all:
            self._contents.clear()
        for number in [*news.gone, *(handed.number for handed in news.handed)]:
            self._contents.pop(number, None)
        for handed in news.handed:
            content = _read(handed.content, self._most)
            if isinstance(content, Message) and self._federation.privacy is not None:
                name = f"message {content.sequence} of {content.sender!r}"
                content = f"{name} is a contribution, which no member should be handed"
            if not isinstance(content, Withdrawal):
                self._contents[handed.number] = content
            elif content.fingerprint == self._federation.fingerprint and not signature_fault(
                content
            ):
                source = origin(content)
                earlier = self._withdrawals.get(source, content)
                latest = max(earlier, content, key=lambda either: either.sequence)
                self._withdrawals[source] = latest
        for number in [*self._contents][: max(0, len(self._contents) - MOST_PEERS)]:
            del self._contents[number]
        if len(self._withdrawals) > MOST_HANDED:
            self._forget_withdrawals(known)
        self.cursor = news.cursor

    def _forget_withdrawals(self, known: Mapping[str, str]) -> None:
        """Keep 4,096. A hub can invent any number, but only of names that nobody heard before."""
        places = {name: place for place, name in enumerate(known)}
        agents: Counter[str] = Counter()

        def place(source: Origin) -> int:
            name = member_of(source.sender)
            agents[name] += 1
            is_known = known.get(name) == self._withdrawals[source].signer
            return places[name] if is_known and agents[name] <= MOST_AGENTS else len(places)

        kept = sorted(self._withdrawals, key=place)[:MOST_HANDED]
        self._withdrawals = {source: self._withdrawals[source] for source in kept}


def _read(data: bytes, most: int = LISTED) -> Content:
    """Return what is in these bytes, or why nobody can read them."""
    if len(data) > most:
        return f"it has {len(data):,} bytes, expected at most {most:,}"
    try:
        return read(data)
    except MessageRefused as error:
        return str(error)
