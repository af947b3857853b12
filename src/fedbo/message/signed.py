"""What an agent can sign: a header, and the envelope in which it travels.

A signed message, withdrawal or release is one MessagePack array on the wire, version 2:
``[2, type, content, key, signature]``. The signature covers the type and the content, which has the
fingerprint, the sender, the sequence and the rest. `fedbo.identity` makes signatures and
checks them; this module only knows their form.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from typing import ClassVar, Literal

import msgspec
from msgspec.structs import force_setattr

from fedbo.message.key import KEY_BYTES, key_text
from fedbo.outside import shortened

SIGNATURE_BYTES = 64
#: The longest name of a sender, in bytes of UTF-8.
SENDER_BYTES = 64
#: These take 5 bytes each: 100 weights always stay under 512 bytes, or 640 with a signature.
COUNTER_LIMITS = {"sequence": 2**32 - 1, "t_n": 2**31 - 1}


#: How many agents of one member (``clinic/liver``, ``clinic/lung``) are heard.
MOST_AGENTS = 16


class MessageRefused(ValueError):
    """A message cannot be used; the text says which rule it breaks."""


class Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Something that travels as an array."""


class Envelope(Wire, frozen=True, tag_field="version", tag=2):
    """What is signed, and by whom."""

    type: Literal["message", "withdrawal", "release"]
    content: bytes
    key: bytes
    signature: bytes


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """The header of what an agent hands out, and its signature if it has one.

    Args:
        fingerprint: Of the sender's federation, 16 bytes.
        sender: Name of the agent: 1 to 64 bytes of printable UTF-8.
        sequence: A later message of the same sender has a larger number.
        key: The sender's public key, 32 bytes; empty if there is no signature.
        signature: 64 bytes over `signed_bytes`; empty if there is no signature.
    """

    type: ClassVar[Literal["message", "withdrawal", "release"]]

    fingerprint: bytes
    sender: str
    sequence: int
    key: bytes = b""
    signature: bytes = b""

    def __post_init__(self) -> None:
        check_origin(self.fingerprint, self.sender)
        force_setattr(self, "fingerprint", bytes(self.fingerprint))
        for name, limit in COUNTER_LIMITS.items():
            if name in self.__struct_fields__:
                value = operator.index(getattr(self, name))
                if not 0 <= value <= limit:
                    raise MessageRefused(f"{name} is {value}, expected 0 to {limit}")
                force_setattr(self, name, value)
        sizes = len(self.key), len(self.signature)
        if sizes not in ((0, 0), (KEY_BYTES, SIGNATURE_BYTES)):
            expected = f"expected {KEY_BYTES} and {SIGNATURE_BYTES}, or neither"
            raise MessageRefused(
                f"key and signature have {sizes[0]} and {sizes[1]} bytes, {expected}"
            )

    @property
    def signer(self) -> str:
        """The public key as text; empty if there is no signature."""
        return key_text(self.key) if self.key else ""

    @property
    @abstractmethod
    def content(self) -> bytes:
        """Everything but the signature, as bytes."""

    @property
    def signed_bytes(self) -> bytes:
        """What a signature covers."""
        return f"fedbo 2 {self.type}\n".encode() + self.content

    def encode(self) -> bytes:
        """Return the bytes that travel. They are the same on every machine."""
        if not self.key:
            return self.content
        envelope = Envelope(self.type, self.content, self.key, self.signature)
        return msgspec.msgpack.encode(envelope)


def member(sender: str) -> str:
    """Return the name of the member that an agent belongs to.

    >>> member("clinic/liver"), member("site-a")
    ('clinic', 'site-a')
    """
    return sender.partition("/")[0]


def check_origin(fingerprint: bytes, sender: str) -> None:
    """Raise `MessageRefused` if this cannot be the fingerprint or the name of a sender."""
    if len(fingerprint) != 16:
        raise MessageRefused(f"fingerprint has {len(fingerprint)} bytes, expected 16")
    if not 1 <= len(sender) <= SENDER_BYTES or not len(sender.encode()) <= SENDER_BYTES:
        given = repr(shortened(sender))
        raise MessageRefused(f"sender is {given}, expected 1 to {SENDER_BYTES} bytes of UTF-8")
    if not sender.isprintable():  # peers show it on screens and write it to logs
        expected = "characters that can be printed, and of white space only the ordinary space"
        raise MessageRefused(f"sender is {sender!r}, expected {expected}")
