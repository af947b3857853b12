"""Who signs the messages of a study, and what keeps them from being published.

The first worker signs with its user's key, and the study stores the public key. From then on, only
a machine that has this private key publishes: peers would refuse any other signature.
"""

from __future__ import annotations

import contextlib
import shlex
from typing import NamedTuple

from fedbo.federation import Federation
from fedbo.identity import KeyPair, KeyRefused, Keyring, is_installed
from fedbo.identity.keys import NAME as KEY_FILE
from fedbo.identity.keys import own_keys
from fedbo.message.signed import key_text, member, parse_key
from fedbo.optuna.record import is_drawn
from fedbo.state import state_folder

_INSTALL = "pip install 'fedbo[identity]'"
_NO_KEY = (
    "the federation lists the keys of its members, and this user has no key yet: fedbo identity "
    "show creates one; ask whoever keeps the federation file to add it"
)


class Signing(NamedTuple):
    """How the messages of a study are signed."""

    keys: KeyPair | None = None  # None if they are not signed
    hindrance: str = ""  # why nothing can be published
    remark: str = ""  # what the user should know

    @property
    def key(self) -> str:
        """The public key, as text; empty if messages are not signed."""
        return "" if self.keys is None else str(self.keys)


def prepare(
    signed: bool | None, known: str, name: str, federation: Federation, keyring: Keyring
) -> Signing:
    """Find the key that signs the messages of a study.

    Args:
        signed: Whether to sign; None signs if the necessary package is installed.
        known: The public key that the study has stored; empty if there is none.
        name: The name of the study among peers.
        federation: Its members, if any are listed, are the only ones whose messages count.
        keyring: The user's keys of peers. It learns that the name belongs to this user.
    """
    try:
        found = _find(signed, known, name, keyring)
        if found.hindrance:
            return found
        if unlisted := _unlisted(signed, name, found.key, federation):
            return Signing(found.keys, hindrance=unlisted)
        if found.keys is not None:
            fault = keyring.claim(name, found.keys.public, federation)
            found = Signing(found.keys, fault or "", found.remark)
        elif expected := _expected(name, federation, keyring):
            found = Signing(remark=_known_by_key(signed, name, expected))
    except (OSError, ValueError) as error:
        return Signing(hindrance=f"its key cannot be used: {error}")
    return found


def foresee(
    signed: bool | None, known: str, name: str, federation: Federation, keyring: Keyring
) -> str:
    """Say why messages of a study could not be published; empty if they could. Nothing is written.

    Args:
        signed: As for `prepare`.
        known: As for `prepare`.
        name: As for `prepare`; empty if it is not drawn yet.
        federation: As for `prepare`.
        keyring: As for `prepare`.
    """
    is_new = not known and signed is not False and is_installed()
    try:
        if is_new and not (state_folder() / KEY_FILE).exists():
            return _NO_KEY if federation.members else ""
        found = _find(signed, known, name, keyring)
        if reason := found.hindrance or _unlisted(signed, name, found.key, federation):
            return reason
        expected = "" if federation.members else _expected(name, federation, keyring)
        if found.key and expected and expected not in {found.key, *own_keys()}:
            return (
                f"the name {member(name)!r} is known here as that of another site, with the key "
                f"{expected}: choose another name (fedbo join --name NEW, or name=...)"
            )
        return ""
    except (OSError, ValueError) as error:
        return f"its key cannot be used: {error}"


def reception(federation: Federation | None) -> str:
    """Say which messages a study that publishes nothing still receives.

    Args:
        federation: The federation, if the study has a file of it.
    """
    if is_installed():
        return "The study goes on, and still receives messages"
    if federation is not None and federation.members:
        return (
            "The study goes on. It receives no messages, because those of listed members are "
            "signed, and signatures cannot be checked without that package"
        )
    return "The study goes on. It receives only messages that are not signed"


def give_up(name: str, known: str, federation: Federation, keyring: Keyring) -> None:
    """Let another site have a name that the study no longer uses.

    Args:
        name: The former name of the study.
        known: The public key that the study has stored; empty if there is none.
        federation: The federation in which it had this name.
        keyring: The user's keys of peers.
    """
    if known:
        with contextlib.suppress(OSError, ValueError):  # then a warning says whose key is expected
            keyring.forget(name, parse_key(known), federation)


def announcement(signing: Signing) -> str:
    """Say how the messages of a study are signed.

    Args:
        signing: What `prepare` found.
    """
    if signing.hindrance:
        return "No message is published from here, as a warning says."
    if signing.keys is None:
        return "Messages are not signed."
    return f"Messages are signed with key {signing.key}."


def keys_of(key: str | None) -> KeyPair | None:
    """Return the keys that signed the messages of a study, in order to withdraw them.

    Args:
        key: The public key that the study has stored; empty if it signs nothing, and None if there
            is no study, so that the keys of the user count.

    Raises:
        KeyRefused: If the private key is not on this machine.
    """
    if key == "" or not is_installed():
        return None
    keys = KeyPair.load() if key is None else KeyPair.find(parse_key(key))
    if keys is None:
        raise KeyRefused(
            f"messages of this study are signed with {key}, and that private key is not on this "
            "machine: withdraw them where the study began, or copy the file that fedbo identity "
            "show names there, and run fedbo identity import FILE here"
        )
    return keys


def _own(keyring: Keyring) -> KeyPair:
    """Return the user's keys; if they were revoked and not replaced yet, replace them."""
    own = KeyPair.load()
    return KeyPair.retire() if str(own) in keyring.revoked() else own


def _find(signed: bool | None, known: str, name: str, keyring: Keyring) -> Signing:
    if signed is False:
        hindrance = (
            f"peers know this study by its key {known}, and refuse messages that are not signed "
            f"with it: {_to_sign(signed)}"
        )
        return Signing(hindrance=hindrance if known else "")
    if not is_installed():
        why = "the package cryptography is not installed"
        if known:
            return Signing(
                hindrance=f"peers know this study by its key {known}, and {why}: {_INSTALL}"
            )
        return Signing(
            remark=f"messages of this study are not signed, because {why}, so anyone who can write "
            "to the exchange can publish under its name. It receives only messages that are not "
            f"signed. To sign messages, and to receive signed ones: {_INSTALL}. If they should not "
            "be signed, say so with signed=False (or --unsigned)"
        )
    if known in keyring.revoked():
        own = _own(keyring)
        return Signing(
            keys=own,
            remark=f"the key {known} of this study was revoked here, and it now signs with {own}: "
            f"its peers accept that after fedbo identity trust {shlex.quote(member(name))} {own}",
        )
    keys = KeyPair.find(parse_key(known)) if known else _own(keyring)
    if keys is None:
        return Signing(
            hindrance=f"peers know this study by its key {known}, and that private key is not on "
            "this machine. Where the study began, fedbo identity show prints the name of the file "
            "with the private key. Copy that file to this machine, and run fedbo identity import "
            "FILE"
        )
    return Signing(keys=keys)


def _expected(name: str, federation: Federation, keyring: Keyring) -> str:
    """Return the key by which this site knows a name; empty if there is none."""
    with contextlib.suppress(OSError, ValueError):  # nothing can be fetched then, which is said
        return keyring.known(federation).get(member(name), "")
    return ""


def _known_by_key(signed: bool | None, name: str, key: str) -> str:
    """Say why peers refuse the messages of an unsigned study whose name has a key."""
    return (
        f"messages of this study are not signed, but {member(name)!r} has signed with the key "
        f"{key} before. Peers that know this key refuse messages under this name that are not "
        f"signed with it. So {_to_sign(signed)}, or give the study another name with name=... (or "
        "--name)"
    )


def _to_sign(signed: bool | None) -> str:
    """Say what to do so that messages are signed."""
    leave_out = "leave out signed=False (or --unsigned)"
    if is_installed():
        return leave_out
    install = f"install the package cryptography ({_INSTALL})"
    return f"{install} and {leave_out}" if signed is False else install


def _unlisted(signed: bool | None, name: str, key: str, federation: Federation) -> str:
    """Say why a federation that lists its members does not count this one; empty if it does."""
    if not federation.members:
        return ""
    listed = federation.members.get(member(name))
    if listed is None:
        return _not_a_member(name, key, federation)
    if not key:
        return (
            f"the federation lists the key of {member(name)!r}, and this study's messages are not "
            f"signed: {_to_sign(signed)}"
        )
    if key_text(listed) != key:
        return (
            f"the federation lists {key_text(listed)} as the key of {member(name)!r}, but this "
            f"study has {key}: ask whoever keeps the federation file to correct it, or give the "
            "study another name with name=... (or --name)"
        )
    return ""


def _not_a_member(name: str, key: str, federation: Federation) -> str:
    """Say which name to choose, or whom to ask."""
    names = ", ".join(map(repr, sorted(federation.members)))
    own = [listed for listed, one in federation.members.items() if key_text(one) == key]
    if own:
        advice = f"{own[0]!r} has the key of this study, so give that name"
    else:
        advice = "If this site has one of these names, give it"
    problem = f"{member(name)!r} is not among them ({names})"
    if not name or is_drawn(name):
        problem = f"this study has no name that is among them ({names})"
    advice = f"{advice} with name=... (or --name)"
    if not own and name and not is_drawn(name):
        wanted = f"add {member(name)!r} with its key {key}" if key else "add it with its key"
        advice += f". Otherwise, ask whoever keeps the federation file to {wanted}"
    elif not own:
        advice += (
            ". Otherwise, choose a name, and ask whoever keeps the federation file to add it with "
            f"the key{f' {key}' if key else ' that fedbo identity show prints'}"
        )
    return f"the federation lists its members, and {problem}. {advice}"
