"""Public keys as text: what a federation file lists, and what people compare."""

from __future__ import annotations

import base64
import contextlib

from fedbo.outside import shortened

KEY_BYTES = 32
_START = "ed25519:"


def key_text(key: bytes) -> str:
    """Write a public key as text.

    Args:
        key: The 32 bytes of an Ed25519 public key.

    Raises:
        ValueError: If it does not have 32 bytes.

    >>> key_text(bytes(32))
    'ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key has {len(key)} bytes, expected {KEY_BYTES}")
    return _START + base64.urlsafe_b64encode(key).decode().rstrip("=")


def parse_key(text: str) -> bytes:
    """Read a public key from its text.

    Args:
        text: What `key_text` wrote. Any other spelling is refused, so a key has one spelling.

    Raises:
        ValueError: If it is not the text of a key.
    """
    key = b""
    if isinstance(text, str) and text.startswith(_START):
        with contextlib.suppress(ValueError):
            key = base64.urlsafe_b64decode(text[len(_START) :] + "=")
    if len(key) != KEY_BYTES or key_text(key) != text:
        raise ValueError(
            f"the key is {shortened(repr(text))}, expected {_START!r} and 43 characters, as fedbo "
            "identity show prints it"
        )
    return key
