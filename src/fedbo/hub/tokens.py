"""Tokens and secrets: random, shown once, and stored only as hashes."""

from __future__ import annotations

import secrets
from typing import Literal

from fedbo.exchange.hub.proof import hashed

Kind = Literal["member", "operator"]

_PREFIXES: dict[Kind, str] = {"member": "fedbo-m-", "operator": "fedbo-o-"}


def new_token(kind: Kind) -> str:
    """Return a new token with 256 random bits; its beginning tells people whose it is.

    >>> new_token("member")[:8], len(new_token("operator"))
    ('fedbo-m-', 51)
    """
    return _PREFIXES[kind] + secrets.token_urlsafe(32)


def new_secret() -> str:
    """Return a new secret for an invitation or a session, with 192 random bits."""
    return secrets.token_urlsafe(24)


def digest(text: str) -> bytes:
    """Return what is stored of a token or secret. It has too many bits to be guessed."""
    return hashed(text)
