"""What an agent can sign: a header, the fingerprint in it, the name and the key.

Whatever an agent hands out is one MessagePack array on the wire. Its first element says what it is:
1 a message, 3 a release, 4 a withdrawal. The next ones are the fingerprint of the federation, the
sender, the sequence number, the key and the signature, both empty if it is not signed.
`fedbo.trust` makes signatures and checks them; this module only knows their form. Only the bytes
that `Signed.encode` writes are accepted: nothing has two spellings.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import json
import operator
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec.structs import force_setattr

from fedbo.errors import MessageRefused
from fedbo.outside import shortened

KEY_BYTES = 32
SIGNATURE_BYTES = 64
#: The longest name of a sender, in bytes of UTF-8.
SENDER_BYTES = 64
#: These take 5 bytes each: 100 weights take at most 512 bytes, or 608 with a signature.
COUNTER_LIMITS = {"sequence": 2**32 - 1, "t_n": 2**31 - 1}
#: Between the name of who makes private releases and the number of a draw.
DRAW = "/release-"
#: Most coordinates and cells of a compact message or a release.
MOST_COORDINATES, MOST_CELLS = 40, 64
#: Bytes that identify the directions that numbers of a message refer to (`fedbo.model.Basis`).
BASIS_BYTES = 4
BasisDigest = Annotated[bytes, msgspec.Meta(min_length=BASIS_BYTES, max_length=BASIS_BYTES)]
#: How many agents of one member (``clinic/liver``, ``clinic/lung``) are heard.
MOST_AGENTS = 16

_WHOLE_BYTES = 12
#: The parts of an agreement in their order, and what it means if one of them differs.
PARTS = {
    "space": "the parameters, their ranges or choices, or the direction differ",
    "features": "the kernel, the number of features or their seed differs",
    "kind": "the federation hands out another kind of message, or has another privacy plan",
    "scales": "the length scales or the noise variance differ",
}

_KEY_START = "ed25519:"
#: Points of small order (without the bit of the sign): anyone can sign for such a key.
_WEAK = frozenset(
    map(
        bytes.fromhex,
        [
            "00" * 32,
            "01" + "00" * 31,
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "ec" + "ff" * 30 + "7f",
            "ed" + "ff" * 30 + "7f",
            "ee" + "ff" * 30 + "7f",
        ],
    )
)
_LONGEST = 200  # characters of a reason that may quote what was received


class Fingerprint(bytes):
    """A hash of all that a federation agreed on, in 12 bytes, and of each part of it, in a byte.

    Nobody can find another agreement with the same fingerprint. A byte for each part is enough to
    say what differs.

    Args:
        data: The 16 bytes of a fingerprint, for example from a message.

    >>> agreed = {"space": [["C", 0, 1]], "kind": "weights", "scales": 1}
    >>> a = Fingerprint.from_parts(features=["se", 100, 7], **agreed)
    >>> b = Fingerprint.from_parts(features=["se", 100, 8], **agreed)
    >>> a.mismatch(b)
    'foreign features, 095da747-... not 8f46ff86-...: the kernel, the number of features ...'
    """

    def __new__(cls, data: bytes) -> Fingerprint:
        if len(data) != 16:
            raise ValueError(f"a fingerprint has 16 bytes, got {len(data)}")
        return super().__new__(cls, data)

    @classmethod
    def from_parts(
        cls, *, space: object, features: object, kind: object, scales: object
    ) -> Fingerprint:
        """Hash all parts, and each part; a part is anything that JSON can hold.

        The keys of a mapping are sorted; give pairs if their order matters. 10 and 10.0 have the
        same hash, because people write either in a file.
        """
        parts = space, features, kind, scales
        return cls(_hash(parts)[:_WHOLE_BYTES] + bytes(_hash(part)[0] for part in parts))

    def __str__(self) -> str:
        return self.hex("-", 4)

    def mismatch(self, other: bytes) -> str | None:
        """Describe the first part that differs from another fingerprint, or return None."""
        if self == other:
            return None
        which = f"{Fingerprint(other)} not {self}"
        pairs = zip(PARTS.items(), self[_WHOLE_BYTES:], other[_WHOLE_BYTES:], strict=True)
        for (part, meaning), ours, theirs in pairs:
            if ours != theirs:
                return f"foreign {part}, {which}: {meaning}"
        return f"foreign federation, {which}: compare the two files"


class Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Something that travels as an array."""


class Signed(Wire, frozen=True, kw_only=True, tag_field="version"):
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
        check_name(self.sender)
        sizes = len(self.fingerprint), len(self.key), len(self.signature)
        if sizes not in ((16, 0, 0), (16, KEY_BYTES, SIGNATURE_BYTES)):
            expected = f"expected 16, {KEY_BYTES} and {SIGNATURE_BYTES}; the last two may be empty"
            raise MessageRefused(f"fingerprint, key and signature have {sizes} bytes, {expected}")
        force_setattr(self, "fingerprint", bytes(self.fingerprint))
        for name, limit in COUNTER_LIMITS.items():
            if name in self.__struct_fields__:
                value = operator.index(getattr(self, name))
                if not 0 <= value <= limit:
                    raise MessageRefused(f"{name} is {value}, expected 0 to {limit}")
                force_setattr(self, name, value)

    @property
    def signer(self) -> str:
        """The public key as text; empty if there is no signature."""
        return key_text(self.key) if self.key else ""

    @property
    def content(self) -> bytes:
        """The bytes of the same without a signature."""
        unsigned = copy.copy(self)  # its fields are checked already
        force_setattr(unsigned, "key", b"")
        force_setattr(unsigned, "signature", b"")
        return unsigned.encode()

    @property
    def signed_bytes(self) -> bytes:
        """What a signature covers."""
        return f"fedbo 2 {self.type}\n".encode() + self.content

    @property
    def nbytes(self) -> int:
        return len(self.encode())

    def encode(self) -> bytes:
        """Return the bytes that travel. They are the same on every machine."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Return what `encode` wrote. Its signature, if it has one, is not checked.

        Args:
            data: The bytes of one message, release or withdrawal; of anything else, this raises
                `MessageRefused`.
        """
        content: Self = decoded(data, cls)
        return content


class Withdrawal(Signed, frozen=True, kw_only=True, tag=4):
    """Withdraws the messages of a sender, up to a sequence number.

    It applies only to messages with the same key. An exchange keeps it in place of the message, so
    that nobody can put back a copy. It always travels with a signature.

    >>> header = {"fingerprint": bytes(16), "sender": "site-a", "sequence": 7}
    >>> signed = Withdrawal(key=bytes(32), signature=bytes(64), **header)
    >>> Withdrawal.decode(signed.encode()) == signed
    True
    """

    type = "withdrawal"


def decoded(data: bytes | bytearray | memoryview, form: Any) -> Any:
    """Return what these bytes hold; raise `MessageRefused` if it is of none of these classes."""
    try:
        content = msgspec.msgpack.decode(data, type=form)
    except (ValueError, RecursionError) as error:
        reason = shortened(str(error), _LONGEST)
        raise MessageRefused(
            f"{len(data):,} bytes are no message of this kind, or of another version of fedbo: "
            f"{reason}"
        ) from None
    if content.encode() != data:
        raise MessageRefused(f"{len(data):,} bytes have another encoding than fedbo's")
    if isinstance(content, Withdrawal) and not content.key:
        raise MessageRefused(f"{len(data):,} bytes are a withdrawal without a signature")
    return content


def check_name(name: str, most: int = SENDER_BYTES) -> None:
    """Raise `MessageRefused` if this cannot be the name of a sender.

    Args:
        name: Any text. Peers show it on screens and write it to logs.
        most: How many bytes it may have in UTF-8; 64 by default.
    """
    if not name.isprintable() or not 1 <= len(name) <= most or len(name.encode()) > most:
        expected = f"1 to {most} bytes of printable UTF-8"
        raise MessageRefused(f"the name is {shortened(name)!r}, expected {expected}")
    if DRAW in name:
        raise MessageRefused(
            f"the name is {name!r}, and such names are of draws of private releases"
        )


def check_member(name: str, most: int = SENDER_BYTES) -> None:
    """Raise `MessageRefused` if this cannot be the name of a member, which has no '/'."""
    check_name(name, most)
    if "/" in name:
        raise MessageRefused(f"the name is {name!r}, expected one without '/'")


def member(sender: str) -> str:
    """Return the name of the member that an agent belongs to.

    >>> member("clinic/liver"), member("site-a")
    ('clinic', 'site-a')
    """
    return sender.partition("/")[0]


def key_text(key: bytes) -> str:
    """Write the 32 bytes of an Ed25519 public key as text.

    >>> key_text(bytes(32))
    'ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key has {len(key)} bytes, expected {KEY_BYTES}")
    return _KEY_START + base64.urlsafe_b64encode(key).decode().rstrip("=")


def parse_key(text: str) -> bytes:
    """Read a public key from its text.

    Args:
        text: What `key_text` wrote. Any other spelling is refused, so a key has one spelling.

    Raises:
        ValueError: If it is not the text of a key.
    """
    key = b""
    if isinstance(text, str) and text.startswith(_KEY_START):
        with contextlib.suppress(ValueError):
            key = base64.urlsafe_b64decode(text[len(_KEY_START) :] + "=")
    if len(key) != KEY_BYTES or key_text(key) != text:
        raise ValueError(
            f"the key is {shortened(repr(text))}, expected {_KEY_START!r} and 43 characters, as "
            "fedbo identity show prints it"
        )
    if is_weak(key):
        raise ValueError(f"the key {text} is not safe: anyone can sign with it")
    return key


def is_weak(key: bytes) -> bool:
    """Tell whether anyone can make signatures for this key, without a private key."""
    return key[:31] + bytes([key[31] & 0x7F]) in _WEAK


def _hash(part: object) -> bytes:
    def number(digits: str) -> float:
        return int(value) if (value := float(digits)).is_integer() else value

    same = json.loads(json.dumps(part, allow_nan=False), parse_float=number)
    text = json.dumps(same, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()
