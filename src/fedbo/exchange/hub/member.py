"""Becoming a member of a federation at a hub, and the requests of a member to its hub.

`docs/reference/hub.md` describes the hub's side of them.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from fedbo.errors import ExchangeError, HubRefused, NotSent
from fedbo.exchange.hub.client import Client
from fedbo.exchange.hub.memberships import HubUrl, Invitation, Membership, Memberships
from fedbo.exchange.hub.proof import Statement, change, hashed
from fedbo.exchange.hub.wire import (
    ANSWER_BYTES,
    MEDIA_TYPE,
    Enrolled,
    FederationFile,
    Listed,
    Listing,
    NewKey,
    NewMember,
    News,
    NewToken,
    Nonce,
    Outcome,
    Secrets,
    Wanted,
)
from fedbo.federation.federation import Federation
from fedbo.federation.file import LARGEST_FILE
from fedbo.message import Message, Withdrawal
from fedbo.message.signed import parse_key
from fedbo.outside import printable, shortened
from fedbo.trust.keys import KeyPair

_MOST_FILE = 2 * LARGEST_FILE + 2**16  # bytes of an answer with a federation file, as JSON
_MOST_LISTED = 2 * ANSWER_BYTES  # bytes of an answer with messages
_news, _listing = msgspec.msgpack.Decoder(News), msgspec.msgpack.Decoder(Listing)
_outcome = msgspec.json.Decoder(Outcome)


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
        outcome: Outcome = self._client.read(_outcome, answer)
        return outcome.out

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
        answer = self._client.ask("GET", self._path, None, FederationFile, most=_MOST_FILE)
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

    def rekey(self, keys: KeyPair) -> None:
        """Sign messages with another key from now on; the old one signs this too.

        The hub deletes what the old key signed.
        """
        self._memberships.check_writable()
        mine = self.membership
        old = KeyPair.find(parse_key(mine.key))
        if old is None:
            raise NotSent(
                f"the private key of {mine.key}, which {mine.member!r} signs with now, is not on "
                "this machine, and it has to sign its own replacement: import it (fedbo identity "
                "import FILE), or ask the operator to remove the member, and join again"
            )
        path = f"{self._path}/member/key"
        nonce = bytes.fromhex(self._client.ask("POST", path, None, Nonce).nonce)
        agreed = mine.federation, mine.agreed, mine.member
        statement = Statement("rekey", *agreed, change(old.public, keys.public, nonce))
        body = NewKey(str(keys), proof=statement.sign(keys), old_proof=statement.sign(old))
        self._send("PUT", "/member/key", msgspec.json.encode(body))
        self.membership = replace(mine, key=str(keys))
        self._memberships.add(self.membership)

    def rotate(self) -> None:
        """Get a new token, and store it; the old one is not valid any more."""
        self._memberships.check_writable()
        with _explained():
            path = f"{self._path}/member/token"
            token = self._client.ask("POST", path, None, NewToken).token
        self.membership = replace(self.membership, token=token)
        self._memberships.add(self.membership)
        self._client = Client(self.membership.address, token)

    def _send(self, method: str, path: str, *content: Any, **options: Any) -> bytes:
        return self._client.send(method, self._path + path, *content, **options)


def enrol(
    address: str,
    invitation: Invitation | str,
    name: str | None = None,
    *,
    keys: KeyPair,
    accept: Callable[[Federation], None] | None = None,
) -> Membership:
    """Become a member of a federation at a hub, and store the token.

    Whoever is a member under this name already stays it, and the invitation is not needed.

    Args:
        address: The address of the hub.
        invitation: What whoever runs the hub has sent.
        name: The name of the member: 1 to 48 bytes of UTF-8, without a slash. By default the one
            that the federation lists with this key, or else a random one.
        keys: The key pair that signs the member's messages.
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
    key = str(keys)
    for membership in memberships.at(HubUrl(url.base, invited.name), name):
        if membership.agreed == invited.fingerprint:
            if membership.key != key:
                raise ExchangeError(
                    f"you are the member {membership.member!r} of {membership.place} already, with "
                    f"the key {membership.key}: run fedbo hub leave or fedbo hub rekey first"
                )
            return membership
    client = Client(url)
    federation = _open(client, invited)
    if accept is not None:
        accept(federation)
    if name is None:
        listed = {key: member for member, key in federation.members.items()}
        name = listed.get(keys.public, f"site-{secrets.token_hex(4)}")
    memberships.check_writable()
    agreed = invited.name, invited.fingerprint, name, hashed(invited.secret)
    proof = Statement("enrol", *agreed).sign(keys)
    body = NewMember(invited.secret, name=name, key=key, proof=proof)
    with _explained():
        token = client.ask("POST", "/v1/members", body, Enrolled, most=_MOST_FILE).token
    membership = Membership(
        address=url.base,
        federation=invited.name,
        fingerprint=str(invited.fingerprint),
        member=name,
        token=token,
        key=key,
    )
    memberships.add(membership)
    return membership


def _open(client: Client, invited: Invitation) -> Federation:
    """Return the federation at the hub; a ValueError if the invitation is for another one."""
    body = Secrets(invited.secret, invited.name)
    opened = client.ask("POST", "/v1/invitations/open", body, FederationFile, most=_MOST_FILE)
    if opened.federation != invited.name:
        raise client.strange("it opens another invitation than was given")
    federation = _read_federation(client.url.base, opened.file)
    if fault := federation.fingerprint.mismatch(invited.fingerprint):
        raise ValueError(
            f"the hub's federation file is not the one that the invitation is for ({fault}): "
            "do not join, and ask whoever invited you"
        )
    return federation


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Say what follows if an answer with a token is lost: the hub shows a token once."""
    try:
        yield
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
