"""Become a member of a federation at a hub."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from fedbo.exchange.base import ExchangeError
from fedbo.exchange.hub.client import BETWEEN, Client, HubRefused, Unreachable
from fedbo.exchange.hub.invitation import Invitation
from fedbo.exchange.hub.member import MOST_FILE, Member, read_federation, store
from fedbo.exchange.hub.memberships import Membership, Memberships
from fedbo.exchange.hub.proof import Statement, hashed
from fedbo.exchange.hub.url import HubUrl
from fedbo.federation import Federation
from fedbo.identity import KeyPair


class _Opened(msgspec.Struct):
    federation: str
    file: str


class _Enrolled(msgspec.Struct):
    token: str


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
    removed = []  # by the operator
    for known in memberships.of(url.base, invited.name, invited.fingerprint, name):
        if Member(known, memberships).is_refused():
            removed.append(known)
            continue
        _check_same(known, key)
        return known
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
    store(client, memberships, membership)
    for known in removed:  # not before: if this fails, the tokens are still there
        memberships.remove(known)
    return membership


def _open(client: Client, invited: Invitation) -> Federation:
    """Return the federation at the hub; a ValueError if the invitation is for another one."""
    body = {"secret": invited.secret, "name": invited.name}
    opened = client.ask("POST", "/v1/invitations/open", _Opened, body, most=MOST_FILE)
    federation = read_federation(client.url.base, opened.file)
    invited.check(federation)
    if opened.federation != invited.name:
        raise client.strange("it opens another invitation than was given")
    return federation


def _check_same(known: Membership, key: str) -> None:
    if known.key != key:
        has = f"with the key {known.key}" if known.key else "without a key"
        raise ExchangeError(
            f"you are the member {known.member!r} of {known.place} already, {has}: go on as that "
            "member, or run fedbo hub leave or fedbo hub rekey first"
        )


def _default_name(federation: Federation, keys: KeyPair | None) -> str:
    for name, key in federation.members.items():
        if keys is not None and key == keys.public:
            return name
    return f"site-{secrets.token_hex(4)}"


def _token(client: Client, invited: Invitation, name: str, keys: KeyPair | None) -> str:
    body = {"secret": invited.secret, "name": name}
    if keys is not None:
        shared = invited.name, invited.fingerprint, name, hashed(invited.secret)
        body |= {"key": str(keys), "proof": Statement("enrol", *shared).sign(keys)}
    try:
        return client.ask("POST", "/v1/members", _Enrolled, body, most=MOST_FILE, once=True).token
    except Unreachable:
        raise
    except ExchangeError as error:
        if isinstance(error, HubRefused) and error.status not in BETWEEN:
            raise
        raise ExchangeError(
            f"{error}. If the hub says from now on that {name!r} is taken, it had enrolled you and "
            "its answer was lost: ask whoever runs it to remove that member, or take another name"
        ) from None
