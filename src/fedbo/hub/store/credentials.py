"""The tokens of members, and the secrets of invitations.

They are random, shown once, and stored only as hashes: they have too many bits to be
guessed.
"""

from __future__ import annotations

import secrets


def new_token() -> str:
    """Return a new token with 256 random bits; its beginning tells people what it is.

    >>> new_token()[:8], len(new_token())
    ('fedbo-m-', 51)
    """
    return "fedbo-m-" + secrets.token_urlsafe(32)


def new_secret() -> str:
    """Return a new secret for an invitation, with 192 random bits."""
    return secrets.token_urlsafe(24)
