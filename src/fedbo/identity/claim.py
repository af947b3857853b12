"""Whose name it is: the keys that claim a name, and why a message is refused.

A member's name is the part of a sender's name before the first slash, so that one party can run
several agents (``clinic/liver``, ``clinic/lung``) with one key.
"""

from __future__ import annotations

import shlex
from functools import cached_property

from fedbo.identity.keys import own_keys
from fedbo.message.signed import Signed, member

_NAMED = 3  # keys that claim one name


class Claim:
    """The keys that claim one name, and which of them has it."""

    def __init__(self, name: str, known: str | None, is_listed: bool, *, is_file: bool) -> None:
        self.name, self._known, self._is_listed, self._is_file = name, known, is_listed, is_file
        self._keys: set[str] = set()

    def add(self, key: str) -> None:
        if key:
            self._keys.add(key)

    @property
    def is_unknown(self) -> bool:
        """Whether nobody knows the key of this name yet, and anyone may have it."""
        return self._known is None and not self._is_listed

    def fault(self, one: Signed) -> str | None:
        """Say why a message cannot be from the member that it names; None if it can be."""
        if self._known is None and self._is_listed:
            return f"the federation's list of members has no {self.name!r}"
        if self.is_unknown and len(self._keys) > 1:
            return self._contested
        if self.is_unknown and (one.key or not self._keys):
            return None
        if not one.key:
            return self._unsigned
        return None if one.signer == self._known else self._changed(one.signer)

    @cached_property
    def _contested(self) -> str:
        keys = sorted(self._keys)
        shown = " and ".join(keys[:_NAMED])
        more = f" and {len(keys) - _NAMED:,} more keys" if len(keys) > _NAMED else ""
        return (
            f"several sites use the name {self.name!r}, with the keys {shown}{more}. Ask one of "
            "them to take another name (fedbo join --name NEW). If it is one site with a new key: "
            f"{advice(self.name, 'KEY', is_file=self._is_file)}"
        )

    @cached_property
    def _unsigned(self) -> str:
        if self._known is None:
            return (
                f"it is not signed, but there is a signed message of {self.name!r} too, and that "
                "one counts"
            )
        where = "listed with" if self._is_listed else "known here by"
        return (
            f"it is not signed, but {self.name!r} is {where} the key {self._known}: someone else "
            "may have written it"
        )

    def _changed(self, key: str) -> str:
        if self._is_listed:
            return (
                f"it is signed with {key}, but the federation lists {self._known} as the key of "
                f"{self.name!r}"
            )
        if self._known in self._own:
            return (
                f"it is signed with {key}, but {self.name!r} is a name of this user, with the key "
                f"{self._known}: another site uses this name too. One of the two sites should take "
                "another name (fedbo join --name NEW, or FederatedSampler(name=...))"
            )
        return (
            f"it is signed with {key}, but {self.name!r} is known here by {self._known}. If "
            f"{self.name!r} has a new key (ask through another channel than the exchange): "
            f"{advice(self.name, key, is_file=self._is_file)}"
        )

    @cached_property
    def _own(self) -> set[str]:
        return own_keys() if self._is_file else set()


def advice(name: str, key: str, *, is_file: bool) -> str:
    """Say how to trust a key; the text may be pasted into a shell."""
    if is_file:
        return f"fedbo identity trust {shlex.quote(member(name))} {key}"
    return f"keyring.trust({member(name)!r}, parse_key({key!r}))"
