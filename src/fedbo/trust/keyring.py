"""Whose key is whose: the keys that this user knows, and the sequences that were heard under them.

One rule decides. In a federation, a name belongs to the key that this user saw first under it,
heard or listed, wherever its file lies, until the user trusts another (`Keyring.trust`); a revoked
key keeps its name closed. Of two keys that come at once under a new name, neither is trusted.

If the federation lists its members, a name must be listed too, with this key: a list may add names,
but it may not speak for a name that is known here by another key.

What a key has signed counts only if it is not older than the last of its sender that was heard
here, also in an earlier program.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from fedbo import files
from fedbo.caller import warn
from fedbo.errors import FileRefused, KeyRefused, MessageRefused, StateMissing
from fedbo.federation.federation import Federation
from fedbo.files import Lock, alone
from fedbo.message.release import Release
from fedbo.message.signed import Signed, Withdrawal, key_text, member, parse_key
from fedbo.state import make_folder, state_folder
from fedbo.trust.keys import KeyPair, own_keys

NAME = "known_keys.json"
MOST = 200_000  # names, so that the file stays below its limit
_LARGEST = 2**26  # bytes of a file
_MOST_HEARD = 100_000  # senders of a federation whose last sequence is remembered
_EVERYWHERE = ""  # stands for all federations


class Reason(Enum):
    """Why something is not trusted as its sender's; the value words it."""

    REVOKED = "it is signed with {key}, which was revoked here. If that was a mistake: {advice}"
    CLOSED = (
        "it is signed with {key}, but the key of {name!r}, {known}, was revoked here. If {name!r} "
        "has a new key (ask through another channel than the exchange): {advice}"
    )
    NOT_LISTED = "the federation's list of members has no {name!r}"
    OTHER_KEY = (
        "it is signed with {key}, but {name!r} is known here by {known}. If {name!r} has a new key "
        "(ask through another channel than the exchange): {advice}"
    )
    NOT_THE_LISTED_KEY = (
        "it is signed with {key}, but the federation lists {listed} as the key of {name!r}"
    )
    CONTESTED = (
        "it is signed with {key}, and another one with another key: several sites use the name "
        "{name!r}. Ask one of them to take another name. If it is one site with a new key: {advice}"
    )
    REPLAYED = (
        "a later one of this sender was heard here before: this is an old one, handed out again"
    )
    FULL = "this keyring knows too many names already, and takes no new ones"


class NotTrusted(MessageRefused):
    """Something is not from the member that it names, as far as the keyring knows."""

    def __init__(self, text: str, reason: Reason) -> None:
        super().__init__(text)
        self.reason = reason


class _Known(msgspec.Struct):
    """What the file holds; keys as text."""

    known: dict[str, dict[str, str]] = {}  # by federation and name
    revoked: list[str] = []


class Keyring:
    """Remembers which key belongs to which name, which keys are revoked, and what was heard last.

    Args:
        path: The file to remember keys in; None (default) remembers them in memory only. The last
            sequences are in files beside it, one for each federation, in the folder ``heard``.

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
        self._heard: dict[str, _Heard] = {}  # by federation
        self._met: dict[str, Mapping[str, bytes]] = {}  # the list that was seen last, likewise

    @classmethod
    def user(cls) -> Keyring:
        """Return the user's keyring, in the state folder if there is one."""
        try:
            return cls(state_folder() / NAME)
        except StateMissing:
            return cls()

    def __repr__(self) -> str:
        return f"Keyring({'in memory' if self.path is None else str(self.path)!r})"

    def judge(
        self, federation: Federation, contents: Iterable[Signed], *, remember: bool = True
    ) -> list[NotTrusted | None]:
        """Decide, for things that come at once, whether each is its sender's, and not an old one.

        Their signatures were checked before.

        Args:
            federation: The federation that all of them fit.
            contents: Messages, withdrawals and releases.
            remember: Whether to remember new names and sequences (default).

        Returns:
            None for each that is trusted, and else why it is not.
        """
        contents = list(contents)
        with self._lock:
            self._read()
            reasons, new = self._judged(federation, contents)
            if new and remember:
                with self._changing():  # another process may have been first
                    reasons, new = self._judged(federation, contents)
                    self._held.known.setdefault(_place(federation), {}).update(new)
                    self._write()
            if remember:
                self._met[_place(federation)] = federation.members
                trusted = (c for c, why in zip(contents, reasons, strict=True) if why is None)
                self._heard_in(federation).note(trusted)
        return [
            None if reason is None else self._refusal(federation, content, reason)
            for content, reason in zip(contents, reasons, strict=True)
        ]

    def is_trusted(self, federation: Federation, sender: str, key: bytes) -> bool:
        """Tell whether what this key has signed is still trusted as this sender's."""
        with self._lock:
            return self._reason(federation, member(sender), key_text(key), None) is None

    def is_old(self, federation: Federation, content: Signed) -> bool:
        """Tell whether a later one of this sender, key and sort was heard here."""
        with self._lock:
            return self._heard_in(federation).makes_old(content)

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
            if known == text:
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
        """From now on, refuse this key under every name, until it is trusted again.

        The names that belong to it stay closed: no other key gets one of them without `trust`.
        """
        text = key_text(key)
        parse_key(text)
        with self._lock, self._changing():
            if text not in self._held.revoked:
                self._held.revoked.append(text)
            self._changes += 1
            self._write()

    def restore(
        self, federation: Federation, known: Mapping[str, str], revoked: Iterable[str]
    ) -> None:
        """Take over what `known` and `revoked` of another keyring said about a federation."""
        for name, key in known.items():
            self.trust(name, parse_key(key), federation)
        for key in revoked:
            self.revoke(parse_key(key))

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
        mine = own_keys()
        with self._lock:
            self._read()
            known = {name: self._known(federation, name) for name in federation.members}
        return {
            name: key
            for name, key in known.items()
            if key is not None
            and key != (listed := key_text(federation.members[name]))
            and listed not in mine
        }

    def revoked(self) -> list[str]:
        """Return the revoked keys, as text."""
        with self._lock:
            self._read()
            return list(self._held.revoked)

    # The rule

    def _judged(
        self, federation: Federation, contents: Sequence[Signed]
    ) -> tuple[list[Reason | None], dict[str, str]]:
        """Return why each is not trusted, None if it is; and the keys of names that are new."""
        claims: dict[str, set[str]] = {}  # the keys that come under a name
        for content in contents:
            if content.signer not in self._held.revoked:
                claims.setdefault(member(content.sender), set()).add(content.signer)
        new: dict[str, str] = {}
        if self._met.get(_place(federation)) is not federation.members:
            new = {
                name: key_text(key)
                for name, key in federation.members.items()
                if self._known(federation, name) is None
            }
        room = MOST - sum(map(len, self._held.known.values()))
        heard = self._heard_in(federation)
        reasons: list[Reason | None] = []
        for content in contents:
            name, key = member(content.sender), content.signer
            reason = self._reason(federation, name, key, new.get(name))
            if reason is None and not federation.members and self._known(federation, name) is None:
                if len(claims[name]) > 1:
                    reason = Reason.CONTESTED
                elif name not in new and len(new) >= room:
                    reason = Reason.FULL
                else:
                    new[name] = key
            if reason is None and heard.makes_old(content):
                reason = Reason.REPLAYED
            reasons.append(reason)
        return reasons, new

    def _reason(
        self, federation: Federation, name: str, key: str, is_new: str | None
    ) -> Reason | None:
        """Say why a key is not that of a name; ``is_new`` is the key of a name that is new here."""
        if key in self._held.revoked:
            return Reason.REVOKED
        known = self._known(federation, name) or is_new
        listed = federation.members.get(name)
        if federation.members and listed is None:
            return Reason.NOT_LISTED
        if known is not None and known != key:
            if listed is not None and key_text(listed) == known:
                return Reason.NOT_THE_LISTED_KEY
            return Reason.CLOSED if known in self._held.revoked else Reason.OTHER_KEY
        if listed is not None and key_text(listed) != key:
            return Reason.NOT_THE_LISTED_KEY
        return None

    def _known(self, federation: Federation, name: str) -> str | None:
        """Return the key that is trusted here, or was seen first, under a name."""
        everywhere = self._held.known.get(_EVERYWHERE, {}).get(name)
        return self._held.known.get(_place(federation), {}).get(name, everywhere)

    def _refusal(self, federation: Federation, content: Signed, reason: Reason) -> NotTrusted:
        name, key = member(content.sender), content.signer
        advice = f"keyring.trust({name!r}, parse_key({key!r}))"
        if self.path is not None:  # it may be pasted into a shell
            advice = f"fedbo identity trust {shlex.quote(name)} {key}"
        known, listed = self._known(federation, name), federation.members.get(name)
        why = reason.value.format(
            name=name,
            key=key,
            known=known,
            listed=None if listed is None else key_text(listed),
            advice=advice,
        )
        return NotTrusted(f"{content.type} {content.sequence} of {content.sender!r}: {why}", reason)

    def _heard_in(self, federation: Federation) -> _Heard:
        """Return what was heard last in a federation."""
        place = _place(federation)
        if place not in self._heard:
            path = None if self.path is None else self.path.parent / "heard" / f"{place}.json"
            self._heard[place] = _Heard(path)
        return self._heard[place]

    # The file

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep other processes from changing the file, and read it."""
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
            raise FileRefused(
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


class _Heard:
    """The least sequence that still counts, by sender and `_sort`, in one federation.

    It is read once, so that what another program of this user hears meanwhile makes nothing old
    here, and added to the file whenever something is heard.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._least = self._stored()

    def least(self, content: Signed) -> int:
        """Return the least sequence that something of this sender, key and sort may have."""
        return self._least.get(content.sender, {}).get(_sort(content), 0)

    def makes_old(self, content: Signed) -> bool:
        """Tell whether something comes too late to count."""
        return _least_after(content) < self.least(content)

    def note(self, contents: Iterable[Signed]) -> None:
        """Remember what was heard.

        A file that cannot be written protects less, and nothing that is heard is lost.
        """
        is_new = False
        for content in contents:
            least = _least_after(content)
            has_room = content.sender in self._least or len(self._least) < _MOST_HEARD
            if least > self.least(content) and has_room:
                self._least.setdefault(content.sender, {})[_sort(content)] = least
                is_new = True
        if is_new and self._path is not None:
            with contextlib.suppress(OSError):
                make_folder(self._path.parent)
                with alone(self._path.parent):
                    merged = self._stored()
                    for sender, keys in self._least.items():
                        theirs = merged.setdefault(sender, {})
                        theirs |= {key: max(n, theirs.get(key, 0)) for key, n in keys.items()}
                    files.write(self._path, msgspec.json.encode(merged), 0o600)

    def _stored(self) -> dict[str, dict[str, int]]:
        if self._path is None:
            return {}
        try:
            return msgspec.json.decode(
                files.read(self._path, _LARGEST), type=dict[str, dict[str, int]]
            )
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            warn(
                f"{self._path}, which has the last messages that were heard, cannot be read "
                f"({error}), so an old message could be taken for a new one: a new file is begun"
            )
            return {}


def _sort(content: Signed) -> str:
    """Return what numbers count together: of one key, and releases by themselves."""
    return f"{content.signer} release" if isinstance(content, Release) else content.signer


def _least_after(content: Signed) -> int:
    """Return the least sequence that counts after this: nothing up to a withdrawal does."""
    return content.sequence + isinstance(content, Withdrawal)


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
