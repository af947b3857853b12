"""Where a hub is, how one is invited to it, and the tokens of this user's memberships.

The tokens are in a file that only this user can read.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from fedbo import files
from fedbo.exchange.errors import ExchangeError, failed
from fedbo.files import Lock, alone
from fedbo.message import Fingerprint
from fedbo.message.signed import parse_key
from fedbo.outside import printable, shortened
from fedbo.state import StateMissing, make_folder, state_folder

FILE_NAME = "hubs.json"
_LARGEST = 2**22  # bytes of the file
_TOKEN = re.compile(r"fedbo-m-[A-Za-z0-9_-]{43}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_INVITATION = re.compile(rf"({_NAME.pattern})\.([0-9a-f]{{32}})\.([A-Za-z0-9_-]{{32,64}})")
_HOST = re.compile(r"[^\s/?#@:\[\]\\%]+|[0-9a-f:.]+", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_LONGEST_ADDRESS = 500  # characters


def check_name(name: str) -> str:
    """Return the name of a federation at a hub; a ValueError if it cannot be one."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"the name of the federation is {shortened(name)!r}, expected 1 to 63 small letters, "
            "digits and hyphens, with no hyphen at either end"
        )
    return name


class HubUrl(NamedTuple):
    """The address of a hub: ``https://host[:port][/FEDERATION]``.

    Args:
        base: Scheme, host and, if it is not the usual one, port.
        federation: The name of a federation there; empty if none is named.

    >>> HubUrl.parse("https://Hub.Example.org:443/liver/")
    HubUrl(base='https://hub.example.org', federation='liver')
    """

    base: str
    federation: str = ""

    def __str__(self) -> str:
        return f"{self.base}/{self.federation}" if self.federation else self.base

    @property
    def is_encrypted(self) -> bool:
        return self.base.startswith("https:")

    @classmethod
    def parse(cls, address: str) -> HubUrl:
        """Read an address; an `ExchangeError` says what is wrong with it.

        Without encryption, anyone on the way could read the token. So ``http://`` is accepted only
        for a hub on this machine.
        """
        shown = repr(printable(shortened(address)))
        expected = "expected https://HOST, https://HOST:PORT or https://HOST/FEDERATION"
        if "@" in address:  # it may be a password, which is not repeated
            raise ExchangeError(f"the address of the hub has an '@', {expected}")
        try:
            is_plain = address.isprintable() and " " not in address
            if not is_plain or len(address) > _LONGEST_ADDRESS:
                raise ValueError
            parts = urlsplit(address)
            scheme, host, port = parts.scheme, parts.hostname or "", parts.port
            if not _HOST.fullmatch(host) or scheme not in _PORTS or parts.query or parts.fragment:
                raise ValueError
        except ValueError:
            raise ExchangeError(f"the address of the hub is {shown}, {expected}") from None
        if scheme == "http" and not _is_loopback(host):
            raise ExchangeError(
                f"{shown} is not encrypted, and anyone on the way could read the token: use "
                "https://. Plain http:// is only for a hub on this machine, such as "
                "http://127.0.0.1:8765"
            )
        base = f"{scheme}://[{host}]" if ":" in host else f"{scheme}://{host}"
        if port not in (None, _PORTS[scheme]):
            base += f":{port}"
        name = parts.path.strip("/")
        try:
            return cls(base, check_name(name) if name else "")
        except ValueError as error:
            raise ExchangeError(f"the address of the hub is {shown}: {error}") from None


class Invitation(NamedTuple):
    """An invitation to a federation: one word that is passed on by e-mail, for example.

    Args:
        name: The name of the federation at the hub.
        fingerprint: The fingerprint of the federation, which whoever joins checks.
        secret: What proves to the hub that one is invited; the hub knows only its hash.

    >>> word = "liver.000102030405060708090a0b0c0d0e0f.kT3v0Pq8Zc1sWx5rYb7nLd2fGh4jAm6u"
    >>> Invitation.parse(word).name, str(Invitation.parse(word)) == word
    ('liver', True)
    """

    name: str
    fingerprint: Fingerprint
    secret: str

    def __str__(self) -> str:
        return f"{self.name}.{self.fingerprint.hex()}.{self.secret}"

    def __repr__(self) -> str:
        return f"Invitation({self.name!r}, {self.fingerprint}, secret not shown)"

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Read what `str` returned; a ValueError, which does not quote it, for anything else."""
        if (match := _INVITATION.fullmatch(text.strip())) is None:
            raise ValueError(
                "this is not an invitation: expected NAME.FINGERPRINT.SECRET as fedbo hub create "
                "or fedbo hub invite printed it; copy it again, completely"
            )
        name, fingerprint, secret = match.groups()
        return cls(name, Fingerprint(bytes.fromhex(fingerprint)), secret)


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a federation at a hub, as this user.

    Args:
        address: The address of the hub, without the name of the federation.
        federation: The name of the federation there.
        fingerprint: The fingerprint of the federation as text.
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

    @property
    def agreed(self) -> Fingerprint:
        """The fingerprint of the federation."""
        return Fingerprint(bytes.fromhex(self.fingerprint.replace("-", "")))

    def is_same_member(self, other: Membership) -> bool:
        """Whether the other is this member, perhaps with another token or key."""
        return (self.place, self.member) == (other.place, other.member)

    def check(self) -> None:
        """Raise a ValueError that quotes nothing if this cannot be a membership."""
        if _TOKEN.fullmatch(self.token) is None:
            raise ValueError("a token has a wrong form")
        check_name(self.federation)
        Fingerprint(self.agreed)
        if self.key:
            parse_key(self.key)


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
                path = state_folder() / FILE_NAME
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
            memberships = msgspec.json.decode(data, type=_File).memberships
            for membership in memberships:
                membership.check()
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
        return memberships

    def at(self, url: HubUrl, member: str | None = None) -> list[Membership]:
        """Return the memberships at a hub, or in one of its federations if the address names it.

        Args:
            url: The address.
            member: The name of the member; any by default.
        """
        return [
            membership
            for membership in self.all()
            if membership.address == url.base
            and url.federation in ("", membership.federation)
            and member in (None, membership.member)
        ]

    def add(self, membership: Membership) -> None:
        """Remember a membership, on the disk, in place of an earlier one of the same member."""
        membership.check()

        def change(rows: list[Membership]) -> list[Membership]:
            if not any(row.is_same_member(membership) for row in rows):
                return [*rows, membership]
            return [membership if row.is_same_member(membership) else row for row in rows]

        self._change(change)

    def set_key(self, membership: Membership, key: str) -> None:
        """Change the key of a member, whatever its token is by now."""
        self._change(
            lambda rows: [
                replace(row, key=key) if row.is_same_member(membership) else row for row in rows
            ]
        )

    def remove(self, membership: Membership) -> None:
        """Forget a membership. One of the same member with another token stays."""
        self._change(lambda rows: [row for row in rows if row != membership])

    def check_writable(self) -> None:
        """Raise an `ExchangeError` now if a membership could not be stored.

        A token is shown once: it must not be asked for if it cannot be kept.
        """
        self._change(lambda rows: rows)

    def _change(self, change: Callable[[list[Membership]], list[Membership]]) -> None:
        folder = self.path.parent
        try:
            make_folder(folder)
        except OSError as error:
            raise failed(f"the folder {folder} cannot be created", error) from error
        with self._lock, alone(folder):
            rows = change(self.all())
            data = msgspec.json.format(msgspec.json.encode(_File(memberships=rows)))
            try:
                files.write(self.path, data, 0o600)
            except OSError as error:
                raise failed(f"the memberships in {self.path} were not changed", error) from error

    def _check_private(self) -> None:
        if os.name == "posix" and self.path.stat().st_mode & 0o077:
            path = shlex.quote(str(self.path))
            raise ExchangeError(
                f"other users can read the tokens in {self.path}: run chmod 600 {path}, and fedbo "
                "hub rotate ADDRESS for each hub if someone may have copied them"
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
