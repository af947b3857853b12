"""Who signs the messages of a study, and what keeps them from being published.

The first worker signs with its user's key, and the study stores the public key. From then on, only
a machine that has this private key publishes: peers would refuse any other signature.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from fedbo.federation import Federation
from fedbo.identity import KeyPair, Keyring, is_installed
from fedbo.identity.keyring import member
from fedbo.message.key import key_text, parse_key

_INSTALL = "pip install 'fedbo[identity]'"


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
        if not found.hindrance:
            found = Signing(found.keys, _unlisted(name, found.key, federation), found.remark)
        if found.keys is not None and not found.hindrance:
            fault = keyring.claim(name, found.keys.public, federation)
            found = Signing(found.keys, fault or "", found.remark)
    except (OSError, ValueError) as error:
        return Signing(hindrance=f"its key cannot be used: {error}")
    return found


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


def announcement(signed: bool | None, known: str, keyring: Keyring) -> str:
    """Say how the messages of a study will be signed; empty if they cannot be published.

    Args:
        signed: As for `prepare`.
        known: As for `prepare`.
        keyring: As for `prepare`.
    """
    try:
        found = _find(signed, known, "", keyring)
    except (OSError, ValueError):
        return ""
    if found.hindrance:
        return ""
    return f"Messages are signed with key {found.key}." if found.key else "Messages are not signed."


def _find(signed: bool | None, known: str, name: str, keyring: Keyring) -> Signing:
    if signed is False:
        hindrance = (
            f"peers know it by its key {known}, and refuse messages that are not signed with it: "
            "leave out signed=False (or --unsigned)"
        )
        return Signing(hindrance=hindrance if known else "")
    if not is_installed():
        why = "the package cryptography is not installed"
        if known:
            return Signing(hindrance=f"peers know it by its key {known}, and {why}: {_INSTALL}")
        return Signing(
            remark=f"messages of this study are not signed, because {why}, so anyone who can write "
            f"to the exchange can publish under its name. To sign them: {_INSTALL}. If they should "
            "not be signed, say so with signed=False (or --unsigned)"
        )
    if known in keyring.revoked():
        own = KeyPair.load()
        return Signing(
            keys=own,
            remark=f"the key {known} of this study was revoked here, and it now signs with {own}: "
            f"its peers accept that after fedbo identity trust {member(name)!r} {own}",
        )
    keys = KeyPair.find(parse_key(known)) if known else KeyPair.load()
    if keys is None:
        return Signing(
            hindrance=f"peers know it by its key {known}, and that private key is not on this "
            "machine. Where the study began, fedbo identity show prints the name of the file with "
            "the private key. Copy that file to this machine, and run fedbo identity import FILE"
        )
    return Signing(keys=keys)


def _unlisted(name: str, key: str, federation: Federation) -> str:
    """Say why a federation that lists its members does not count this one; empty if it does."""
    if not federation.members:
        return ""
    listed = federation.members.get(member(name))
    if listed is None:
        names = ", ".join(map(repr, sorted(federation.members)))
        wanted = f"add {member(name)!r} with its key {key}" if key else "add it with its key"
        return (
            f"the federation lists its members, and {member(name)!r} is not among them ({names}). "
            f"If this site has one of these names, give it with name=... (or --name). Otherwise, "
            f"ask whoever keeps the federation file to {wanted}"
        )
    if not key:
        return (
            f"the federation lists the key of {member(name)!r}, and this study's messages are not "
            "signed: leave out signed=False (or --unsigned)"
        )
    if key_text(listed) != key:
        return (
            f"the federation lists {key_text(listed)} as the key of {member(name)!r}, but this "
            f"study has {key}: ask whoever keeps the federation file to correct it, or give the "
            "study another name with name=... (or --name)"
        )
    return ""
