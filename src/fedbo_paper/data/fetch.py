"""Downloads that end complete and verified, or leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fedbo import __version__
from fedbo.errors import FileRefused

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18

#: Called with the bytes received so far and, if the server says so, how many there will be.
Report = Callable[[int, int | None], None]


class FetchFailed(OSError):
    """A download failed, and left nothing behind; the text says why."""


def download(address: str, target: Path, verify: Callable[[Path], None], report: Report) -> None:
    """Download a file. At any moment the target is as before, or complete and verified.

    Whatever ends the download, Ctrl-C included, no incomplete file is left behind.

    Args:
        address: The URL.
        target: The file to write.
        verify: Called with the file under a temporary name; raises `FileRefused` if it is wrong.
        report: Called with the progress.

    Raises:
        FetchFailed: If the file is not there afterwards; the text says why.
    """
    temporary = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
    try:
        _receive(address, temporary, report)
        verify(temporary)
        temporary.replace(target)
    except FileRefused as error:
        raise FetchFailed(f"what {address} sent is not the data set: {error}") from None
    except HTTPError as error:
        error.close()
        raise FetchFailed(f"{address} answers {error.code} ({error.reason})") from None
    except (OSError, HTTPException) as error:  # a URLError wraps the reason
        raise FetchFailed(f"{address}: {getattr(error, 'reason', error)!s}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _receive(address: str, path: Path, report: Report) -> None:
    # Without compression the bytes on the wire are the bytes of the file.
    headers = {"User-Agent": f"fedbo/{__version__}", "Accept-Encoding": "identity"}
    with urlopen(Request(address, headers=headers), timeout=TIMEOUT) as answer:
        length = answer.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        received = 0
        report(0, total)
        with path.open("xb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                received += len(chunk)
                report(received, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and received < total:
        raise OSError(f"broke off after {received:,} of {total:,} bytes")
