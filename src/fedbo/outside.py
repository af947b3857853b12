"""Text that comes from outside, made safe to show."""

from __future__ import annotations


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
