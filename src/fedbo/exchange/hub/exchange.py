"""A hub as an exchange."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any

from fedbo.caller import warn
from fedbo.exchange.base import Exchange, ExchangeError, ExchangeWarning, Holding
from fedbo.exchange.choice import chosen, is_withdrawable, signature_fault, withdrawal_of
from fedbo.exchange.hub.client import StrangeAnswer
from fedbo.exchange.hub.held import Fault, Held
from fedbo.exchange.hub.member import Member, accept_later
from fedbo.exchange.hub.memberships import Membership, Memberships
from fedbo.exchange.hub.url import HubUrl
from fedbo.exchange.progress import Progress
from fedbo.federation import Federation
from fedbo.federation.scalars import Scalars
from fedbo.identity import KeyPair, Keyring
from fedbo.locks import Lock
from fedbo.message import (
    Fingerprint,
    Heard,
    Message,
    MessageRefused,
    Release,
    Withdrawal,
    read,
)
from fedbo.message.fingerprint import PARTS
from fedbo.message.signed import member
from fedbo.outside import printable, shortened

NAMED = 5  # skipped messages that one fetch names; the rest are counted
_LONGEST = 1000  # characters of a reason that may quote others


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
        self._forget()

    def _forget(self) -> None:
        self._lock, self._fetching = Lock(), Lock()
        self._members: dict[tuple[str, str], Member] = {}  # by place and name
        self._held: dict[tuple[bytes, int], Held] = {}  # by federation and epoch

    def __getstate__(self) -> dict[str, Any]:
        # A copy has no token and no connection. It fetches for itself.
        return {name: self.__dict__[name] for name in ("url", "address", "keyring", "_memberships")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def publish(self, message: Heard) -> bool:
        if isinstance(message, Release):
            raise ExchangeError(
                f"releases at {self.address} are made by the hub itself, and nobody can publish "
                "one there: whoever runs it makes them with fedbo hub release"
            )
        sender = self._member(message.fingerprint, message.sender)
        return sender.publish(message)

    def fetch(self, federation: Federation) -> list[Heard]:
        mine = self._member(federation.fingerprint)
        place = bytes(federation.fingerprint), federation.epoch
        with self._fetching:
            held = self._held.get(place)
            owner = mine.membership.place, mine.membership.member
            if held is None or held.owner != owner:
                held = self._held[place] = Held(federation, *owner)
            newest = self._update(mine, held)
            found, refused = chosen(federation, self.keyring, held.heard())
            faults = {*held.faults(), *(Fault.of(one.encode(), text) for one, text in refused)}
            untold, held.told = faults - held.told, faults
            is_later, held.latest = newest > held.latest, max(newest, held.latest)
        self._tell(fault.text for fault in untold)
        if is_later:
            command = f"fedbo join {shlex.quote(mine.membership.place)}"
            warn(
                f"epoch {newest} of the federation has begun at {self.address}, and this is "
                f"still epoch {federation.epoch}: the two do not hear each other. Stop, get the "
                f"new federation file with {command}, and start again with it",
                ExchangeWarning,
            )
        return found

    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        there = self._memberships_for(federation.fingerprint)
        if all(one.member != member(sender) for one in there):
            return False  # this user cannot have published under this name
        site = self._member(federation.fingerprint, sender)
        is_gone = False
        for one in site.listed(sender):
            message = _read(one.content)
            if isinstance(message, Message) and is_withdrawable(
                message, federation, sender, keys, mine
            ):
                if keys is None:
                    site.withdraw(sender, message.epoch)
                else:
                    site.publish(withdrawal_of(message, keys))
                is_gone = True
        if is_gone:
            site.forget_progress(sender)
        return is_gone

    def holdings(self) -> list[Holding]:
        """Return what is in this user's federations, or in the one that the address names.

        Of each federation, the hub lists at most 1,024 messages: the user's own, and those that
        have changed last. Of a federation with a privacy plan, these are the user's own
        contributions, and the latest release. Nothing is checked against a federation or a keyring.
        """
        there = self._at_this_address()
        held: list[Holding] = []
        for membership in {one.place: one for one in reversed(there)}.values():
            for one in self._session(membership).listed():
                found = _read(one.content)
                if isinstance(found, str):
                    held.append(Holding(None, one.when, membership.place, found))
                elif not isinstance(found, Withdrawal):
                    fault = signature_fault(found)
                    held.append(Holding(found, one.when, membership.place, fault))
        return sorted(held, key=lambda one: one.place)

    def member(self, federation: Federation) -> str | None:
        return self._member(federation.fingerprint).membership.member

    def signer(self, federation: Federation) -> str | None:
        return self._member(federation.fingerprint).membership.key

    def latest(self, federation: Federation) -> Federation:
        mine = self._member(federation.fingerprint)
        there = mine.federation()
        if there.epoch <= federation.epoch:
            return federation
        return accept_later(mine.membership.place, federation, there)

    def share(self, scalars: Scalars) -> None:
        self._member(scalars.fingerprint, scalars.sender).share(scalars)

    def shared(self, federation: Federation) -> list[Scalars]:
        found: dict[str, Scalars] = {}
        faults: list[str] = []
        for content in self._member(federation.fingerprint).shared(federation.epoch):
            try:
                one = Scalars.decode(content)
                one.check(federation.fingerprint, federation.space.dimensions)
                found[one.sender] = one
            except MessageRefused as error:
                faults.append(str(error))
        self._tell(faults)
        return [found[sender] for sender in sorted(found)]

    def report(self, progress: Progress) -> None:
        self._member(progress.fingerprint, progress.sender).report(progress)

    def site(self, federation: Federation | None = None) -> Member:
        """Return this user's member of a federation, for what no other exchange can do.

        Args:
            federation: The federation, in any epoch; by default the only one at this address.

        Raises:
            ExchangeError: If this user is not a member, or if this could be one of several.
        """
        if federation is not None:
            return self._member(federation.fingerprint)
        return self._session(self._of_one_place(self._at_this_address())[0])

    def _update(self, mine: Member, held: Held) -> int:
        """Ask the hub for news; return the current epoch of the federation."""
        while True:
            try:
                return mine.fetch(held.wanted(), held.most_bytes, held.take)
            except StrangeAnswer:
                if not held.restart():  # else perhaps too much has changed since the last time
                    raise

    def _member(self, fingerprint: bytes, sender: str | None = None) -> Member:
        """Return the member that takes part in a federation, and may be this sender."""
        there = self._memberships_for(fingerprint)
        if sender is None:
            return self._session(there[0])
        for membership in there:
            if membership.member == member(sender):
                return self._session(membership)
        name = there[0].member
        raise ExchangeError(
            f"{sender!r} is not an agent of yours at {self.address}, where you are the member "
            f"{name!r}: name it {name!r} or {name + '/' + sender!r}"
        )

    def _memberships_for(self, fingerprint: bytes) -> list[Membership]:
        """Return this user's memberships in one federation, or raise an error."""
        there = self._at_this_address()
        fitting = [one for one in there if one.is_for(fingerprint)]
        if not fitting:
            part = Fingerprint(fingerprint).difference(there[0].agreed) or "space"
            raise ExchangeError(
                f"you are a member of {_named(there)}, but this is another federation: "
                f"{PARTS[part]}. Use the federation file from the hub, or join this one too: "
                f"fedbo join {shlex.quote(self.url.base)} --invite INVITATION"
            )
        same = [one for one in fitting if one.agreed == fingerprint]  # in the same epoch
        return self._of_one_place(same or fitting)

    def _at_this_address(self) -> list[Membership]:
        there = self._memberships.of(self.url.base, self.url.federation)
        if not there:
            raise ExchangeError(
                f"you are not a member of a federation at {self.address}: ask whoever runs the hub "
                f"for an invitation, and run fedbo join {shlex.quote(self.address)} --invite "
                "INVITATION"
            )
        return there

    def _of_one_place(self, there: list[Membership]) -> list[Membership]:
        if len({one.place for one in there}) > 1:
            raise ExchangeError(
                f"you are a member of several federations at {self.address}: give the address of "
                f"one of them, {_named(there)}"
            )
        return there

    def _session(self, membership: Membership) -> Member:
        """Return the member with the token that is stored now."""
        key = membership.place, membership.member
        with self._lock:
            known = self._members.get(key)
            if known is None or known.membership != membership:
                known = self._members[key] = Member(membership, self._memberships)
            return known

    def _tell(self, faults: Iterable[str]) -> None:
        texts = sorted(faults)
        for text in texts[:NAMED]:
            reason = printable(shortened(text, _LONGEST))
            warn(f"a message at {self.address} was skipped: {reason}", ExchangeWarning)
        if len(texts) > NAMED:
            more = f"{len(texts) - NAMED:,} more messages at {self.address} were skipped"
            warn(f"{more}; fedbo exchange status {self.address} lists all", ExchangeWarning)


def _named(there: Iterable[Membership]) -> str:
    return " and ".join(dict.fromkeys(one.place for one in there))


def _read(content: bytes) -> Heard | Withdrawal | str:
    """Return what is in these bytes, or why nobody can read them."""
    try:
        return read(content)
    except MessageRefused as error:
        return str(error)
