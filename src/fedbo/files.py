"""Files that are written whole or not at all, and that know when they are damaged."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

_DIGEST = 32


class FileRefused(ValueError):
    """A file that is not what it should be; its text says why. The file is left as it was."""


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all: a reader sees the old one or the new one."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def seal(title: str, payload: bytes) -> bytes:
    """The payload behind a line that says what it is and a digest that shows damage.

    >>> unseal("fedbo agent 1", seal("fedbo agent 1", b"..."), "a file")
    b'...'
    """
    return title.encode() + b"\n" + hashlib.sha256(payload).digest() + payload


def unseal(title: str, data: bytes, name: str) -> bytes:
    """The payload that `seal` put behind this title; anything else is refused."""
    first = title.encode() + b"\n"
    if not data.startswith(first):
        started = data[: len(first)].split(b"\n")[0]
        raise FileRefused(
            f"{name} does not hold a {title!r}: it starts with {started!r}; "
            "it was written by something else, or by another version of fedbo"
        )
    digest, payload = data[len(first) :][:_DIGEST], data[len(first) + _DIGEST :]
    if hashlib.sha256(payload).digest() != digest:
        raise FileRefused(f"{name} is damaged or cut short: its digest does not fit; use a copy")
    return payload
