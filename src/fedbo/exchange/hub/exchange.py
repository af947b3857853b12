"""A hub as an exchange, and what a member holds of a federation between two fetches."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fedbo.caller import warn
from fedbo.exchange.base import Exchange, Holding, Identity
from fedbo.exchange.choice import (
    Origin,
    Outlawed,
    check_fit,
    chosen,
    is_withdrawable,
    most_in,
    origin,
    signature_fault,
    withdrawal_of,
)
from fedbo.exchange.errors import ExchangeError, ExchangeWarning
from fedbo.exchange.hub.client import StrangeAnswer
from fedbo.exchange.hub.member import Member
from fedbo.exchange.hub.memberships import HubUrl, Membership, Memberships
from fedbo.exchange.hub.wire import ANSWER_BYTES, MOST_HANDED, News, Progress, Wanted
from fedbo.federation.federation import Federation
from fedbo.files import Lock
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair
from fedbo.message import Heard, Message, MessageRefused, Release, Withdrawal, read
from fedbo.message.message import MOST_PEERS
from fedbo.message.signed import member as member_of
from fedbo.outside import printable, shortened

NAMED = 5  # skipped messages that one fetch names; the rest are counted
_LONGEST = 1000  # characters of a reason that may quote others
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

    Raises:
        ExchangeError: If this cannot be the address of a hub.

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

    def publish(self, message: Heard, progress: Progress | None = None) -> bool:
        """Hand out a message, as `Exchange.publish` says.

        Args:
            message: The message.
            progress: What the hub's page shows of the sender; nothing by default.
        """
        if isinstance(message, Release):
            raise ExchangeError(
                f"releases at {self.address} are made by the hub itself, and nobody can publish "
                "one there: whoever runs it makes them with fedbo hub release"
            )
        if progress is not None and message.kind == "contribution":
            raise ExchangeError("a privacy plan does not cover progress: publish without it")
        return self.member(message.fingerprint, message.sender).publish(message, progress)

    def fetch(self, federation: Federation) -> list[Heard]:
        mine = self.member(federation.fingerprint)
        with self._fetching:
            own = mine.membership
            key = federation.fingerprint, own.place, own.member
            held = self._held.setdefault(key, _Held(federation))
            try:
                held.take(mine.fetch(Wanted(held.cursor), held.most_bytes))
            except StrangeAnswer:  # perhaps too much has changed since the last time
                if not held.cursor:
                    raise
                held.take(mine.fetch(Wanted(), held.most_bytes))
            messages, refused = chosen(federation, self.keyring, held.messages())
            faults = held.faults() | {_Fault.of(other.encode(), text) for other, text in refused}
            news, held.told = faults - held.told, faults
        self._tell(news)
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
            message = _read(listed.content)
            if isinstance(message, Message) and is_withdrawable(
                message, federation, sender, keys, mine
            ):
                if keys is None:
                    own.withdraw(sender)
                else:
                    own.publish(withdrawal_of(message, keys))
                is_withdrawn = True
        return is_withdrawn

    def holdings(self) -> list[Holding]:
        """Return what is in this user's federations, or in the one that the address names.

        Of each federation, the hub lists the user's own messages and at most 1,024 others, those
        that have changed last. Of a federation with a privacy plan, these are the user's own
        contributions, and the latest release. Nothing is checked against a federation or a keyring.
        """
        places = {membership.place: membership for membership in reversed(self._here())}
        holdings = []
        for place, membership in sorted(places.items()):
            for listed in self._session(membership).listed():
                content = _read(listed.content)
                if isinstance(content, str):
                    holdings.append(Holding(None, listed.when, place, content))
                elif not isinstance(content, Withdrawal):
                    fault = signature_fault(content)
                    holdings.append(Holding(content, listed.when, place, fault))
        return holdings

    def identity(self, federation: Federation) -> Identity:
        mine = self.member(federation.fingerprint).membership
        return Identity(mine.member, mine.key)

    def member(self, fingerprint: bytes | None = None, sender: str | None = None) -> Member:
        """Return this user's member of a federation, for what no other exchange can do.

        Args:
            fingerprint: Of the federation; by default that of the only one at this address.
            sender: The name of an agent that it must be able to publish for; any by default.

        Raises:
            ExchangeError: If this user is not a member, or if this could be one of several.
        """
        memberships = self._memberships_for(fingerprint)
        for membership in memberships:
            if sender is None or membership.member == member_of(sender):
                return self._session(membership)
        name = memberships[0].member
        raise ExchangeError(
            f"{sender!r} is not an agent of yours at {self.address}, where you are the member "
            f"{name!r}: name it {name!r} or {f'{name}/{sender}'!r}"
        )

    def _memberships_for(self, fingerprint: bytes | None) -> list[Membership]:
        """Return this user's memberships in one federation, or raise an error."""
        here = self._here()
        fitting = [row for row in here if fingerprint in (None, row.agreed)]
        if fingerprint is not None and not fitting:
            raise ExchangeError(
                f"you are a member of {_places(here)}, but this is another federation: "
                f"{here[0].agreed.mismatch(fingerprint)}. Use the federation file from the "
                f"hub, or join this one too: fedbo join {shlex.quote(self.url.base)} --invite "
                "INVITATION"
            )
        if len({row.place for row in fitting}) > 1:
            raise ExchangeError(
                f"you are a member of several federations at {self.address}: give the address of "
                f"one of them, {_places(fitting)}"
            )
        return fitting

    def _here(self) -> list[Membership]:
        """Return this user's memberships at this address."""
        memberships = self._memberships.at(self.url)
        if not memberships:
            raise ExchangeError(
                f"you are not a member of a federation at {self.address}: ask whoever runs the hub "
                f"for an invitation, and run fedbo join {shlex.quote(self.address)} --invite "
                "INVITATION"
            )
        return memberships

    def _session(self, membership: Membership) -> Member:
        """Return the member with the token that is stored now."""
        with self._lock:
            if membership not in self._members:
                self._members[membership] = Member(membership, self._memberships)
            return self._members[membership]

    def _tell(self, faults: Iterable[_Fault]) -> None:
        texts = sorted(fault.text for fault in faults)
        for text in texts[:NAMED]:
            reason = printable(shortened(text, _LONGEST))
            warn(f"a message at {self.address} was skipped: {reason}", ExchangeWarning)
        if len(texts) > NAMED:
            more = f"{len(texts) - NAMED:,} more messages at {self.address} were skipped"
            warn(f"{more}; fedbo exchange status {self.address} lists all", ExchangeWarning)


class _Fault(NamedTuple):
    """Something that a hub handed out and that cannot be used: its digest, and why."""

    digest: bytes
    text: str

    @classmethod
    def of(cls, content: bytes, text: str) -> _Fault:
        return cls(hashlib.sha256(content).digest(), text)


class _Held:
    """What a member holds of a federation: the latest 1,024 of what it was handed.

    Everything is checked once, when it arrives.

    Args:
        federation: The federation.
    """

    def __init__(self, federation: Federation) -> None:
        self.cursor = ""
        self.told: set[_Fault] = set()  # each has had its warning
        self._federation = federation
        self._most = most_in(federation)
        self._contents: dict[int, Heard | _Fault] = {}  # by number at the hub, the latest last
        self._withdrawals: dict[Origin, Withdrawal] = {}  # the latest last

    @property
    def most_bytes(self) -> int:
        """The most bytes that an answer can have."""
        messages = min(MOST_PEERS * self._most, max(ANSWER_BYTES, self._most))
        return messages + MOST_HANDED * _BESIDE + _OTHERS

    def take(self, news: News) -> None:
        """Take in what has changed."""
        before = self._contents
        self._contents = {} if news.is_all else dict(before)
        for number in news.gone:
            self._contents.pop(number, None)
        for handed in news.handed:
            content = self._checked(handed.content, before.get(handed.number))
            self._contents.pop(handed.number, None)
            if isinstance(content, Withdrawal):
                self._outlaw(content)
            else:
                self._contents[handed.number] = content
        _keep_latest(self._contents, MOST_PEERS)
        self.cursor = news.cursor

    def messages(self) -> list[Heard]:
        """Return the messages, or the release, that fit and were not withdrawn."""
        outlawed = Outlawed(self._withdrawals.values())
        contents = self._contents.values()
        return [one for one in contents if not isinstance(one, _Fault) and one not in outlawed]

    def faults(self) -> set[_Fault]:
        """Return what cannot be used."""
        return {one for one in self._contents.values() if isinstance(one, _Fault)}

    def _checked(self, data: bytes, earlier: Heard | _Fault | None) -> Heard | Withdrawal | _Fault:
        """Return what was handed out, or why it cannot be used."""
        if isinstance(earlier, Heard) and earlier.encode() == data:
            return earlier
        if len(data) > self._most:
            text = f"it has {len(data):,} bytes, expected at most {self._most:,}"
            return _Fault.of(data, text)
        try:
            content = read(data)
            check_fit(self._federation, content)
        except MessageRefused as error:
            return _Fault.of(data, str(error))
        if isinstance(content, Message) and self._federation.privacy is not None:
            name = f"message {content.sequence} of {content.sender!r}"
            return _Fault.of(data, f"{name} is a contribution, which no member should be handed")
        return content

    def _outlaw(self, withdrawal: Withdrawal) -> None:
        """Remember a withdrawal, so that not even the hub can put the message back."""
        earlier = self._withdrawals.pop(origin(withdrawal), withdrawal)
        latest = max(earlier, withdrawal, key=lambda either: either.sequence)
        self._withdrawals[origin(withdrawal)] = latest
        _keep_latest(self._withdrawals, MOST_HANDED)


def _keep_latest(contents: dict[Any, Any], most: int) -> None:
    for key in list(contents)[: max(0, len(contents) - most)]:
        del contents[key]


def _places(memberships: Iterable[Membership]) -> str:
    return " and ".join(dict.fromkeys(membership.place for membership in memberships))


def _read(content: bytes) -> Heard | Withdrawal | str:
    """Return what is in these bytes, or why nobody can read them."""
    try:
        return read(content)
    except MessageRefused as error:
        return str(error)
