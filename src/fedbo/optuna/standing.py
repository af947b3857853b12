"""Under which name a study takes part, and which key signs its messages.

The first worker signs with its user's key, and the study stores the public key. From then on, only
a machine that has this private key publishes, because peers would refuse any other signature.
"""

from __future__ import annotations

import contextlib
import shlex
from typing import NamedTuple

from fedbo.caller import warn
from fedbo.errors import ExchangeError, KeyRefused, NotOurs
from fedbo.exchange import Exchange, ExchangeWarning, Ledger
from fedbo.federation.federation import Federation
from fedbo.message.signed import SENDER_BYTES, member, parse_key
from fedbo.optuna.study import StudyAgent, StudyRecord, write_key
from fedbo.trust import KeyPair, Keyring, listed_keys


class Standing(NamedTuple):
    """How a study takes part at an exchange."""

    sender: str  # its name there
    keys: KeyPair | None = None  # that sign its messages; None if nothing is published
    silence: str = ""  # why nothing is published; empty if it is
    is_member: bool = True  # whether messages of peers come in
    key: str = ""  # the public key, as text; empty if nothing is published


def sender_of(name: str, owner: str | None) -> str:
    """Return the name of a study at an exchange, as an agent of the member ``owner`` if any.

    >>> sender_of("liver", "clinic"), sender_of("clinic/lung", "clinic"), sender_of("liver", None)
    ('clinic/liver', 'clinic/lung', 'liver')
    """
    return name if owner in (None, member(name)) else f"{owner}/{name}"


def sender_at(exchange: Exchange, federation: Federation, record: StudyRecord) -> str:
    """Return the name of a study at an exchange; its own one while this user is no member."""
    with contextlib.suppress(ExchangeError):
        if identity := exchange.identity(federation):
            return sender_of(record.name, identity.member)
    return record.name


def standing_of(
    exchange: Exchange,
    federation: Federation,
    record: StudyRecord,
    keyring: Keyring,
) -> Standing:
    """Find out how a study takes part, and remember in the keyring that the name is this user's."""
    sender, key = record.name, record.key
    try:
        identity = exchange.identity(federation)
        if identity is not None:
            sender = sender_of(sender, identity.member)
        if (size := len(sender.encode())) > SENDER_BYTES:
            raise ExchangeError(
                f"its name would be {sender!r}, with {size} bytes, and at most {SENDER_BYTES} are "
                "possible: give a new study a shorter name"
            )
    except ExchangeError as error:
        return Standing(record.name, silence=str(error), is_member=False)
    try:
        if identity is not None:
            key = identity.key
        keys = _keys_for(key, sender, federation, keyring)
        if fault := keyring.claim(sender, keys.public, federation):
            raise KeyRefused(fault)
    except (OSError, ValueError) as error:
        return Standing(sender, silence=str(error))
    return Standing(sender, keys, key=str(keys))


def introduce(agent: StudyAgent, standing: Standing, keyring: Keyring) -> StudyRecord:
    """Let an agent speak as its standing says, and store the study's record and key."""
    record = agent.introduce()
    if not standing.silence and standing.key != record.key:
        write_key(agent.study, standing.key)
        record = agent.reread()
    agent.speak_as(standing.sender, None if standing.silence else standing.keys, keyring)
    return record


def replace(
    exchange: Exchange,
    ledger: Ledger,
    federation: Federation,
    record: StudyRecord,
    standing: Standing,
) -> None:
    """Withdraw a study's message if later ones are signed with another key.

    A peer that sees two keys under a name that is new to it trusts neither. A place with members
    takes back by itself what the old key of a member has signed, and accepts nothing more from it.
    """
    if not record.key or record.key == standing.key or exchange.identity(federation) is not None:
        return
    if (keys := KeyPair.find(parse_key(record.key))) is not None:
        with contextlib.suppress(NotOurs):  # the name belongs to another study now
            ledger.withdraw(exchange, federation, standing.sender, keys, study=record.study)


def withdraw(
    exchange: Exchange, ledger: Ledger, federation: Federation, record: StudyRecord
) -> bool:
    """Withdraw the message of a study, as `StoredStudy.withdraw` says."""
    identity, sender, key = exchange.identity(federation), record.name, record.key
    if identity is not None:
        sender, key = sender_of(sender, identity.member), identity.key
    if not key:  # it has never published
        return False
    return ledger.withdraw(exchange, federation, sender, _find(key), study=record.study)


def _keys_for(key: str, sender: str, federation: Federation, keyring: Keyring) -> KeyPair:
    """Return the key pair that signs messages: listed, the study's own, or else the user's."""
    if (listed := listed_keys(federation, sender)) is not None:
        return listed
    if key and key not in keyring.revoked():
        return _find(key)
    own = KeyPair.load()
    if str(own) in keyring.revoked():
        own = KeyPair.retire()
    if key:
        warn(
            f"the key {key} of this study was revoked here, and it now signs with {own}: its peers "
            f"accept that after fedbo identity trust {shlex.quote(member(sender))} {own}",
            ExchangeWarning,
        )
    return own


def _find(key: str) -> KeyPair:
    keys = KeyPair.find(parse_key(key))
    if keys is None:
        raise KeyRefused(
            f"peers know this study by its key {key}, and that private key is not on this machine: "
            "copy the file that fedbo identity show names where the study began, and run fedbo "
            "identity import FILE here"
        )
    return keys
