"""What agents hand out: messages, their fingerprint, and the inbox that holds those of peers."""

from fedbo.message.fingerprint import PARTS, Fingerprint
from fedbo.message.message import (
    COUNTER_LIMITS,
    SENDER_BYTES,
    Belief,
    Header,
    Kind,
    Message,
    MessageRefused,
    Weights,
)

__all__ = [
    "COUNTER_LIMITS",
    "PARTS",
    "SENDER_BYTES",
    "Belief",
    "Fingerprint",
    "Header",
    "Kind",
    "Message",
    "MessageRefused",
    "Weights",
]
