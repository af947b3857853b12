"""Files that are written completely or not at all, and that reveal damage."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

_DIGEST = 32


class FileRefused(ValueError):
    """A file is not what it should be; the text says why. The file is left as it was."""


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file completely or not at all: a reader sees the old one or the new one."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def seal(title: str, payload: bytes) -> bytes:
    """Put a title line and a digest before the payload, so that damage is noticed.

    >>> unseal("fedbo agent 1", seal("fedbo agent 1", b"..."), "a file")
    b'...'
    """
    return title.encode() + b"\n" + hashlib.sha256(payload).digest() + payload


def unseal(title: str, data: bytes, name: str) -> bytes:
    """Return the payload of what `seal` made.

    Args:
        title: The title that is expected.
        data: The content of a file.
        name: The name of the file, for errors.

    Raises:
        FileRefused: If the title is another one, or the digest does not match.
    """
    first = title.encode() + b"\n"
    if not data.startswith(first):
        started = data[: len(first)].split(b"\n")[0]
        raise FileRefused(
            f"{name} does not hold a {title!r}: it starts with {started!r}; "
            "it was written by another program, or by another version of fedbo"
        )
    digest, payload = data[len(first) :][:_DIGEST], data[len(first) + _DIGEST :]
    if hashlib.sha256(payload).digest() != digest:
        raise FileRefused(f"{name} is damaged or cut short: its digest does not match; use a copy")
    return payload
