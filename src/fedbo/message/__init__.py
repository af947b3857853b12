"""What agents hand out: messages, their fingerprint, and the inbox that holds those of peers."""

from fedbo.message.fingerprint import Fingerprint
from fedbo.message.message import Kind, Message
from fedbo.message.signed import MessageRefused
from fedbo.message.withdrawal import Withdrawal, read

__all__ = ["Fingerprint", "Kind", "Message", "MessageRefused", "Withdrawal", "read"]
