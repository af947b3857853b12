"""What a member and its hub say to each other about messages, as MessagePack arrays.

Everything else that they say is JSON.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

#: How many messages a hub hands out to one member at most.
MOST_PEERS = 1024
#: How many messages and withdrawals one answer has at most, and how many a member holds.
MOST_HANDED = 4 * MOST_PEERS
#: How many bytes of messages a hub hands out in one answer at most.
ANSWER_BYTES = 2**27
MEDIA_TYPE = "application/vnd.fedbo+msgpack"

_Few = msgspec.Meta(max_length=MOST_HANDED)
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Cursor = Annotated[str, msgspec.Meta(max_length=100)]
_Gone = Annotated[tuple[int, ...], msgspec.Meta(max_length=10**6)]


class Wanted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a member asks for.

    Args:
        epoch: Of the federation.
        cursor: What the last answer gave; empty at first.
    """

    epoch: _Epoch
    cursor: _Cursor = ""


class Handed(msgspec.Struct, frozen=True, array_like=True):
    """A message or a withdrawal, as its sender encoded it, and its number at the hub."""

    number: int
    content: bytes


class News(msgspec.Struct, frozen=True, array_like=True):
    """What has changed since the cursor of the question.

    Args:
        cursor: For the next question.
        is_all: Whether this is everything: the member forgets what it held before.
        handed: What is new. A later message of an agent has the same number as the earlier one.
        gone: The numbers of messages to forget.
        epoch: The current epoch of the federation, which may be later than the one asked for.
    """

    cursor: _Cursor
    is_all: bool
    handed: Annotated[tuple[Handed, ...], _Few]
    gone: _Gone
    epoch: int
