"""What the server and the sites of a fleet say to each other in Flower's messages.

One record, ``fedbo``, has the fields of an `Instruction` or an `Answer`. Nothing else travels: no
score, no params. All of it is checked where it enters.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from flwr.app import ConfigRecord, RecordDict
from msgspec import Meta

from fedbo.message.message import MOST_PEERS
from fedbo.outside import printable, shortened

log = logging.getLogger("flwr")  # Flower shows what is logged there

RECORD = "fedbo"
MESSAGE_TYPE = "train"

#: Trials that a node can be asked for in a round.
MOST_TRIALS = 10_000
#: Bytes of a message: enough for a belief with M = 5,000.
LARGEST = 64 * 2**20
#: Seconds for which a node can be asked to wait.
MOST_PATIENCE = 86_400.0

_NAMED, _LONGEST = 3, 300  # records, and characters of an error, that are quoted

T = TypeVar("T")


class Refused(ValueError):
    """What the other side sent cannot be used; the text says why."""


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """What a site is asked to do in a round: so many trials, after it has heard these messages."""

    round: int
    trials: Annotated[int, Meta(ge=0, le=MOST_TRIALS)]
    heard: Annotated[list[bytes], Meta(max_length=MOST_PEERS)]
    patience: Annotated[float, Meta(gt=0.0, le=MOST_PATIENCE)]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a site hands out: its message as bytes; empty if it has no score yet."""

    message: Annotated[bytes, Meta(max_length=LARGEST)]


def packed(words: Instruction | Answer) -> RecordDict:
    """Return an instruction or an answer as the content of a Flower message."""
    return RecordDict({RECORD: ConfigRecord(msgspec.structs.asdict(words))})


def unpacked(content: RecordDict, kind: type[T]) -> T:
    """Return the `Instruction` or the `Answer` in the content of a Flower message."""
    record: Mapping[str, Any] | None = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        names = [shortened(str(name)) for name in islice(content, _NAMED)]
        raise Refused(
            f"a message with the records {names}, expected {RECORD!r}: use fedbo.flower, in the "
            "same version, for the ServerApp and the ClientApp"
        )
    try:
        return msgspec.convert(dict(record), kind, builtin_types=(bytes,))  # no base64
    except msgspec.ValidationError as error:
        text = printable(shortened(str(error), _LONGEST))
        raise Refused(f"the record {RECORD!r} is wrong: {text}") from None
