"""Which keys are trusted: those that the federation lists, or else the first key seen for a name.

==========================  =====================================================================
the federation lists keys   only what the listed key of the member has signed is accepted; nothing
                            under a name that is known here by another key, until
                            `Keyring.trust`: whoever sends a list may not speak for others
it lists none               the first key seen for a member is kept. Another key, or a message
                            without a signature, is refused under this name until `Keyring.trust`
nobody knows the name yet   a message without a signature is accepted. If there are two keys at
                            once, both are refused, because nobody can tell whose name it is
==========================  =====================================================================
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from fedbo import files
from fedbo.federation.federation import Federation
from fedbo.files import Lock, alone
from fedbo.identity.keys import KeyPair, KeyRefused, S, own_keys, verify
from fedbo.message.signed import MessageRefused, Signed, key_text, member, parse_key
from fedbo.state import StateMissing, make_folder, state_folder

NAME = "known_keys.json"
MOST = 200_000  # names, so that the file stays below its limit
_LARGEST = 2**26  # bytes of a file
_EVERYWHERE = ""  # stands for all federations


class Reason(Enum):
    """Why a message is not accepted as one of the member that it names; the value words it."""

    WRONG_SIGNATURE = ""  # `verify` says what is wrong
    REVOKED = "it is signed with {key}, which was revoked here. If that was a mistake: {advice}"
    NOT_LISTED = "the federation's list of members has no {name!r}"
    UNSIGNED = "it is not signed, but {name!r} has a key: someone else may have written it"
    OTHER_KEY = (
        "it is signed with {key}, but {name!r} is known here by {known}. If {name!r} has a new key "
        "(ask through another channel than the exchange): {advice}"
    )
    NOT_THE_LISTED_KEY = (
        "it is signed with {key}, but the federation lists {known} as the key of {name!r}"
    )
    DISPUTED = (
        "the federation lists {key} as the key of {name!r}, who is known here by {known}. If the "
        "list is right (ask {name!r} through another channel than the exchange): {advice}"
    )
    CONTESTED = (
        "it is signed with {key}, and another one with another key: several sites use the name "
        "{name!r}. Ask one of them to take another name. If it is one site with a new key: {advice}"
    )
    FULL = "this keyring knows too many names already, and takes no new ones"


class NotTrusted(MessageRefused):
    """A message is not from the member that it names, as far as the keyring knows."""

    def __init__(self, text: str, reason: Reason) -> None:
        super().__init__(text)
        self.reason = reason


class _Known(msgspec.Struct):
    """What the file holds; keys as text."""

    known: dict[str, dict[str, str]] = {}  # by federation and name
    revoked: list[str] = []


class Keyring:
    """Remembers which key belongs to which name, and which keys are revoked.

    Args:
        path: The file to remember them in; None (default) remembers them in memory only.

    >>> keyring = Keyring()
    >>> keyring.trust("site-a", bytes(range(32)))
    >>> keyring.known()
    {'site-a': 'ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8'}
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(os.path.abspath(path))
        self._lock = Lock()
        self._held = _Known()
        self._version: tuple[int, int, int] | None = None  # of the file that was read
        self._changes = 0

    @classmethod
    def user(cls) -> Keyring:
        """Return the user's keyring, in the state folder if there is one."""
        try:
            return cls(state_folder() / NAME)
        except StateMissing:
            return cls()

    def __repr__(self) -> str:
        return f"Keyring({'in memory' if self.path is None else str(self.path)!r})"

    def admit(
        self,
        federation: Federation,
        messages: Iterable[S],
        *,
        remember: bool = True,
    ) -> tuple[list[S], list[tuple[S, NotTrusted]]]:
        """Sort messages into those whose sender is who it says, and the others.

        Args:
            federation: The federation that all of them fit.
            messages: Messages and withdrawals.
            remember: Whether to remember the keys of new names (default).

        Returns:
            Those that are accepted, in their order, and the others, each with the reason.
        """
        messages = list(messages)
        with self._lock:
            self._read()
            accepted, refused, new = self._sorted(federation, messages)
            if new and remember:
                with self._changing():  # another process may have been first
                    accepted, refused, new = self._sorted(federation, messages)
                    self._held.known.setdefault(_place(federation), {}).update(new)
                    self._write()
        return accepted, refused

    def check(self, federation: Federation, messages: Iterable[S]) -> None:
        """Raise `NotTrusted` unless `admit` accepts all; else remember none of their keys."""
        messages = list(messages)
        for remember in (False, True):
            _, refused = self.admit(federation, messages, remember=remember)
            if refused:
                raise refused[0][1]

    def is_trusted(self, federation: Federation, sender: str, key: bytes) -> bool:
        """Tell whether a message, signed with this key if any, is still accepted."""
        with self._lock:
            text = key_text(key) if key else ""
            return self._fault(federation, member(sender), text) is None

    def changes(self) -> int:
        """Return a number that grows whenever a key is no longer trusted as it was."""
        with self._lock:
            self._read()
            return self._changes

    def claim(self, name: str, key: bytes, federation: Federation) -> str | None:
        """Remember that a name and its key are this user's; return why they cannot be, or None."""
        text, name = key_text(key), member(name)
        with self._lock, self._changing():
            if text in self._held.revoked:
                return f"its key {text} was revoked here"
            known = self._known(federation, name)
            if known == text or federation.members:
                return None
            if known is not None and known not in own_keys():
                return (
                    f"the name {name!r} is known here as that of another site, with the key "
                    f"{known}: choose another name (name=...)"
                )
            self._held.known.setdefault(_place(federation), {})[name] = text
            self._write()
        return None

    def trust(self, name: str, key: bytes, federation: Federation | None = None) -> None:
        """From now on, accept this key under this name, in place of any other.

        It counts in one federation, or in all (default). It raises a ValueError if it is not a key,
        or one with which anyone can sign.
        """
        text, name = key_text(key), member(name)
        parse_key(text)
        with self._lock, self._changing():
            if federation is None:
                for names in self._held.known.values():
                    names.pop(name, None)
            self._held.known.setdefault(_place(federation), {})[name] = text
            self._held.revoked = [other for other in self._held.revoked if other != text]
            self._changes += 1
            self._write()

    def revoke(self, key: bytes) -> None:
        """From now on, refuse this key under every name, until it is trusted again."""
        text = key_text(key)
        with self._lock, self._changing():
            for names in self._held.known.values():
                for name in [name for name, known in names.items() if known == text]:
                    del names[name]
            if text not in self._held.revoked:
                self._held.revoked.append(text)
            self._changes += 1
            self._write()

    def restore(
        self, federation: Federation, known: Mapping[str, str], revoked: Iterable[str]
    ) -> None:
        """Take over what `known` and `revoked` of another keyring said about a federation."""
        for key in revoked:
            self.revoke(parse_key(key))
        for name, key in known.items():
            self.trust(name, parse_key(key), federation)

    def known(self, federation: Federation | None = None) -> dict[str, str]:
        """Return the keys that are known in a federation, or in any, as text, by name."""
        known = self.by_federation()
        if federation is not None:
            return known.get(_EVERYWHERE, {}) | known.get(_place(federation), {})
        return {name: key for names in known.values() for name, key in names.items()}

    def by_federation(self) -> dict[str, dict[str, str]]:
        """Return all known keys, as text, by fingerprint (empty: everywhere) and name."""
        with self._lock:
            self._read()
            return {place: dict(names) for place, names in self._held.known.items() if names}

    def disputed(self, federation: Federation) -> dict[str, str]:
        """Return the listed members, by name, who are known here by another key: that key."""
        with self._lock:
            self._read()
            names = {name: self._disputed(federation, name) for name in federation.members}
        return {name: known for name, known in names.items() if known is not None}

    def revoked(self) -> list[str]:
        """Return the revoked keys, as text."""
        with self._lock:
            self._read()
            return list(self._held.revoked)

    # How messages are judged

    def _sorted(
        self, federation: Federation, messages: Sequence[S]
    ) -> tuple[list[S], list[tuple[S, NotTrusted]], dict[str, str]]:
        """Return the accepted ones, the others with their reasons, and the keys that are new."""
        accepted: list[S] = []
        refused: list[tuple[S, NotTrusted]] = []
        new: dict[str, str] = {}
        valid: list[S] = []
        claims: dict[str, set[str]] = {}  # the keys that claim a name
        for message in messages:
            try:
                if message.key:
                    verify(message)
            except MessageRefused as error:
                refused.append((message, NotTrusted(str(error), Reason.WRONG_SIGNATURE)))
                continue
            valid.append(message)
            if message.key and message.signer not in self._held.revoked:
                claims.setdefault(member(message.sender), set()).add(message.signer)
        room = MOST - sum(map(len, self._held.known.values()))
        for message in valid:
            name, key = member(message.sender), message.signer
            fault = self._fault(federation, name, key, claims.get(name, ()))
            is_new = key and not federation.members and self._known(federation, name) is None
            if fault is None and is_new:
                if name not in new and len(new) >= room:
                    fault = Reason.FULL
                else:
                    new[name] = key
            if fault is None:
                accepted.append(message)
            else:
                refused.append((message, self._refusal(federation, message, fault)))
        return accepted, refused, new

    def _fault(
        self, federation: Federation, name: str, key: str, claims: Collection[str] = ()
    ) -> Reason | None:
        """Say why what has this key (empty if none) cannot be from a member; None if it can be.

        ``claims`` are all keys that come with this name at once.
        """
        if key in self._held.revoked:
            return Reason.REVOKED
        known = self._known(federation, name)
        if federation.members and known is None:
            return Reason.NOT_LISTED
        if known == key:
            return Reason.DISPUTED if self._disputed(federation, name) else None
        if known is not None:
            if not key:
                return Reason.UNSIGNED
            return Reason.NOT_THE_LISTED_KEY if federation.members else Reason.OTHER_KEY
        if len(claims) == (key in claims):
            return None
        return Reason.CONTESTED if key else Reason.UNSIGNED

    def _known(self, federation: Federation, name: str) -> str | None:
        """Return the key of a member, as text, by the federation's list or else as known here."""
        if federation.members:
            return key_text(listed) if (listed := federation.members.get(name)) else None
        return self._met(federation, name)

    def _disputed(self, federation: Federation, name: str) -> str | None:
        """Return by which key a member is known here, if the federation lists another one."""
        known, listed = self._met(federation, name), self._known(federation, name)
        is_same = known is None or listed in (None, known) or listed in own_keys()
        return None if is_same else known

    def _met(self, federation: Federation, name: str) -> str | None:
        """Return the key that is trusted here or was seen first under a name."""
        everywhere = self._held.known.get(_EVERYWHERE, {}).get(name)
        return self._held.known.get(_place(federation), {}).get(name, everywhere)

    def _refusal(self, federation: Federation, message: Signed, reason: Reason) -> NotTrusted:
        name, key = member(message.sender), message.signer
        advice = f"keyring.trust({name!r}, parse_key({key!r}))"
        if self.path is not None:  # it may be pasted into a shell
            advice = f"fedbo identity trust {shlex.quote(name)} {key}"
        known = self._disputed(federation, name) or self._known(federation, name)
        why = reason.value.format(name=name, key=key, known=known, advice=advice)
        return NotTrusted(f"{message.type} {message.sequence} of {message.sender!r}: {why}", reason)

    # The file

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        if self.path is None:
            yield
            return
        make_folder(self.path.parent)
        with alone(self.path.parent):
            self._read()
            yield

    def _read(self) -> None:
        """Read the file if it has changed."""
        if self.path is None:
            return
        try:
            status = self.path.stat()
            version: tuple[int, int, int] | None
            version = status.st_mtime_ns, status.st_size, status.st_ino
            if version == self._version:
                return
            held = msgspec.json.decode(files.read(self.path, _LARGEST), type=_Known)
            for key in [*held.revoked, *(key for ns in held.known.values() for key in ns.values())]:
                parse_key(key)
        except FileNotFoundError:
            held, version = _Known(), None
        except (ValueError, RecursionError) as error:
            raise files.FileRefused(
                f"the list of known keys {self.path} cannot be used: {error}; restore a copy, or "
                "remove it and check the keys of your peers again"
            ) from None
        if not _extends(held, self._held):
            self._changes += 1
        self._held, self._version = held, version

    def _write(self) -> None:
        if self.path is not None:
            files.write(self.path, msgspec.json.format(msgspec.json.encode(self._held)), 0o600)
            self._version = None


def _extends(new: _Known, old: _Known) -> bool:
    """Tell whether everything that was known is still so, and nothing more is revoked."""
    return new.revoked == old.revoked and all(
        new.known.get(place, {}).get(name) == key
        for place, names in old.known.items()
        for name, key in names.items()
    )


def _place(federation: Federation | None) -> str:
    return _EVERYWHERE if federation is None else str(federation.fingerprint)


def listed_keys(federation: Federation, name: str) -> KeyPair | None:
    """Return the key pair of a listed member, from this user's keys; None if none are listed.

    It raises `KeyRefused` if the federation does not list this one, or if the private key is not on
    this machine.
    """
    if not federation.members:
        return None
    listed = federation.members.get(member(name))
    if listed is None:
        raise KeyRefused(
            f"{name!r} is not among the members that the federation lists: "
            f"{', '.join(sorted(federation.members))}; use one of these names, or ask whoever "
            "keeps the federation file to add it"
        )
    keys = KeyPair.find(listed)
    if keys is None:
        raise KeyRefused(
            f"the federation lists a key of {name!r}, and its private key is not on this machine: "
            "import it (fedbo identity import FILE)"
        )
    return keys
