"""The requests of one member to its hub; `docs/hub.md` describes the hub's side of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

import msgspec

from fedbo.exchange.base import ExchangeError
from fedbo.exchange.file import LARGEST
from fedbo.exchange.hub.client import BETWEEN, JSON, MOST, Client, HubRefused, Unreachable
from fedbo.exchange.hub.memberships import Membership, Memberships
from fedbo.exchange.hub.proof import Statement, hashed
from fedbo.exchange.hub.wire import MEDIA_TYPE, MOST_HANDED, Wanted
from fedbo.exchange.progress import Progress
from fedbo.federation import Federation, FederationMismatch
from fedbo.federation.file import LARGEST_FILE
from fedbo.federation.scalars import Scalars
from fedbo.identity import KeyPair
from fedbo.message import Message, Withdrawal
from fedbo.outside import printable, shortened

T = TypeVar("T")

MOST_FILE = 2 * LARGEST_FILE + 2**16  # bytes of an answer with a federation file, escaped in JSON
_MOST_LISTED = 4 * LARGEST  # bytes of an answer with messages
_MOST_SCALARS = 2**24  # bytes of an answer with scalars
_MOST_SHARED = 100_000  # agents


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """A message or withdrawal at a hub, and when it was put there, in seconds since 1970."""

    when: float
    content: bytes


class _IsOut(msgspec.Struct):
    out: bool


class _File(msgspec.Struct):
    file: str


class _Token(msgspec.Struct):
    token: str


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

    def publish(self, content: Message | Withdrawal) -> bool:
        """Publish a message or a signed withdrawal; return whether it is handed out now."""
        data = self._send("PUT", "/messages", content.encode(), MEDIA_TYPE)
        return self._read_json(data, _IsOut).out

    def withdraw(self, sender: str, epoch: int) -> None:
        """Withdraw an unsigned message."""
        self._send("DELETE", "/messages", query={"sender": sender, "epoch": str(epoch)})

    def fetch(self, wanted: Wanted, most: int, take: Callable[[bytes], T]) -> T:
        """Ask what has changed, and return what ``take`` makes of the answer.

        Args:
            wanted: What to ask for.
            most: The most bytes that the answer may have.
            take: Raises a ValueError if no hub gives such an answer.
        """
        asked = msgspec.msgpack.encode(wanted)
        return self._client.read(take, self._send("POST", "/fetch", asked, MEDIA_TYPE, most=most))

    def listed(self, sender: str | None = None) -> tuple[Listed, ...]:
        """Return what is at the hub, in any epoch: all of a sender, or what all may fetch."""
        query = {} if sender is None else {"sender": sender}
        data = self._send("GET", "/messages", query=query, most=_MOST_LISTED)
        few = msgspec.Meta(max_length=MOST_HANDED)
        return self._read(data, Annotated[tuple[Listed, ...], few])  # type: ignore[arg-type]

    def federation(self) -> Federation:
        """Return the federation in its current epoch."""
        answer = self._read_json(self._send("GET", "", most=MOST_FILE), _File)
        return read_federation(self.membership.place, answer.file)

    def share(self, scalars: Scalars) -> None:
        self._send("PUT", "/scalars", scalars.encode(), MEDIA_TYPE)

    def shared(self, epoch: int) -> tuple[bytes, ...]:
        data = self._send("GET", "/scalars", query={"epoch": str(epoch)}, most=_MOST_SCALARS)
        few = msgspec.Meta(max_length=_MOST_SHARED)
        return self._read(data, Annotated[tuple[bytes, ...], few])  # type: ignore[arg-type]

    def report(self, progress: Progress) -> None:
        names = ("sender", "trials", "best", "saved")
        body = {name: getattr(progress, name) for name in names}
        self._send("PUT", "/progress", msgspec.json.encode(body))

    def forget_progress(self, sender: str) -> None:
        self._send("DELETE", "/progress", query={"sender": sender})

    def is_refused(self) -> bool:
        """Whether the hub says that the token is not valid: the member was removed, or revoked."""
        try:
            self._send("GET", "/member")
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
        self.membership = self._memberships.set_key(self.membership, key)

    def rotate(self) -> None:
        """Get a new token, and store it; the old one is not valid any more."""
        self._memberships.check_writable()
        try:
            data = self._send("POST", "/member/token", once=True)
        except Unreachable as error:
            raise ExchangeError(f"{error}. The token is unchanged.") from None
        except ExchangeError as error:
            if isinstance(error, HubRefused) and error.status not in BETWEEN:
                raise
            raise ExchangeError(
                f"{error}. If the hub says from now on that the token is not valid, it had changed "
                "it and its answer was lost: ask whoever runs it to remove this member, and join "
                "again"
            ) from None
        answer = self._read_json(data, _Token)
        renewed = msgspec.structs.replace(self.membership, token=answer.token)
        store(self._client, self._memberships, renewed)
        self.membership, self._client = renewed, Client(renewed.address, renewed.token)

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
        whole = f"/v1/federations/{self.membership.federation}{path}"
        for is_last in (False, True):
            data = content() if callable(content) else content
            try:
                return self._client.send(
                    method, whole, data, media_type, query=query, most=most, once=once
                )
            except HubRefused as error:
                if is_last or error.slug != "wrong-token" or not self._renew():
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _new_key(self, keys: KeyPair | None) -> bytes:
        """Return what the hub is told of a key, with the proof that it is ours."""
        if keys is None:
            return msgspec.json.encode({"key": None})
        mine = self.membership
        shared = mine.federation, mine.agreed, mine.member, hashed(mine.token)
        proof = Statement("rekey", *shared).sign(keys)
        return msgspec.json.encode({"key": str(keys), "proof": proof})

    def _renew(self) -> bool:
        """Take the token that another process has stored; return whether there is one."""
        mine = self.membership
        for one in self._memberships.of(mine.address, mine.federation, member=mine.member):
            if one.token != mine.token:
                self.membership, self._client = one, Client(one.address, one.token)
                return True
        return False

    def _read(self, data: bytes, answer: type[T]) -> T:
        return self._client.read(msgspec.msgpack.Decoder(answer).decode, data)

    def _read_json(self, data: bytes, answer: type[T]) -> T:
        return self._client.read(msgspec.json.Decoder(answer).decode, data)


def store(client: Client, memberships: Memberships, membership: Membership) -> None:
    """Store a token that a hub has just given; it is not shown again."""
    try:
        memberships.add(membership)
    except ValueError as error:  # which quotes nothing
        raise client.strange(f"in its answer, {error}") from None


def read_federation(place: str, text: str) -> Federation:
    """Read a federation file that comes from a hub.

    Args:
        place: Where it comes from, for errors.
        text: The file.

    Raises:
        ExchangeError: If something in it is wrong.
    """
    try:
        return Federation.from_toml(text)
    except (ValueError, TypeError, RecursionError) as error:
        reason = printable(shortened(str(error), 300))
        raise ExchangeError(
            f"the federation file from {place} cannot be used: {reason}; ask whoever runs the hub"
        ) from None


def accept_later(place: str, ours: Federation, theirs: Federation) -> Federation:
    """Return the later epoch of a federation that a hub hands out, if it is to be trusted.

    A hub may start an epoch and enrol members. But it must not speak for a site: what is agreed
    on beside the scalars stays, and so do the names and keys that are listed here. If a name could
    be dropped, the next epoch could list it with another key.

    Args:
        place: The address of the federation, for errors.
        ours: The federation as it is known here.
        theirs: What the hub hands out.

    Raises:
        ExchangeError: If it is not the same federation in a later epoch.
    """
    fault = ""
    try:
        ours.require_later(theirs)
    except FederationMismatch as error:
        fault = str(error)
    if ours.members and not theirs.members:
        fault = fault or "it does not list the keys of its members any more"
    for name, key in ours.members.items():
        if theirs.members.get(name) != key:
            has = "lists another key for" if name in theirs.members else "does not list"
            fault = fault or f"it {has} {name!r}"
    if fault:
        raise ExchangeError(
            f"epoch {theirs.epoch} at {place} does not continue epoch {ours.epoch}: {fault}. Ask "
            "the other members, not only whoever runs the hub. If it is right, get the new "
            f"federation file with fedbo join {shlex.quote(place)} --federation NEW, and use it in "
            "place of yours"
        )
    return theirs
