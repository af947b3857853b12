"""What a member and its hub say to each other about messages, as MessagePack arrays.

Everything else that they say is JSON. A message travels in the bytes of `Message.encode`, which its
signature covers; neither side packs it anew.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from fedbo.message.message import MOST_PEERS

#: How many messages and withdrawals one answer has at most.
MOST_HANDED = 4 * MOST_PEERS
#: How many bytes of messages a hub hands out in one answer at most.
ANSWER_BYTES = 2**24
MEDIA_TYPE = "application/vnd.fedbo+msgpack"

_LATEST = 2e11  # in the year 8307: datetime knows it
_Cursor = Annotated[str, msgspec.Meta(max_length=100)]
_Handed = msgspec.Meta(max_length=MOST_HANDED)
_Gone = Annotated[tuple[int, ...], msgspec.Meta(max_length=10**6)]


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
