"""Public keys as text: how files and people write the key that signs an agent's messages."""

from __future__ import annotations

import base64
import binascii

KEY_BYTES = 32

_PREFIX = "ed25519:"
_SHOWN = 80  # characters of a wrong text that an error repeats


def key_text(key: bytes) -> str:
    """Return the text of a public key.

    Args:
        key: The 32 bytes of an Ed25519 public key.

    Raises:
        ValueError: If it does not have 32 bytes.

    >>> key_text(bytes(range(32)))
    'ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8'
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key has {len(key)} bytes, expected {KEY_BYTES}")
    return _PREFIX + base64.urlsafe_b64encode(key).decode().rstrip("=")


def parse_key(text: str) -> bytes:
    """Return the 32 bytes of the public key that `key_text` wrote.

    Each key has one text only: another spelling of the same bytes is refused.

    Args:
        text: The text of the key.

    Raises:
        ValueError: If it is anything else; the text says what was given and what is expected.

    >>> parse_key(key_text(bytes(32))) == bytes(32)
    True
    """
    if isinstance(text, str) and text.startswith(_PREFIX):
        try:
            key = base64.urlsafe_b64decode(text.removeprefix(_PREFIX) + "=")
        except (binascii.Error, ValueError):
            key = b""
        if len(key) == KEY_BYTES and key_text(key) == text:
            return key
    given = repr(text)
    given = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
    raise ValueError(
        f"the key is {given}, expected {_PREFIX!r} and 43 characters of base64url (A-Z, a-z, 0-9, "
        "- and _), without padding"
    )
