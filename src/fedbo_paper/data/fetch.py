"""Downloads that end complete and verified, or leave nothing behind.

pooch talks to the server. The rest is done here, because pooch bounds neither the size nor the
duration of a download, and verifies files by a hash only, which not every data set has.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import requests
from pooch import HTTPDownloader

from fedbo import __version__
from fedbo.files import FileRefused

TIMEOUT = 30.0  # seconds without a byte
LONGEST = 12 * 3600.0  # seconds in all
LARGEST = 16 * 2**30  # bytes
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
        with _new(temporary) as file:
            _receive(address, _Sink(file, report))
            try:
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                raise _unwritable(target.parent, error) from None
        try:
            verify(temporary)
        except FileRefused as error:
            raise FetchFailed(f"what {address} sent is not the data set: {error}") from None
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


class _Sink:
    """The file and the progress bar that pooch is given. It bounds the download."""

    total = 0  # set by pooch; 0 if the server does not say

    def __init__(self, file: BinaryIO, report: Report) -> None:
        self._file, self._report = file, report
        self._deadline = time.monotonic() + LONGEST
        self.received = 0

    def write(self, chunk: bytes) -> None:
        if not self.received:
            self._report(0, self.total or None)
        self.received += len(chunk)
        if self.received > LARGEST:
            raise FetchFailed(f"the file has more than {LARGEST:,} bytes")
        if time.monotonic() > self._deadline:
            raise FetchFailed(f"the download took longer than {LONGEST / 3600:g} hours")
        try:
            self._file.write(chunk)
        except OSError as error:
            raise _unwritable(Path(self._file.name).parent, error) from None
        self._report(self.received, self.total or None)

    def flush(self) -> None:
        """Called after each chunk; the file is flushed once, at the end."""

    def update(self, _: int) -> None:
        """Called with the chunk size, which may be more than was received."""

    def reset(self) -> None: ...

    def close(self) -> None: ...


def _new(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")
    except OSError as error:
        raise _unwritable(path.parent, error) from None


def _receive(address: str, sink: _Sink) -> None:
    # Without compression the bytes on the wire are the bytes of the file.
    headers = {"User-Agent": f"fedbo/{__version__}", "Accept-Encoding": "identity"}
    try:
        # pooch leaves the connection open when a download fails; the stack closes it.
        with contextlib.ExitStack() as answers:
            get = HTTPDownloader(
                progressbar=sink,
                chunk_size=_CHUNK,
                timeout=TIMEOUT,
                headers=headers,
                hooks={"response": lambda answer, **_: answers.enter_context(answer)},
            )
            get(address, sink, None)
    except requests.HTTPError as error:
        answer: Any = error.response
        raise FetchFailed(f"{address} answers {answer.status_code} ({answer.reason})") from None
    except (requests.RequestException, ValueError) as error:  # the latter: nonsense in a header
        problem = _broke_off(address, sink) if sink.received else f"{address} cannot be reached"
        raise FetchFailed(f"{problem}: {_reason(error)}") from None
    if sink.received < sink.total:
        raise FetchFailed(_broke_off(address, sink))


def _broke_off(address: str, sink: _Sink) -> str:
    of = f" of {sink.total:,}" if sink.total else ""
    return f"{address} broke off after {sink.received:,}{of} bytes"


def _reason(error: BaseException) -> str:
    """Find the first cause; requests and urllib3 wrap it in long texts."""
    while error.__context__ is not None:
        error = error.__context__
    return getattr(error, "strerror", None) or repr(error)


def _unwritable(folder: Path, error: OSError) -> FetchFailed:
    return FetchFailed(
        f"{folder} cannot be written: {error.strerror}; choose another folder with --data"
    )
