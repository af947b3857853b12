"""Who is who: key pairs that sign, the keyring, and the border where messages are trusted."""

from fedbo.errors import KeyRefused
from fedbo.trust.border import Border, Trusted, open, open_all
from fedbo.trust.keyring import Keyring, NotTrusted, listed_keys
from fedbo.trust.keys import KeyPair, is_signed, own_keys, verify

__all__ = [
    "Border",
    "KeyPair",
    "KeyRefused",
    "Keyring",
    "NotTrusted",
    "Trusted",
    "is_signed",
    "listed_keys",
    "open",
    "open_all",
    "own_keys",
    "verify",
]
