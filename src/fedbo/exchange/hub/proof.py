"""The proof that a member has the private key of the public key that it gives to a hub.

Everybody may know a public key: a federation file lists those of its members. So whoever enrols
with a key, or changes its key, signs a statement with it. The statement has a hash of the secret of
the invitation, or of both keys and a nonce of the hub: the signature is of no use with another one.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

import msgspec

from fedbo.trust.keys import KeyPair, is_signed


class Statement(NamedTuple):
    """What a member signs to prove that a key is its own.

    >>> keys = KeyPair.generate()
    >>> statement = Statement("enrol", "liver", bytes(16), "clinic", hashed("a secret"))
    >>> proof = statement.sign(keys)
    >>> statement.is_signed(keys.public, proof)
    True
    >>> statement._replace(member="lab").is_signed(keys.public, proof)
    False
    """

    purpose: Literal["enrol", "rekey"]
    federation: str  # its name at the hub
    fingerprint: bytes
    member: str
    hashed: bytes  # what `hashed` returns for the invitation's secret, or `change` for new keys

    def sign(self, keys: KeyPair) -> str:
        """Return the proof that this member has these keys."""
        return keys.sign_bytes(self._encode()).hex()

    def is_signed(self, key: bytes, proof: str) -> bool:
        """Tell whether a proof, which may be anything, is what `sign` returned for a public key."""
        try:
            signature, data = bytes.fromhex(proof), self._encode()
        except ValueError:  # also if the name is not valid Unicode
            return False
        return is_signed(key, signature, data)

    def _encode(self) -> bytes:
        parts = (self.federation, bytes(self.fingerprint), self.member, self.hashed)
        return f"fedbo hub {self.purpose} 1\n".encode() + msgspec.msgpack.encode(parts)


def change(old: bytes, new: bytes, nonce: bytes) -> bytes:
    """Return the hash of a change of keys, which both sign, with a nonce that the hub gives once.

    So who has seen an earlier change cannot repeat it.
    """
    return hashlib.sha256(old + new + nonce).digest()


def hashed(secret: str) -> bytes:
    """Return the hash of a secret or a token, as a hub stores it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
