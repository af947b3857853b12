"""Key pairs of the parties in tests: each member has one, the same in every process."""

from __future__ import annotations

import hashlib
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedbo.message.signed import member
from fedbo.trust import KeyPair


def keys_of(sender: str) -> KeyPair:
    """The key pair of the member that an agent belongs to."""
    return _keys(member(sender))


@cache
def _keys(name: str) -> KeyPair:
    seed = hashlib.sha256(f"the key of {name}".encode()).digest()
    return KeyPair(Ed25519PrivateKey.from_private_bytes(seed))


def new_keys() -> KeyPair:
    """A new key pair, which no keyring knows."""
    return KeyPair.generate()
