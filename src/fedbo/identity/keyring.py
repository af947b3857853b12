"""Which keys are trusted: those that the federation lists, or else the first key seen for a name.

==========================  =====================================================================
the federation lists keys   only what the listed key of the member has signed is accepted
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from fedbo import files
from fedbo.federation.federation import Federation
from fedbo.files import Lock, alone
from fedbo.identity.keys import UNFINISHED, KeyPair, KeyRefused, S, own_keys, verify
from fedbo.message.signed import MessageRefused, Signed, key_text, member, parse_key
from fedbo.state import StateMissing, make_folder, state_folder

NAME = "known_keys.json"
MOST = 100_000  # names in one federation
MOST_OVERALL = 200_000  # so that the file stays below its limit
_LARGEST = 2**26  # bytes of a file
_EVERYWHERE = ""  # stands for all federations
_NAMED = 3  # keys that claim one name


class _Known(msgspec.Struct):
    """What the file holds; keys as text."""

    version: int = 1
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
        """Return the user's keyring: ``known_keys.json`` in the state folder.

        A user without a home folder has a keyring in memory.
        """
        try:
            return cls(state_folder() / NAME)
        except StateMissing:
            return cls()

    def __repr__(self) -> str:
        return f"Keyring({'in memory' if self.path is None else str(self.path)!r})"

    def admit(
        self, federation: Federation, messages: Iterable[S]
    ) -> tuple[list[S], list[tuple[S, str]]]:
        """Sort messages into those whose sender is who it says, and the others.

        Keys that are seen for the first time are remembered.

        Args:
            federation: The federation that all of them fit.
            messages: Messages and withdrawals.

        Returns:
            Those that are accepted, in their order, and the others, each with the reason.
        """
        everything = list(messages)
        with self._lock:
            accepted, refused, new = self._judge(federation, everything)
            if not self._remember(federation, new):  # another process was first
                accepted, refused, _ = self._judge(federation, everything)
        return accepted, refused

    def review(
        self, federation: Federation, messages: Iterable[S]
    ) -> tuple[list[S], list[tuple[S, str]]]:
        """Sort messages as `admit` does, but remember nothing."""
        with self._lock:
            accepted, refused, _ = self._judge(federation, list(messages))
        return accepted, refused

    def check(self, federation: Federation, messages: Iterable[S]) -> None:
        """Raise `MessageRefused` unless `admit` would accept all; then remember their keys."""
        everything = list(messages)
        with self._lock:
            _, refused, new = self._judge(federation, everything)
            if not refused and not self._remember(federation, new):
                _, refused, _ = self._judge(federation, everything)
            if refused:
                raise MessageRefused(refused[0][1])

    def is_trusted(self, federation: Federation, sender: str, key: bytes) -> bool:
        """Tell whether a message that was accepted before would still be.

        Args:
            federation: The federation.
            sender: The sender of the message.
            key: The key that it is signed with; empty if it is not signed.
        """
        with self._lock:
            name, text = member(sender), key_text(key) if key else ""
            if text in self._held.revoked:
                return False
            if federation.members:
                return bool(key) and federation.members.get(name) == key
            local, everywhere = (
                self._held.known.get(place, {}) for place in (_place(federation), _EVERYWHERE)
            )
            return local.get(name, everywhere.get(name, text)) == text

    def changes(self) -> int:
        """Return a number that grows whenever a key is no longer trusted as it was."""
        with self._lock:
            self._read()
            return self._changes

    def claim(self, name: str, key: bytes, federation: Federation) -> str | None:
        """Remember that a name belongs to this user, unless it belongs to another site.

        Args:
            name: The name of an agent of this user.
            key: The 32 bytes of the public key that it signs with.
            federation: The federation in which this counts.

        Returns:
            Why the name or the key cannot be used; None if it can.
        """
        text, place = key_text(key), _place(federation)
        with self._lock, self._changing():
            if text in self._held.revoked:
                return f"its key {text} was revoked here"
            known = self._names(federation).get(member(name))
            if known == text or federation.members:
                return None
            if known is not None and known not in own_keys():
                return (
                    f"the name {member(name)!r} is known here as that of another site, with the "
                    f"key {known}: choose another name (name=...)"
                )
            self._held.known.setdefault(place, {})[member(name)] = text
            self._write()
        return None

    def trust(self, name: str, key: bytes, federation: Federation | None = None) -> None:
        """From now on, accept this key under this name, in place of any other.

        Args:
            name: The name of a member.
            key: The 32 bytes of its public key.
            federation: The federation in which this counts; None (default) is every federation.

        Raises:
            ValueError: If it is not a key, or one with which anyone can sign.
        """
        text, place = key_text(key), _place(federation)
        parse_key(text)
        with self._lock, self._changing():
            known, revoked = self._held.known, self._held.revoked
            if known.get(place, {}).get(member(name)) == text and text not in revoked:
                return
            if federation is None:
                for names in known.values():
                    names.pop(member(name), None)
            known.setdefault(place, {})[member(name)] = text
            self._held.revoked = [other for other in revoked if other != text]
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
        """Return the keys that are known, as text, by the names of members.

        Without a federation, those of all of them.
        """
        with self._lock:
            self._read()
            if federation is not None:
                return self._names(federation)
            return {name: key for names in self._held.known.values() for name, key in names.items()}

    def by_federation(self) -> dict[str, dict[str, str]]:
        """Return all known keys, as text, by federation and name.

        The federation is its fingerprint; empty stands for all.
        """
        with self._lock:
            self._read()
            return {place: dict(names) for place, names in self._held.known.items() if names}

    def revoked(self) -> list[str]:
        """Return the revoked keys, as text."""
        with self._lock:
            self._read()
            return list(self._held.revoked)

    # How messages are judged

    def _judge(
        self, federation: Federation, messages: Sequence[S]
    ) -> tuple[list[S], list[tuple[S, str]], dict[str, str]]:
        """Return the accepted ones, the others with their reasons, and the keys that are new."""
        self._read()
        listed, local = federation.members, self._held.known.get(_place(federation), {})
        everywhere = self._held.known.get(_EVERYWHERE, {})
        if not (listed or local or everywhere or any(message.key for message in messages)):
            return list(messages), [], {}
        valid: list[S] = []
        refused: list[tuple[S, str]] = []
        for message in messages:
            try:
                if message.key:
                    verify(message)
                    self._check_not_revoked(message)
                valid.append(message)
            except MessageRefused as error:
                refused.append((message, str(error)))
        claims: dict[str, _Claim] = {}  # by the names of members
        for message in valid:
            name = member(message.sender)
            if name not in claims:
                known = local.get(name, everywhere.get(name))
                if listed:
                    known = key_text(listed[name]) if name in listed else None
                claims[name] = _Claim(name, known, bool(listed), is_file=self.path is not None)
            claims[name].add(message.signer)
        accepted: list[S] = []
        new: dict[str, str] = {}
        for message in valid:
            claim = claims[member(message.sender)]
            fault, is_new = claim.fault(message), bool(message.key) and claim.is_unknown
            if fault is None and is_new and self._is_full(local, new):
                fault = "this keyring knows too many names already, and takes no new ones"
            if fault is None:
                accepted.append(message)
                new |= {claim.name: message.signer} if is_new else {}
            else:
                what = f"{message.type} {message.sequence} of {message.sender!r}"
                refused.append((message, f"{what}: {fault}"))
        return accepted, refused, new

    def _is_full(self, local: Mapping[str, str], new: Mapping[str, str]) -> bool:
        overall = sum(map(len, self._held.known.values()))
        return len(local) + len(new) >= MOST or overall + len(new) >= MOST_OVERALL

    def _check_not_revoked(self, signed: Signed) -> None:
        if signed.signer in self._held.revoked:
            raise MessageRefused(
                f"{signed.type} {signed.sequence} of {signed.sender!r} is signed with "
                f"{signed.signer}, which was revoked here. If that was a mistake: "
                f"{_advice(signed.sender, signed.signer, is_file=self.path is not None)}"
            )

    def _names(self, federation: Federation) -> dict[str, str]:
        known = self._held.known
        return known.get(_EVERYWHERE, {}) | known.get(_place(federation), {})

    # The file

    def _remember(self, federation: Federation, new: Mapping[str, str]) -> bool:
        """Remember new keys; return False if another process has remembered others meanwhile."""
        if not new:
            return True
        with self._changing():
            names = self._held.known.setdefault(_place(federation), {})
            for name, key in new.items():
                names.setdefault(name, key)
            self._write()
            return all(names[name] == key for name, key in new.items())

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
            files.sweep(self.path, UNFINISHED)
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


class _Claim:
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

    def fault(self, signed: Signed) -> str | None:
        """Say why a message cannot be from the member that it names; None if it can be."""
        if self._is_listed:
            return self._fault_by_list(signed)
        if self._known is None:
            if len(self._keys) > 1:
                return self._contested
            is_other_signed = self._keys and not signed.key
            return "it is not signed, but another one is, which counts" if is_other_signed else None
        if signed.signer == self._known:
            return None
        if not signed.key:
            return self._unsigned("known here by")
        if self._known in self._own:
            return (
                f"it is signed with {signed.signer}, but {self.name!r} is a name of this user, "
                f"with the key {self._known}: another site uses this name too. One of the two "
                "should take another name"
            )
        return (
            f"it is signed with {signed.signer}, but {self.name!r} is known here by "
            f"{self._known}. If {self.name!r} has a new key (ask through another channel than the "
            f"exchange): {_advice(self.name, signed.signer, is_file=self._is_file)}"
        )

    def _fault_by_list(self, signed: Signed) -> str | None:
        if self._known is None:
            return f"the federation's list of members has no {self.name!r}"
        if not signed.key:
            return self._unsigned("listed with")
        if signed.signer == self._known:
            return None
        return (
            f"it is signed with {signed.signer}, but the federation lists {self._known} as the key "
            f"of {self.name!r}"
        )

    def _unsigned(self, how: str) -> str:
        return (
            f"it is not signed, but {self.name!r} is {how} the key {self._known}: someone else may "
            "have written it"
        )

    @cached_property
    def _contested(self) -> str:
        keys = sorted(self._keys)
        more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
        return (
            f"several sites use the name {self.name!r}, with the keys "
            f"{' and '.join(keys[:_NAMED])}{more}. Ask one of them to take another name. If it is "
            f"one site with a new key: {_advice(self.name, 'KEY', is_file=self._is_file)}"
        )

    @cached_property
    def _own(self) -> set[str]:
        return own_keys() if self._is_file else set()


def _advice(name: str, key: str, *, is_file: bool) -> str:
    """Say how to trust a key; the text may be pasted into a shell."""
    if is_file:
        return f"fedbo identity trust {shlex.quote(member(name))} {key}"
    return f"keyring.trust({member(name)!r}, parse_key({key!r}))"


def listed_keys(federation: Federation, name: str) -> KeyPair | None:
    """Return the key pair of a listed member, from this user's keys; None if none are listed.

    Args:
        federation: The federation, which may list the keys of its members.
        name: The name of the member, or of one of its agents.

    Raises:
        KeyRefused: If the federation lists members, and not this one, or if the private key is not
            on this machine.
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
