"""Text that comes from outside, made safe to show."""

from __future__ import annotations

import re


def printable(text: str) -> str:
    """Escape control characters in a text from others, so that it cannot move the cursor.

    >>> printable("Zürich \\x1b[2J")
    'Zürich \\\\x1b[2J'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shortened(text: str, most: int = 80) -> str:
    """Cut a text from others, so that an error that quotes it stays small.

    >>> shortened("x" * 10**6, 5)
    'xxxxx… (1,000,000 characters)'
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def without_password(address: str) -> str:
    """Return the address of a database without its password, even if it is mistyped.

    >>> without_password("postgresql://me:secret@server/trials")
    'postgresql://me:***@server/trials'
    >>> without_password("postgresql//me:se@cret@server:port/trials")
    'postgresql//me:***@server:port/trials'
    """
    address, question, _ = address.partition("?")  # drivers take passwords there, by many names
    scheme, slashes, rest = address.partition("://")
    scheme, rest = (scheme, rest) if slashes else ("", address)
    if not scheme.startswith("sqlite"):
        before, at, server = rest.rpartition("@")
        user, colon, _ = re.sub("%3a", ":", before, flags=re.IGNORECASE).partition(":")
        if at and colon:
            rest = f"{user}:***@{server}"
        elif slashes and not at:  # what looks like a port may be a password without its server
            rest = re.sub(r":(?!\d*(/|$))[^/]*", ":***", rest, count=1)
    return scheme + slashes + rest + ("?***" if question else "")
