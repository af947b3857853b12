"""Becoming a member of a federation at a hub, and the requests of a member to its hub.

`docs/reference/hub.md` describes the hub's side of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from fedbo.exchange.errors import ExchangeError, NotSent
from fedbo.exchange.hub.client import Client, HubRefused
from fedbo.exchange.hub.memberships import HubUrl, Invitation, Membership, Memberships, Token
from fedbo.exchange.hub.proof import Statement, hashed
from fedbo.exchange.hub.wire import (
    ANSWER_BYTES,
    MEDIA_TYPE,
    Listed,
    Listing,
    News,
    Wanted,
)
from fedbo.federation.federation import Federation
from fedbo.federation.file import LARGEST_FILE
from fedbo.identity.keys import KeyPair
from fedbo.message import Message, Withdrawal
from fedbo.message.signed import parse_key
from fedbo.outside import printable, shortened

_MOST_FILE = 2 * LARGEST_FILE + 2**16  # bytes of an answer with a federation file, as JSON
_MOST_LISTED = 2 * ANSWER_BYTES  # bytes of an answer with messages
_news, _listing = msgspec.msgpack.Decoder(News), msgspec.msgpack.Decoder(Listing)


class _Opened(msgspec.Struct):
    federation: str
    file: str


class _Token(msgspec.Struct):
    token: Token


class _IsOut(msgspec.Struct):
    out: bool


class _File(msgspec.Struct):
    file: str


class Member:
    """A member of a federation at a hub. All threads may use it at once.

    Every method raises `ExchangeError`, or its subclass `HubRefused`, if it fails.
    """

    def __init__(self, membership: Membership, memberships: Memberships) -> None:
        self.membership = membership
        self._memberships = memberships
        self._client = Client(membership.address, membership.token)
        self._path = f"/v1/federations/{membership.federation}"

    def __repr__(self) -> str:
        return f"Member({self.membership!r})"

    def publish(self, content: Message | Withdrawal) -> bool:
        """Publish a message or a signed withdrawal; return whether it is handed out now."""
        answer = self._send("PUT", "/messages", content.encode(), MEDIA_TYPE)
        is_out: _IsOut = self._client.read(msgspec.json.Decoder(_IsOut), answer)
        return is_out.out

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
        """Return the federation that this user has joined, with its current list of members."""
        place = self.membership.place
        answer = self._client.ask("GET", self._path, None, _File, most=_MOST_FILE)
        federation = _read_federation(place, answer.file)
        if fault := self.membership.agreed.mismatch(federation.fingerprint):
            raise ExchangeError(
                f"the federation at {place} is not the one that you have joined ({fault}): it is "
                "not used; ask whoever runs the hub"
            )
        return federation

    def leave(self) -> bool:
        """Leave the federation: the hub deletes all that it has of the member.

        Returns:
            Whether the hub still knew the member. If not, only the membership here was removed.
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
        """Sign messages with another key, or none, from now on; the old one signs this too.

        The hub deletes what the old key signed.
        """
        self._memberships.check_writable()
        mine, body = self.membership, {"key": None if keys is None else str(keys)}
        agreed = mine.federation, mine.agreed, mine.member, hashed(mine.token)
        statement = Statement("rekey", *agreed)
        if keys is not None:
            body["proof"] = statement.sign(keys)
        if mine.key and (old := KeyPair.find(parse_key(mine.key))) is not None:
            body["old_proof"] = statement.sign(old)
        self._send("PUT", "/member/key", msgspec.json.encode(body))
        self.membership = replace(mine, key="" if keys is None else str(keys))
        self._memberships.add(self.membership)

    def rotate(self) -> None:
        """Get a new token, and store it; the old one is not valid any more."""
        self._memberships.check_writable()
        token = _token(self._client, f"{self._path}/member/token", None)
        self.membership = replace(self.membership, token=token)
        self._memberships.add(self.membership)
        self._client = Client(self.membership.address, token)

    def _send(self, method: str, path: str, *content: Any, **options: Any) -> bytes:
        return self._client.send(method, self._path + path, *content, **options)


def enrol(
    address: str,
    invitation: Invitation | str,
    name: str | None = None,
    keys: KeyPair | None = None,
    accept: Callable[[Federation], None] | None = None,
) -> Membership:
    """Become a member of a federation at a hub, and store the token.

    Whoever is a member under this name already stays it, and the invitation is not needed.

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
        ExchangeError: If the hub refuses it or does not answer, or the token cannot be stored.
    """
    url, memberships = HubUrl.parse(address), Memberships()
    invited = Invitation.parse(invitation) if isinstance(invitation, str) else invitation
    if url.federation not in ("", invited.name):
        raise ValueError(
            f"the invitation is for the federation {invited.name!r}, and the address names "
            f"{url.federation!r}: use the address {url.base}"
        )
    key = "" if keys is None else str(keys)
    for membership in memberships.at(HubUrl(url.base, invited.name), name):
        if membership.agreed == invited.fingerprint:
            if membership.key != key:
                raise ExchangeError(
                    f"you are the member {membership.member!r} of {membership.place} already, with "
                    f"{membership.key or 'no key'}: run fedbo hub leave or fedbo hub rekey first"
                )
            return membership
    client = Client(url)
    federation = _open(client, invited)
    if accept is not None:
        accept(federation)
    if name is None:
        listed = {key: member for member, key in federation.members.items()}
        name = listed.get(b"" if keys is None else keys.public, f"site-{secrets.token_hex(4)}")
    memberships.check_writable()
    body = {"secret": invited.secret, "name": name}
    if keys is not None:
        agreed = invited.name, invited.fingerprint, name, hashed(invited.secret)
        body |= {"key": key, "proof": Statement("enrol", *agreed).sign(keys)}
    membership = Membership(
        address=url.base,
        federation=invited.name,
        fingerprint=str(invited.fingerprint),
        member=name,
        token=_token(client, "/v1/members", body),
        key=key,
    )
    memberships.add(membership)
    return membership


def _open(client: Client, invited: Invitation) -> Federation:
    """Return the federation at the hub; a ValueError if the invitation is for another one."""
    body = {"secret": invited.secret, "name": invited.name}
    opened = client.ask("POST", "/v1/invitations/open", body, _Opened, most=_MOST_FILE)
    if opened.federation != invited.name:
        raise client.strange("it opens another invitation than was given")
    federation = _read_federation(client.url.base, opened.file)
    if fault := federation.fingerprint.mismatch(invited.fingerprint):
        raise ValueError(
            f"the hub's federation file is not the one that the invitation is for ({fault}): "
            "do not join, and ask whoever invited you"
        )
    return federation


def _token(client: Client, path: str, body: object) -> str:
    """Ask for a token, once: the hub makes another one each time."""
    try:
        return client.ask("POST", path, body, _Token, once=True).token
    except (HubRefused, NotSent):
        raise
    except ExchangeError as error:
        raise ExchangeError(
            f"{error}. If the hub had done it, its answer was lost, and it will say that the token "
            "is not valid, or the name taken: ask whoever runs it to remove the member, and join "
            "again"
        ) from None


def _read_federation(place: str, text: str) -> Federation:
    """Read a federation file that comes from a hub; an `ExchangeError` if something is wrong."""
    try:
        return Federation.from_toml(text)
    except (ValueError, TypeError, RecursionError) as error:
        reason = printable(shortened(str(error), 300))
        raise ExchangeError(
            f"the federation file from {place} cannot be used: {reason}; ask whoever runs the hub"
        ) from None
