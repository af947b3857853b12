"""Public keys as text: what a federation file lists, and what people compare."""

from __future__ import annotations

import base64
import binascii

from fedbo.outside import shortened

KEY_BYTES = 32
_START = "ed25519:"


def key_text(key: bytes) -> str:
    """Write a public key as text.

    Args:
        key: The 32 bytes of an Ed25519 public key.

    >>> key_text(bytes(32))
    'ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    return _START + base64.urlsafe_b64encode(key).decode().rstrip("=")


def parse_key(text: str) -> bytes:
    """Read a public key from its text.

    Args:
        text: What `key_text` wrote. Any other spelling is refused, so a key has one spelling.

    Raises:
        ValueError: If it is not the text of a key.
    """
    key = b""
    if isinstance(text, str) and text.startswith(_START) and text.isascii() and len(text) < 100:
        try:
            key = base64.urlsafe_b64decode(text[len(_START) :] + "=")
        except binascii.Error:
            key = b""
    if len(key) != KEY_BYTES or key_text(key) != text:
        given = shortened(repr(text)) if isinstance(text, str) else repr(text)
        raise ValueError(
            f"the key is {given}, expected {_START} and 43 letters, as fedbo identity show prints"
        )
    return key
