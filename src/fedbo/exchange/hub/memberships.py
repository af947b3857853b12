"""Where a hub is, how one is invited to it, and the tokens of this user's memberships.

The tokens are in a file that only this user can read.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

from fedbo import files
from fedbo.errors import ExchangeError
from fedbo.exchange.errors import failing
from fedbo.exchange.hub.wire import Token
from fedbo.files import Lock, alone
from fedbo.message import Fingerprint
from fedbo.outside import printable, shortened
from fedbo.state import make_folder, state_folder

FILE_NAME = "hubs.json"
_LARGEST = 2**22  # bytes of the file
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_INVITATION = re.compile(rf"({_NAME.pattern})\.([0-9a-f]{{32}})\.([A-Za-z0-9_-]{{32,64}})")
_ADDRESS = re.compile(
    r"(https?)://([^\s/?#@:\[\]\\%]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?(?:/(.*?))?/?", re.IGNORECASE
)
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

    >>> HubUrl.parse("https://Hub.Example.org:443/liver/")
    HubUrl(base='https://hub.example.org', federation='liver')
    """

    base: str  # scheme, host and, if it is not the usual one, port
    federation: str = ""  # the name of a federation there, if one is named

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
        # What has an "@" may have a password, which is not repeated.
        shown = "with an '@'" if "@" in address else repr(printable(shortened(address)))
        match = _ADDRESS.fullmatch(address)
        port = int(match[3] or 0) if match else 0
        if (
            match is None
            or not address.isprintable()
            or len(address) > _LONGEST_ADDRESS
            or port > 0xFFFF
            or not _NAME.fullmatch(match[4] or "x")
        ):
            raise ExchangeError(
                f"the address of the hub is {shown}, expected https://HOST, https://HOST:PORT or "
                "https://HOST/FEDERATION"
            )
        scheme, host = match[1].lower(), match[2].lower()
        if scheme == "http" and not _is_loopback(host):
            raise ExchangeError(
                f"{shown} is not encrypted, and anyone on the way could read the token: use "
                "https://. Plain http:// is only for a hub on this machine, such as "
                "http://127.0.0.1:8765"
            )
        usual = port in (0, _PORTS[scheme])
        return cls(f"{scheme}://{host}" + ("" if usual else f":{port}"), match[4] or "")


class Invitation(NamedTuple):
    """An invitation to a federation: one word that is passed on by e-mail, for example.

    >>> word = "liver.000102030405060708090a0b0c0d0e0f.kT3v0Pq8Zc1sWx5rYb7nLd2fGh4jAm6u"
    >>> Invitation.parse(word).name, str(Invitation.parse(word)) == word
    ('liver', True)
    """

    name: str  # of the federation at the hub
    fingerprint: Fingerprint  # of the federation, which whoever joins checks
    secret: str  # proves to the hub that one is invited; the hub knows only its hash

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
    """A member of a federation at a hub, as this user."""

    address: str  # of the hub, without the name of the federation
    federation: Annotated[str, msgspec.Meta(pattern=rf"\A{_NAME.pattern}\Z")]
    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{8}(-[0-9a-f]{8}){3}\Z")]
    member: str
    token: Token
    key: Annotated[str, msgspec.Meta(pattern=r"\Aed25519:[A-Za-z0-9_-]{43}\Z")]

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


class _File(msgspec.Struct):
    version: int = 1
    memberships: list[Membership] = []


class Memberships:
    """Remembers memberships in ``hubs.json`` in the user's state folder.

    Many processes may change it at once. It raises an `ExchangeError` if there is no such folder.
    """

    def __init__(self) -> None:
        with failing("there is no folder for tokens"):
            self.path = state_folder() / FILE_NAME
        self._lock = Lock()

    def all(self) -> list[Membership]:
        """Return all memberships, in the order in which this user joined.

        Raises:
            ExchangeError: If the file cannot be used, or if others can read it.
        """
        try:
            with failing(f"the memberships in {self.path} cannot be read"):
                try:
                    data = files.read(self.path, _LARGEST)
                except FileNotFoundError:
                    return []
                if os.name == "posix" and self.path.stat().st_mode & 0o077:
                    raise ExchangeError(
                        f"other users can read the tokens in {self.path}: run chmod 600 "
                        f"{shlex.quote(str(self.path))}, and fedbo hub rotate ADDRESS for each hub "
                        "if someone may have copied them"
                    )
            return msgspec.json.decode(data, type=_File).memberships
        except (ValueError, RecursionError):  # its text could quote a token
            raise ExchangeError(
                f"the memberships in {self.path} cannot be read: the file is damaged; restore a "
                "copy of it, or move it away and join again"
            ) from None

    def at(self, url: HubUrl, member: str | None = None) -> list[Membership]:
        """Return the memberships at an address; only those of this name if one is given."""
        return [
            membership
            for membership in self.all()
            if membership.address == url.base
            and url.federation in ("", membership.federation)
            and member in (None, membership.member)
        ]

    def add(self, membership: Membership) -> None:
        """Remember a membership, on the disk, in place of an earlier one of the same member."""

        def change(rows: list[Membership]) -> list[Membership]:
            members = {(row.place, row.member): row for row in rows}
            members[membership.place, membership.member] = membership
            return [*members.values()]

        self._change(change)

    def remove(self, membership: Membership) -> None:
        """Forget a membership. One of the same member with another token stays."""
        self._change(lambda rows: [row for row in rows if row != membership])

    def check_writable(self) -> None:
        """Raise an `ExchangeError` now if a membership could not be stored.

        A token is shown once: it must not be asked for if it cannot be kept.
        """
        self._change(lambda rows: rows)

    def _change(self, change: Callable[[list[Membership]], list[Membership]]) -> None:
        with failing(f"the memberships in {self.path} were not changed"):
            make_folder(self.path.parent)
            with self._lock, alone(self.path.parent):
                data = msgspec.json.encode(_File(memberships=change(self.all())))
                files.write(self.path, msgspec.json.format(data), 0o600)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
