"""Who is who: key pairs that sign messages, and the keyring that says which keys are trusted."""

from fedbo.identity.keyring import Keyring, listed_keys
from fedbo.identity.keys import KeyPair, KeyRefused, is_installed, is_signed, own_keys, verify

__all__ = [
    "KeyPair",
    "KeyRefused",
    "Keyring",
    "is_installed",
    "is_signed",
    "listed_keys",
    "own_keys",
    "verify",
]
