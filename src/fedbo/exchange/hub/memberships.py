"""The hubs that this user is a member of, and the tokens: a file that only this user can read."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fedbo import files
from fedbo.exchange.base import ExchangeError, failed
from fedbo.exchange.hub.invitation import check_name
from fedbo.locks import Lock, alone
from fedbo.message import Fingerprint
from fedbo.message.key import parse_key
from fedbo.state import StateMissing, make_folder, state_folder

NAME = "hubs.json"
_TOKEN = re.compile(r"fedbo-m-[A-Za-z0-9_-]{43}")
_UNFINISHED = re.compile(r"\.hubs\.json\.[0-9a-f]{8}")
_LARGEST = 2**22  # bytes of the file
_LASTING = 12  # bytes of a fingerprint that are the same in every epoch


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a federation at a hub, as this user.

    Args:
        address: The address of the hub, without the name of the federation.
        federation: The name of the federation there.
        fingerprint: The fingerprint of the federation as text, in the epoch of the invitation.
        member: The name of the member.
        token: What proves to the hub that this is the member. It is never shown.
        key: The public key as text; empty if the member's messages are not signed.
    """

    address: str
    federation: str
    fingerprint: str
    member: str
    token: str
    key: str = ""

    def __repr__(self) -> str:
        return f"Membership({self.member!r} of {self.place}, token not shown)"

    @property
    def place(self) -> str:
        """The address of the federation."""
        return f"{self.address}/{self.federation}"

    def is_for(self, fingerprint: bytes) -> bool:
        """Return whether this is the fingerprint of the member's federation, in any epoch."""
        return self.agreed[:_LASTING] == fingerprint[:_LASTING]

    @property
    def agreed(self) -> Fingerprint:
        """The fingerprint of the federation, in the epoch of the invitation."""
        return Fingerprint(bytes.fromhex(self.fingerprint.replace("-", "")))


class _File(msgspec.Struct):
    version: int = 1
    memberships: list[Membership] = []


class Memberships:
    """Remembers memberships in a file. Many processes may change it at once.

    Args:
        path: The file; by default ``hubs.json`` in the user's state folder.

    Raises:
        ExchangeError: If this user has no state folder.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is None:
            try:
                path = state_folder() / NAME
            except StateMissing as error:
                raise ExchangeError(f"there is no folder for tokens: {error}") from None
        self.path = Path(os.path.abspath(path))
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"Memberships({str(self.path)!r})"

    def all(self) -> list[Membership]:
        """Return all memberships, in the order in which this user joined.

        Raises:
            ExchangeError: If the file cannot be used, or if others can read it.
        """
        try:
            data = files.read(self.path, _LARGEST)
            self._check_private()
            found = msgspec.json.decode(data, type=_File).memberships
            for one in found:
                _check(one)
        except FileNotFoundError:
            return []
        except (ValueError, RecursionError):  # its text could quote a token
            raise ExchangeError(
                f"the memberships in {self.path} cannot be read: the file is damaged; restore a "
                "copy of it, or move it away and join again"
            ) from None
        except ExchangeError:
            raise
        except OSError as error:
            raise failed(f"the memberships in {self.path} cannot be read", error) from error
        return found

    def of(
        self,
        address: str,
        federation: str = "",
        fingerprint: bytes | None = None,
        member: str | None = None,
    ) -> list[Membership]:
        """Return the memberships at a hub that fit, in the order in which this user joined.

        Args:
            address: The address of the hub, without the name of a federation.
            federation: The name of the federation there; any by default.
            fingerprint: The fingerprint of the federation, in any epoch; any by default.
            member: The name of the member; any by default.
        """
        return [
            one
            for one in self.all()
            if one.address == address
            and federation in ("", one.federation)
            and (fingerprint is None or one.is_for(fingerprint))
            and member in (None, one.member)
        ]

    def add(self, membership: Membership) -> None:
        """Remember a membership, in place of an earlier one of the same member.

        Args:
            membership: The membership; when this returns, it is on the disk.
        """
        _check(membership)

        def change(there: list[Membership]) -> list[Membership]:
            found = [membership if _same(one, membership) else one for one in there]
            return found if membership in found else [*found, membership]

        self._change(change)

    def set_key(self, membership: Membership, key: str) -> Membership:
        """Change the key of a membership, and return it with the token that is stored now.

        Args:
            membership: The membership, perhaps with an earlier token.
            key: The public key as text; empty if the member's messages are not signed.
        """
        changed = msgspec.structs.replace(membership, key=key)
        _check(changed)

        def change(there: list[Membership]) -> list[Membership]:
            nonlocal changed
            for i, one in enumerate(there):
                if _same(one, membership):
                    changed = there[i] = msgspec.structs.replace(one, key=key)
            return there

        self._change(change)
        return changed

    def remove(self, membership: Membership) -> None:
        """Forget a membership.

        Args:
            membership: The membership. One of the same member with another token stays.
        """
        self._change(lambda there: [one for one in there if one != membership])

    def check_writable(self) -> None:
        """Raise an `ExchangeError` now if a membership could not be stored.

        A token is shown once: it must not be asked for if it cannot be kept.
        """
        self._change(lambda there: there)

    def _change(self, change: Callable[[list[Membership]], list[Membership]]) -> None:
        with self._alone():
            content = _File(memberships=change(self.all()))
            data = msgspec.json.format(msgspec.json.encode(content))
            try:
                files.write(self.path, data, 0o600)
                files.sweep(self.path, _UNFINISHED)
            except OSError as error:
                raise failed(f"the memberships in {self.path} were not changed", error) from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            make_folder(self.path.parent)
        except OSError as error:
            raise failed(f"the folder {self.path.parent} cannot be created", error) from error
        with self._lock, alone(self.path.parent):
            yield

    def _check_private(self) -> None:
        if os.name == "posix" and self.path.stat().st_mode & 0o077:
            path = shlex.quote(str(self.path))
            raise ExchangeError(
                f"other users can read the tokens in {self.path}: run chmod 600 {path}, and fedbo "
                "hub rotate ADDRESS for each hub if someone may have copied them"
            )


def _same(one: Membership, other: Membership) -> bool:
    return (one.address, one.federation, one.member) == (
        other.address,
        other.federation,
        other.member,
    )


def _check(one: Membership) -> None:
    """Raise a ValueError that quotes nothing if a membership cannot be used."""
    if _TOKEN.fullmatch(one.token) is None:
        raise ValueError("a token has a wrong form")
    check_name(one.federation)
    Fingerprint(one.agreed)
    if one.key:
        parse_key(one.key)
