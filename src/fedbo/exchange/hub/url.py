"""The address of a hub, and of a federation there: ``https://host[:port][/FEDERATION]``."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from fedbo.exchange.base import ExchangeError
from fedbo.exchange.hub.invitation import check_name
from fedbo.outside import printable, shortened

_HOST = re.compile(r"[^\s/?#@:\[\]\\%]+|[0-9a-f:.]+", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_LONGEST = 500  # characters


class HubUrl(NamedTuple):
    """The address of a hub.

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

        Args:
            address: The address as the user wrote it.
        """
        given = repr(printable(shortened(address)))
        expected = "expected https://HOST, https://HOST:PORT or https://HOST/FEDERATION"
        if "@" in address:  # it may be a password, which is not repeated
            raise ExchangeError(f"the address of the hub has an '@', {expected}")
        try:
            if not (len(address) <= _LONGEST and address.isprintable() and " " not in address):
                raise ValueError  # not every character would be kept, or could be shown
            parts = urlsplit(address)
            scheme, host, port = parts.scheme, parts.hostname or "", parts.port
            if not _HOST.fullmatch(host) or scheme not in _PORTS or parts.query or parts.fragment:
                raise ValueError
        except ValueError:
            raise ExchangeError(f"the address of the hub is {given}, {expected}") from None
        if scheme == "http" and not _is_loopback(host):
            raise ExchangeError(
                f"{given} is not encrypted, and anyone on the way could read the token: use "
                "https://. Plain http:// is only for a hub on this machine, such as "
                "http://127.0.0.1:8765"
            )
        shown = f"[{host}]" if ":" in host else host
        base = f"{scheme}://{shown}"
        if port not in (None, _PORTS[scheme]):
            base += f":{port}"
        name = parts.path.strip("/")
        try:
            return cls(base, check_name(name) if name else "")
        except ValueError as error:
            raise ExchangeError(f"the address of the hub is {given}: {error}") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
