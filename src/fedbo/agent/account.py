"""What an agent has sent and received, and what its queries cost."""

from __future__ import annotations

import msgspec

from fedbo.message import Message
from fedbo.message.release import Release


class Traffic(msgspec.Struct):
    """Messages in one direction."""

    messages: int = 0
    parameters: int = 0  # as the paper counts them
    nbytes: int = 0  # on the wire

    def count(self, message: Message | Release) -> None:
        self.messages += 1
        self.parameters += message.parameters
        self.nbytes += message.nbytes


class Account(msgspec.Struct):
    """An agent's traffic; a message that is sent again, unchanged, counts once."""

    sent: Traffic = msgspec.field(default_factory=Traffic)
    received: Traffic = msgspec.field(default_factory=Traffic)
    last_sent: int = -1  # sequence number

    def count_sent(self, message: Message) -> None:
        if message.sequence != self.last_sent:
            self.last_sent = message.sequence
            self.sent.count(message)


class Cost(msgspec.Struct, frozen=True):
    """CPU seconds of one query: fitting the model, maximising, and everything else."""

    fit: float = 0.0
    other: float = 0.0
    maximise: float = 0.0
