"""Downloads that are whole and verified, or not there at all."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from fedbo.files import FileRefused

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18

#: Called with the bytes received so far and, where the site says it, how many there will be.
Report = Callable[[int, int | None], None]


class FetchFailed(OSError):
    """A download that did not come about; its text says why. Nothing of it is kept."""


def download(address: str, target: Path, verify: Callable[[Path], None], report: Report) -> None:
    """Download to ``target``, whole and verified: at any moment it is as before, or complete.

    ``verify`` is given the file while it still has another name, and raises `FileRefused` if it is
    not what it should be. Whatever ends a download, Ctrl-C included, nothing of it is left behind.
    """
    beside = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
    try:
        with _new(beside) as file:
            _receive(address, file, report)
            _settle(file, target.parent)
        try:
            verify(beside)
        except FileRefused as error:
            raise FetchFailed(f"what {address} sent is not the data set: {error}") from None
        beside.replace(target)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _new(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")
    except OSError as error:
        raise FetchFailed(
            f"{path.parent} cannot be written: {error.strerror}; "
            "name a folder that can be with --data"
        ) from None


def _receive(address: str, file: BinaryIO, report: Report) -> None:
    from fedbo import __version__

    request = urllib.request.Request(address, headers={"User-Agent": f"fedbo/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdecimal() else None
            received = 0
            report(received, total)
            while chunk := response.read(_CHUNK):
                _append(file, chunk)
                received += len(chunk)
                report(received, total)
    except urllib.error.HTTPError as error:
        with error:
            raise FetchFailed(f"{address} answers {error.code} ({error.reason})") from None
    except urllib.error.URLError as error:
        raise FetchFailed(f"{address} cannot be reached: {error.reason}") from None
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise FetchFailed(f"the connection to {address} broke: {error!r}") from None
    if total is not None and received != total:
        raise FetchFailed(f"{address} broke off after {received:,} of {total:,} bytes")


def _append(file: BinaryIO, chunk: bytes) -> None:
    try:
        file.write(chunk)
    except OSError as error:
        raise FetchFailed(f"{file.name} cannot be written: {error.strerror}") from None


def _settle(file: BinaryIO, folder: Path) -> None:
    try:
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise FetchFailed(f"{folder} cannot be written: {error.strerror}") from None
