"""What is in these bytes: a message, a withdrawal or a release."""

from __future__ import annotations

import msgspec

from fedbo.message.message import Message
from fedbo.message.release import Release, is_release
from fedbo.message.signed import Envelope
from fedbo.message.withdrawal import Withdrawal

#: What an agent can hear.
Heard = Message | Release


def read(data: bytes | bytearray | memoryview) -> Heard | Withdrawal:
    """Return the message, release or withdrawal in these bytes; its signature is not checked.

    Args:
        data: What `encode` of one of them wrote; anything else raises `MessageRefused`.
    """
    try:
        kind = msgspec.msgpack.decode(data, type=Envelope).type
    except (ValueError, RecursionError):
        kind = "release" if is_release(data) else "message"
    if kind == "withdrawal":
        return Withdrawal.decode(data)
    return Release.decode(data) if kind == "release" else Message.decode(data)
