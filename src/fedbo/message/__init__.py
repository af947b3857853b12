"""What agents hand out: messages, their fingerprint, and the inbox that holds those of peers."""

from fedbo.errors import MessageRefused
from fedbo.message.message import MOST_PEERS, Heard, Kind, Message, MessageKind, read
from fedbo.message.release import Release
from fedbo.message.signed import Fingerprint, Withdrawal

__all__ = [
    "MOST_PEERS",
    "Fingerprint",
    "Heard",
    "Kind",
    "Message",
    "MessageKind",
    "MessageRefused",
    "Release",
    "Withdrawal",
    "read",
]
