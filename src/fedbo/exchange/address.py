"""Find the exchange at an address."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from fedbo.exchange.base import Exchange
from fedbo.exchange.errors import ExchangeError
from fedbo.exchange.folder import FolderExchange
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.identity.keyring import Keyring

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)  # not C:/


def exchange_at(address: str | os.PathLike[str], keyring: Keyring | None = None) -> Exchange:
    """Return the exchange at this address.

    Args:
        address: A folder, as a path or a ``file://`` URL; or a hub, as ``https://HOST[:PORT]`` or
            ``https://HOST[:PORT]/FEDERATION``, or with ``http://`` if it is on this machine.
        keyring: Which keys belong to whom; the user's keyring by default.

    Raises:
        ExchangeError: If the address is neither, or if the folder cannot be reached.

    >>> exchange_at("https://hub.example.org/liver")
    HubExchange('https://hub.example.org/liver')
    """
    if not isinstance(address, str) or (url := _URL.match(address)) is None:
        return FolderExchange(address, keyring)
    scheme = url[1].lower()
    if scheme in ("http", "https"):
        return HubExchange(address, keyring)
    if scheme != "file":
        raise ExchangeError(
            f"{address!r} starts with {scheme + ':'!r}, expected a folder, a file:// URL or "
            "the https:// address of a hub"
        )
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost"):
        raise ExchangeError(
            f"{address!r} names the machine {parts.netloc!r}; give the folder as it is mounted "
            "here, with three slashes: file:///folder"
        )
    from urllib.request import url2pathname  # slow to import

    return FolderExchange(url2pathname(parts.path), keyring)
