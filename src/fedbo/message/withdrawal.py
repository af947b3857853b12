"""The signed statement of an agent that its messages are not to be handed out any more."""

from __future__ import annotations

import msgspec

from fedbo.message.signed import Envelope, MessageRefused, Signed, Wire


class Withdrawal(Signed, frozen=True, kw_only=True):
    """Withdraws the messages of a sender, up to a sequence number.

    It applies only to messages with the same key. An exchange keeps it in place of the message, so
    that nobody can put back a copy. It always travels with a signature.

    >>> given = {"fingerprint": bytes(16), "sender": "site-a", "sequence": 7}
    >>> signed = Withdrawal(key=bytes(32), signature=bytes(64), **given)
    >>> Withdrawal.decode(signed.encode()) == signed
    True
    """

    type = "withdrawal"

    @property
    def content(self) -> bytes:
        """The withdrawal without its signature, as bytes."""
        return msgspec.msgpack.encode(_Content(self.fingerprint, self.sender, self.sequence))

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Withdrawal:
        """Return the withdrawal that `encode` wrote. Its signature is not checked.

        Args:
            data: The bytes of one withdrawal; anything else raises `MessageRefused`.
        """
        try:
            envelope = msgspec.msgpack.decode(data, type=Envelope)
            found = msgspec.msgpack.decode(envelope.content, type=_Content)
        except (ValueError, RecursionError):
            raise MessageRefused(
                f"{len(data):,} bytes are a withdrawal with a wrong field"
            ) from None
        withdrawal = cls(
            fingerprint=found.fingerprint,
            sender=found.sender,
            sequence=found.sequence,
            key=envelope.key,
            signature=envelope.signature,
        )
        if envelope.type != "withdrawal" or withdrawal.encode() != data:
            raise MessageRefused(
                f"{len(data):,} bytes are a withdrawal with another encoding than fedbo's"
            )
        return withdrawal


class _Content(Wire, frozen=True):
    fingerprint: bytes
    sender: str
    sequence: int
