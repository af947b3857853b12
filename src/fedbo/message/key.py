"""Public keys as text: what a federation file lists, and what people compare."""

from __future__ import annotations

import base64
import contextlib

from fedbo.outside import shortened

KEY_BYTES = 32
_START = "ed25519:"
#: Points of small order (without the bit of the sign): anyone can sign for such a key.
_WEAK = frozenset(
    map(
        bytes.fromhex,
        [
            "00" * 32,
            "01" + "00" * 31,
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "ec" + "ff" * 30 + "7f",
            "ed" + "ff" * 30 + "7f",
            "ee" + "ff" * 30 + "7f",
        ],
    )
)


def is_weak(key: bytes) -> bool:
    """Tell whether anyone can make signatures for this key, without a private key."""
    return key[:31] + bytes([key[31] & 0x7F]) in _WEAK


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
    if is_weak(key):
        raise ValueError(f"the key {text} is not safe: anyone can sign with it")
    return key
