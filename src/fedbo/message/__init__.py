"""What agents hand out: messages, their fingerprint, and the inbox that holds those of peers."""

from fedbo.message.decode import Heard, read
from fedbo.message.fingerprint import Fingerprint
from fedbo.message.message import Kind, Message, MessageKind
from fedbo.message.release import Release
from fedbo.message.signed import MessageRefused
from fedbo.message.withdrawal import Withdrawal

__all__ = [
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
