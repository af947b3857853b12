"""What agents hand out: messages, their fingerprint, and the inbox that holds those of peers."""

from fedbo.message.fingerprint import Fingerprint
from fedbo.message.message import Kind, Message, MessageRefused

__all__ = ["Fingerprint", "Kind", "Message", "MessageRefused"]
