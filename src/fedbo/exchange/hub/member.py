"""Becoming a member of a federation at a hub, and the requests of a member to its hub.

`docs/hub.md` describes the hub's side of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fedbo.exchange.errors import ExchangeError
from fedbo.exchange.hub.client import JSON, MOST, Client, HubRefused, Unreachable
from fedbo.exchange.hub.memberships import HubUrl, Invitation, Membership, Memberships
from fedbo.exchange.hub.proof import Statement, hashed
from fedbo.exchange.hub.wire import (
    ANSWER_BYTES,
    MEDIA_TYPE,
    Listed,
    Listing,
    News,
    Progress,
    Publication,
    Wanted,
)
from fedbo.federation.federation import Federation
from fedbo.federation.file import LARGEST_FILE
from fedbo.identity.keys import KeyPair
from fedbo.message import Message, Withdrawal
from fedbo.outside import printable, shortened

T = TypeVar("T")

_MOST_FILE = 2 * LARGEST_FILE + 2**16  # bytes of an answer with a federation file, as JSON
_MOST_LISTED = 2 * ANSWER_BYTES  # bytes of an answer with messages
_news, _listing = msgspec.msgpack.Decoder(News), msgspec.msgpack.Decoder(Listing)


class _Opened(msgspec.Struct):
    federation: str
    file: str


class _Token(msgspec.Struct):
    token: str


class _IsOut(msgspec.Struct):
    out: bool


class _File(msgspec.Struct):
    file: str


class Member:
    """A member of a federation at a hub. All threads may use it at once.

    Every method raises `ExchangeError`, or its subclass `HubRefused`, if it fails. If another
    process of this user has rotated the token, the new one is used.

    Args:
        membership: Who the member is.
        memberships: Where tokens are kept.
    """

    def __init__(self, membership: Membership, memberships: Memberships) -> None:
        self.membership = membership
        self._memberships = memberships
        self._client = Client(membership.address, membership.token)

    def __repr__(self) -> str:
        return f"Member({self.membership!r})"

    def publish(self, content: Message | Withdrawal, progress: Progress | None = None) -> bool:
        """Publish a message or a signed withdrawal; return whether it is handed out now."""
        publication = msgspec.msgpack.encode(Publication(content.encode(), progress))
        return self._ask(_IsOut, "PUT", "/messages", publication, MEDIA_TYPE).out

    def withdraw(self, sender: str) -> None:
        """Withdraw an unsigned message."""
        self._send("DELETE", "/messages", query={"sender": sender})

    def fetch(self, wanted: Wanted, most: int) -> News:
        """Ask what has changed; an answer of more than so many bytes is refused."""
        question = msgspec.msgpack.encode(wanted)
        answer = self._send("POST", "/fetch", question, MEDIA_TYPE, most=most)
        news: News = self._client.read(_news, answer)
        return news

    def listed(self, sender: str | None = None) -> tuple[Listed, ...]:
        """Return what is at the hub: all of a sender, or what all may fetch."""
        query = {} if sender is None else {"sender": sender}
        answer = self._send("GET", "/messages", query=query, most=_MOST_LISTED)
        listing: tuple[Listed, ...] = self._client.read(_listing, answer)
        return listing

    def federation(self) -> Federation:
        """Return the federation with its current list of members.

        Raises:
            ExchangeError: Also if it is another federation than this user has joined.
        """
        place = self.membership.place
        answer = self._ask(_File, "GET", "", most=_MOST_FILE)
        federation = _read_federation(place, answer.file)
        if fault := self.membership.agreed.mismatch(federation.fingerprint):
            raise ExchangeError(
                f"the federation at {place} is not the one that you have joined ({fault}): it is "
                "not used; ask whoever runs the hub"
            )
        return federation

    def is_refused(self) -> bool:
        """Whether the hub says that the token is not valid: the member was removed, or revoked."""
        try:
            self._send("GET", "", most=_MOST_FILE)
        except HubRefused as error:
            return error.slug == "wrong-token"
        except ExchangeError:  # the hub does not answer
            return False
        return False

    def leave(self) -> bool:
        """Leave the federation: the hub deletes all that it has of the member.

        Returns:
            Whether the hub still knew the member. If not, the token was of no use any more, and
            nothing but the membership on this machine was removed.
        """
        is_known = True
        try:
            self._send("DELETE", "/member")
        except HubRefused as error:
            if error.slug != "wrong-token":
                raise
            is_known = False
        self._memberships.remove(self.membership)
        return is_known

    def rekey(self, keys: KeyPair | None) -> None:
        """Sign messages with another key from now on; what the old one signed is deleted.

        Args:
            keys: The new key pair; None if messages are not signed any more.
        """
        self._memberships.check_writable()
        self._send("PUT", "/member/key", lambda: self._new_key(keys))
        key = "" if keys is None else str(keys)
        self._memberships.set_key(self.membership, key)
        self.membership = replace(self.membership, key=key)

    def rotate(self) -> None:
        """Get a new token, and store it; the old one is not valid any more."""
        self._memberships.check_writable()
        try:
            answer = self._ask(_Token, "POST", "/member/token", once=True)
        except Unreachable as error:
            raise ExchangeError(f"{error}. The token is unchanged.") from None
        except HubRefused:
            raise
        except ExchangeError as error:
            raise ExchangeError(
                f"{error}. If the hub says from now on that the token is not valid, it had changed "
                "it and its answer was lost: ask whoever runs it to remove this member, and join "
                "again"
            ) from None
        renewed = replace(self.membership, token=answer.token)
        _store(self._client, self._memberships, renewed)
        self._use(renewed)

    def _ask(self, answer: type[T], *request: Any, **options: Any) -> T:
        """Send a request, and return what the hub answers in JSON."""
        data = self._send(*request, **options)
        content: T = self._client.read(msgspec.json.Decoder(answer), data)
        return content

    def _send(
        self,
        method: str,
        path: str,
        content: bytes | Callable[[], bytes] | None = None,
        media_type: str = JSON,
        *,
        query: Mapping[str, str] | None = None,
        most: int = MOST,
        once: bool = False,
    ) -> bytes:
        """Send a request; content that depends on the token is made anew for another token."""
        path = f"/v1/federations/{self.membership.federation}{path}"
        options: dict[str, Any] = {"query": query, "most": most, "once": once}
        for is_last in (False, True):
            data = content() if callable(content) else content
            try:
                return self._client.send(method, path, data, media_type, **options)
            except HubRefused as error:
                if is_last or error.slug != "wrong-token" or not self._renew():
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _renew(self) -> bool:
        """Take the token that another process has stored; return whether there is one."""
        for stored in self._memberships.all():
            if stored.is_same_member(self.membership) and stored.token != self.membership.token:
                self._use(stored)
                return True
        return False

    def _use(self, membership: Membership) -> None:
        self.membership = membership
        self._client = Client(membership.address, membership.token)

    def _new_key(self, keys: KeyPair | None) -> bytes:
        """Return what the hub is told of a key, with the proof that it is ours."""
        if keys is None:
            return msgspec.json.encode({"key": None})
        mine = self.membership
        statement = Statement(
            "rekey", mine.federation, mine.agreed, mine.member, hashed(mine.token)
        )
        return msgspec.json.encode({"key": str(keys), "proof": statement.sign(keys)})


def enrol(
    address: str,
    invitation: Invitation | str,
    name: str | None = None,
    keys: KeyPair | None = None,
    accept: Callable[[Federation], None] | None = None,
) -> Membership:
    """Become a member, and store the token.

    Whoever is a member under this name already stays it, and the invitation is not needed, unless
    the hub says that the token is not valid any more.

    Args:
        address: The address of the hub.
        invitation: What whoever runs the hub has sent.
        name: The name of the member: 1 to 48 bytes of UTF-8, without a slash. By default the one
            that the federation lists with this key, or else a random one.
        keys: The key pair that signs the member's messages; None (default): they are not signed.
        accept: Is called with the federation before anything is changed, unless this user is a
            member already. If it raises, nothing is changed.

    Raises:
        ValueError: If this is not an invitation, or not one to the hub's federation.
        HubRefused: If the hub refuses it, for example because the name is taken.
        ExchangeError: If the hub does not answer, or if the token could not be stored.
    """
    url, memberships = HubUrl.parse(address), Memberships()
    invited = Invitation.parse(invitation) if isinstance(invitation, str) else invitation
    if url.federation not in ("", invited.name):
        raise ValueError(
            f"the invitation is for the federation {invited.name!r}, and the address names "
            f"{url.federation!r}: use the address {url.base}"
        )
    key = "" if keys is None else str(keys)
    refused = []  # the operator has removed these members
    for membership in memberships.at(HubUrl(url.base, invited.name), name):
        if membership.agreed != invited.fingerprint:
            continue
        if not Member(membership, memberships).is_refused():
            _check_key(membership, key)
            return membership
        refused.append(membership)
    client = Client(url)
    federation = _open(client, invited)
    if accept is not None:
        accept(federation)
    name = _default_name(federation, keys) if name is None else name
    memberships.check_writable()
    membership = Membership(
        address=url.base,
        federation=invited.name,
        fingerprint=str(invited.fingerprint),
        member=name,
        token=_token(client, invited, name, keys),
        key=key,
    )
    _store(client, memberships, membership)
    for other in refused:  # not before: if this fails, the tokens are still there
        memberships.remove(other)
    return membership


def _check_key(membership: Membership, key: str) -> None:
    if membership.key != key:
        has = f"with the key {membership.key}" if membership.key else "without a key"
        raise ExchangeError(
            f"you are the member {membership.member!r} of {membership.place} already, {has}: go on "
            "as that member, or run fedbo hub leave or fedbo hub rekey first"
        )


def _open(client: Client, invited: Invitation) -> Federation:
    """Return the federation at the hub; a ValueError if the invitation is for another one."""
    body = {"secret": invited.secret, "name": invited.name}
    opened = client.ask("/v1/invitations/open", body, _Opened, most=_MOST_FILE)
    if opened.federation != invited.name:
        raise client.strange("it opens another invitation than was given")
    federation = _read_federation(client.url.base, opened.file)
    if fault := federation.fingerprint.mismatch(invited.fingerprint):
        raise ValueError(
            f"the hub's federation file is not the one that the invitation is for ({fault}): "
            "do not join, and ask whoever invited you"
        )
    return federation


def _default_name(federation: Federation, keys: KeyPair | None) -> str:
    for name, key in federation.members.items():
        if keys is not None and key == keys.public:
            return name
    return f"site-{secrets.token_hex(4)}"


def _token(client: Client, invited: Invitation, name: str, keys: KeyPair | None) -> str:
    body = {"secret": invited.secret, "name": name}
    if keys is not None:
        agreed = invited.name, invited.fingerprint, name, hashed(invited.secret)
        body |= {"key": str(keys), "proof": Statement("enrol", *agreed).sign(keys)}
    try:
        return client.ask("/v1/members", body, _Token, once=True).token
    except (HubRefused, Unreachable):
        raise
    except ExchangeError as error:
        raise ExchangeError(
            f"{error}. If the hub says from now on that {name!r} is taken, it had enrolled you and "
            "its answer was lost: ask whoever runs it to remove that member, or take another name"
        ) from None


def _store(client: Client, memberships: Memberships, membership: Membership) -> None:
    """Store a token that a hub has just given; it is not shown again."""
    try:
        memberships.add(membership)
    except ValueError as error:  # which quotes nothing
        raise client.strange(f"in its answer, {error}") from None


def _read_federation(place: str, text: str) -> Federation:
    """Read a federation file that comes from a hub; an `ExchangeError` if something is wrong."""
    try:
        return Federation.from_toml(text)
    except (ValueError, TypeError, RecursionError) as error:
        reason = printable(shortened(str(error), 300))
        raise ExchangeError(
            f"the federation file from {place} cannot be used: {reason}; ask whoever runs the hub"
        ) from None
