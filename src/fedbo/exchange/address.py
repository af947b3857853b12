"""What an exchange is called: the address of a folder or of a hub."""

from __future__ import annotations

import os
import re

from fedbo.errors import ExchangeError
from fedbo.exchange.folder import FolderExchange
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.trust.keyring import Keyring

_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"[^/\\]+:\d{1,5}(/.*)?")


def exchange_at(
    address: str | os.PathLike[str], keyring: Keyring | None = None
) -> FolderExchange | HubExchange:
    """Return the exchange at this address.

    Args:
        address: The path of a folder; or a hub, as ``https://HOST[:PORT]`` or
            ``https://HOST[:PORT]/FEDERATION``, or with ``http://`` if it is on this machine.
        keyring: Which keys belong to whom; the user's keyring by default.

    Raises:
        ExchangeError: If the address is neither, or if the folder cannot be reached.

    >>> exchange_at("https://hub.example.org/liver")
    HubExchange('https://hub.example.org/liver')
    """
    if not isinstance(address, str):
        return FolderExchange(address, keyring)
    if _HOST_AND_PORT.fullmatch(address) and not os.path.exists(address):
        raise ExchangeError(
            f"{address!r} looks like the address of a hub: write https://{address}; for a new "
            f"folder of this name, write ./{address}"
        )
    if (url := _URL.match(address)) is None:
        return FolderExchange(address, keyring)
    if url[1].lower() in ("http", "https"):
        return HubExchange(address, keyring)
    raise ExchangeError(f"{address!r} is neither a folder nor the https:// address of a hub")
