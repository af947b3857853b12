"""Key pairs: Ed25519 keys that sign what an agent hands out, and the files they are kept in.

The private key of a user is in ``identity.pem`` in the state folder, readable by its user only. It
is created when it is first needed. Keys that were imported from another machine are in ``keys/``
beside it. The package ``cryptography`` is loaded only when there is something to sign or to check.
"""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fedbo import files
from fedbo.errors import FileRefused, KeyRefused, MessageRefused
from fedbo.message.signed import KEY_BYTES, Signed, is_weak, key_text
from fedbo.state import make_folder, state_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

S = TypeVar("S", bound=Signed)

NAME = "identity.pem"
IMPORTED = "keys"
_LARGEST = 10_000  # bytes of a key file


class KeyPair:
    """A private key and its public key. Build it with `load`, `find` or `generate`.

    Args:
        private: The private key, an object of the package ``cryptography``.
        path: The file that holds it; None if it is in memory only.

    >>> keys = KeyPair.generate()
    >>> len(keys.public), str(keys).startswith("ed25519:")
    (32, True)
    """

    def __init__(self, private: Ed25519PrivateKey, path: Path | None = None) -> None:
        self._private = private
        self.path = path
        self.public = private.public_key().public_bytes_raw()

    def __str__(self) -> str:
        return key_text(self.public)

    def __repr__(self) -> str:
        return f"KeyPair({self})"

    def __deepcopy__(self, memo: object) -> KeyPair:
        return self

    def __reduce__(self) -> str:
        raise TypeError("a private key is not copied to other processes: load it there")

    def sign(self, unsigned: S) -> S:
        """Return the message or withdrawal with this key and its signature."""
        signature = self.sign_bytes(unsigned.signed_bytes)
        return msgspec.structs.replace(unsigned, key=self.public, signature=signature)

    def sign_bytes(self, data: bytes) -> bytes:
        """Return the signature of something else; `is_signed` checks it.

        It must begin with a line that says what it is, so that nobody can use the signature for
        anything else. Messages begin with ``fedbo 2 message``.
        """
        return self._private.sign(data)

    @classmethod
    def generate(cls) -> KeyPair:
        """Return a new key pair that is in memory only."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> KeyPair:
        """Return the user's key pair, created on first use, or the one in a file.

        Args:
            path: A file with a private key, which must exist; the user's own by default.

        It raises `KeyRefused` if the file is not a private key, or if others can read it.
        """
        return cls.own(state_folder()) if path is None else cls._read(Path(path))

    @classmethod
    def own(cls, folder: Path) -> KeyPair:
        """Return the key pair in a folder's ``identity.pem``, created on first use."""
        path = folder / NAME
        try:
            return cls._read(path)
        except FileNotFoundError:
            _store(path, cls.generate(), replace=False)
            return cls._read(path)  # another process may have been first

    @classmethod
    def find(cls, public: bytes) -> KeyPair | None:
        """Return the key pair with this public key if this user has it, else None."""
        folder = state_folder()
        for path in (folder / NAME, folder / IMPORTED / f"{public.hex()}.pem"):
            with contextlib.suppress(FileNotFoundError):
                keys = cls._read(path)
                if keys.public == public:
                    return keys
        return None

    @classmethod
    def add(cls, path: str | os.PathLike[str]) -> KeyPair:
        """Import a copy of another machine's ``identity.pem``, and return its key pair."""
        keys = cls._read(Path(path), private=False)
        existing = cls.find(keys.public)
        if existing is not None:
            return existing
        target = state_folder() / IMPORTED / f"{keys.public.hex()}.pem"
        _store(target, keys, replace=True)
        return cls._read(target)

    @classmethod
    def retire(cls) -> KeyPair:
        """Replace the user's key pair by a new one, and return the new one.

        The old one stays among the imported keys, so that its studies can still be withdrawn.
        """
        old, own = cls.load(), state_folder() / NAME
        _store(state_folder() / IMPORTED / f"{old.public.hex()}.pem", old, replace=True)
        _store(own, cls.generate(), replace=True)
        return cls._read(own)

    @classmethod
    def _read(cls, path: Path, *, private: bool = True) -> KeyPair:
        """Read a file; if it is to be ``private``, refuse one that others can read."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            data = files.read(path, _LARGEST)
        except FileRefused:
            data = b""
        if private and os.name == "posix" and path.stat().st_mode & 0o077:
            raise KeyRefused(
                f"the private key {path} can be read by other users: run chmod 600 {path}, and "
                "fedbo identity revoke if someone may have copied it"
            )
        try:
            key = load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyRefused(f"{path} is not a private key of fedbo: give an identity.pem")
        return cls(key, path)


def own_keys() -> set[str]:
    """Return the public keys, as text, whose private keys this user has."""
    keys: set[str] = set()
    with contextlib.suppress(OSError, ValueError):
        folder = state_folder()
        with contextlib.suppress(OSError, ValueError):
            keys.add(str(KeyPair._read(folder / NAME)))
        for path in (folder / IMPORTED).glob("*.pem"):
            keys.add(key_text(bytes.fromhex(path.stem)))
    return keys


def verify(signed: Signed) -> None:
    """Raise `MessageRefused` if a signature is missing or wrong."""
    what = f"{signed.type} {signed.sequence} of {signed.sender!r}"
    if len(signed.key) != KEY_BYTES:
        raise MessageRefused(
            f"{what} is not signed: what leaves a program is signed, so give its agent a key pair "
            "(Agent(..., keys=KeyPair.load()))"
        )
    if not is_signed(signed.key, signed.signature, signed.signed_bytes):
        raise MessageRefused(
            f"{what} has a wrong signature: it was not made with {key_text(signed.key)}, or it "
            "was changed on its way"
        )


def is_signed(key: bytes, signature: bytes, data: bytes) -> bool:
    """Tell whether a signature, which may be any bytes, was made with the key pair of a key."""
    from cryptography.exceptions import InvalidSignature

    try:
        _public_key(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=4096)
def _public_key(key: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if is_weak(key):
        raise ValueError("anyone can sign with this key")
    return Ed25519PublicKey.from_public_bytes(key)


def _store(path: Path, keys: KeyPair, *, replace: bool) -> None:
    """Write a private key that only its user can read; if not ``replace``, keep an existing one."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = keys._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    make_folder(path.parent)
    with files.alone(path.parent):  # processes that start together have one key
        if replace or not path.exists():
            files.write(path, pem, 0o600)
