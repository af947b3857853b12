"""From an address, as people write it, to the exchange that is there."""

from __future__ import annotations

import os
import re
import sys
from urllib.parse import unquote, urlsplit

from fedbo.exchange.base import Exchange, ExchangeError
from fedbo.exchange.folder import FolderExchange

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)  # C:/ is none


def exchange_at(address: str | os.PathLike[str]) -> Exchange:
    """The exchange at this address: a folder, as a path or a ``file://`` URL.

    >>> exchange_at("https://hub.example.org")
    Traceback (most recent call last):
    fedbo.exchange.base.ExchangeError: 'https://hub.example.org' is the address of a hub, and ...
    """
    url = _URL.match(address) if isinstance(address, str) else None
    if url is None:
        return FolderExchange(address)
    scheme = url[1].lower()
    if scheme in ("http", "https"):
        raise ExchangeError(
            f"{address!r} is the address of a hub, and a hub is not yet something this version "
            "can reach; give a folder"
        )
    if scheme != "file":
        raise ExchangeError(
            f"{address!r} starts with {scheme + ':'!r}, expected a folder or a file:// URL"
        )
    return FolderExchange(_path_of(address))


def _path_of(url: str | os.PathLike[str]) -> str:
    parts = urlsplit(os.fspath(url))
    if parts.netloc not in ("", "localhost"):
        raise ExchangeError(
            f"{url!r} names the machine {parts.netloc!r}; give its folder as it is mounted here, "
            "and three slashes: file:///folder"
        )
    if sys.platform == "win32":
        from urllib.request import url2pathname  # slow to import, and needed nowhere else

        return url2pathname(parts.path)
    return unquote(parts.path)
