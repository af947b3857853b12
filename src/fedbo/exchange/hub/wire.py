"""What a member and its hub say to each other: each record is defined here, for both sides.

What they say about messages is in MessagePack arrays, everything else in JSON. A message travels in
the bytes of `Message.encode`, which its signature covers; neither side packs it anew.

The records in JSON are dataclasses, so that a member needs no more than msgspec. The metadata of
their fields is what FastAPI checks at the hub and documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import msgspec

from fedbo.message.message import MOST_PEERS

#: How many messages and withdrawals one answer has at most.
MOST_HANDED = 4 * MOST_PEERS
#: How many bytes of messages a hub hands out in one answer at most.
ANSWER_BYTES = 2**24
MEDIA_TYPE = "application/vnd.fedbo+msgpack"
PROBLEM_TYPE = "application/problem+json"  # of a `Problem`
#: The token of a member; a header of HTTP can have it.
Token = Annotated[str, msgspec.Meta(pattern=r"\Afedbo-m-[A-Za-z0-9_-]{43}\Z")]

_LATEST = 2e11  # in the year 8307: datetime knows it
_Cursor = Annotated[str, msgspec.Meta(max_length=100)]
_Handed = msgspec.Meta(max_length=MOST_HANDED)
_Gone = Annotated[tuple[int, ...], msgspec.Meta(max_length=10**6)]
_PROOF_DIGITS = 128
_A_KEY = {
    "max_length": 64,
    "description": "The public key that signs the member's messages, as fedbo identity show prints "
    "it.",
}
_A_PROOF = {
    "max_length": _PROOF_DIGITS,
    "description": "The key's signature of a `Statement` (fedbo.exchange.hub.proof), in "
    "hexadecimal digits: that the member has the private key.",
}
_A_SECRET = {"max_length": 64, "description": "The last part of the invitation."}
_A_FILE = {"description": "The federation file (TOML)."}


# In JSON


class _Question:
    """The body of a request, which has no other fields."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True)
class Secrets(_Question):
    """What proves that one is invited."""

    secret: str = field(metadata=_A_SECRET)
    name: str | None = field(
        default=None, metadata={"description": "The federation of the invitation."}
    )


@dataclass(frozen=True)
class FederationFile:
    """What the agents of a federation agree on."""

    federation: str
    file: str = field(metadata=_A_FILE)


@dataclass(frozen=True)
class NewMember(_Question):
    """Who wants to enrol."""

    secret: str = field(metadata=_A_SECRET)
    name: str = field(metadata={"max_length": 64, "description": "The name of the member."})
    key: str = field(metadata=_A_KEY)
    proof: str = field(metadata=_A_PROOF)


@dataclass(frozen=True)
class Enrolled:
    """A new member and its token, shown once."""

    federation: str
    member: str
    token: Token
    file: str = field(metadata=_A_FILE)


@dataclass(frozen=True)
class NewToken:
    """A new token, shown once."""

    token: Token


@dataclass(frozen=True)
class Nonce:
    """What a change of the key has to name; it counts once."""

    nonce: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")] = field(
        metadata={"description": "32 hexadecimal digits."}
    )


@dataclass(frozen=True)
class NewKey(_Question):
    """Another public key, and the proofs that the member has its private key, and the old one."""

    key: str = field(metadata=_A_KEY)
    proof: str = field(metadata=_A_PROOF)
    old_proof: str = field(metadata=_A_PROOF)


@dataclass(frozen=True)
class Outcome:
    """What became of a message or a withdrawal."""

    out: bool = field(
        metadata={"description": "Whether exactly this is now what counts of its agent."}
    )


@dataclass(frozen=True)
class Problem:
    """Why something was refused (RFC 9457)."""

    type: str = field(metadata={"examples": ["/problems/wrong-token"]})
    title: str
    status: int
    detail: str = field(
        metadata={"description": "What was given, what was expected, and what to do."}
    )
    instance: str = field(metadata={"description": "The number of the request, as the log has it."})


# In MessagePack


class _Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class Wanted(_Wire, frozen=True):
    """What a member asks for when it fetches: what came after the cursor of the last answer."""

    cursor: _Cursor = ""


class Handed(_Wire, frozen=True):
    """A message, a release or a withdrawal, as its sender encoded it, and its number at the hub."""

    number: int
    content: bytes


class News(_Wire, frozen=True):
    """What has changed since the cursor of the question."""

    cursor: _Cursor  # for the next question
    is_all: bool  # the member forgets what it held before
    #: What is new, the latest last; a later message of an agent has the number of the earlier one.
    handed: Annotated[tuple[Handed, ...], _Handed]
    gone: _Gone  # numbers of messages to forget


class Listed(_Wire, frozen=True):
    """Something that a hub holds, and when it was put there, in seconds since 1970."""

    when: float
    content: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.when <= _LATEST:
            raise ValueError(f"when is {self.when!r}, expected 0 to {_LATEST:g}")


#: The answer to a list of messages.
Listing = Annotated[tuple[Listed, ...], _Handed]
