"""How far an agent has come: what a site may report, if it wants to, for the page of its hub."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import force_setattr

from fedbo.message import MessageRefused
from fedbo.message.signed import COUNTER_LIMITS, check_origin

#: The most trials that an agent can say it has saved, or lost.
MOST_SAVED = COUNTER_LIMITS["t_n"]


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a site reports of one agent. A score is as secret as a trial: nothing is reported
    unless the site asks for it.

    Args:
        fingerprint: The fingerprint of the federation, 16 bytes.
        sender: The name of the agent.
        trials: How many trials it has told.
        best: Its best score so far; None (default) if that is not reported.
        saved: Its own estimate of trials saved; None (default) if that is not reported.

    Raises:
        MessageRefused: If a value is not possible; the text names it.

    >>> mine = Progress(fingerprint=bytes(16), sender="clinic", trials=20, best=0.93)
    >>> Progress.decode(mine.encode()) == mine
    True
    """

    fingerprint: bytes
    sender: str
    trials: int
    best: float | None = None
    saved: float | None = None

    def __post_init__(self) -> None:
        check_origin(self.fingerprint, self.sender)
        force_setattr(self, "fingerprint", bytes(self.fingerprint))
        if not 0 <= self.trials <= COUNTER_LIMITS["t_n"]:
            raise MessageRefused(f"trials is {self.trials}, expected 0 to {COUNTER_LIMITS['t_n']}")
        for name in ("best", "saved"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise MessageRefused(f"{name} is {value!r}, expected a finite number")
        if self.saved is not None and abs(self.saved) > MOST_SAVED:
            raise MessageRefused(
                f"saved is {self.saved!r}, expected {-MOST_SAVED} to {MOST_SAVED} trials"
            )

    @classmethod
    def decode(cls, data: bytes) -> Progress:
        """Read what `encode` wrote; raise `MessageRefused` for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (ValueError, RecursionError) as error:
            raise MessageRefused(f"{len(data)} bytes are not progress: {error}") from None

    def encode(self) -> bytes:
        """Return the progress as JSON."""
        return msgspec.json.encode(self)

    @property
    def numbers(self) -> int:
        """How many numbers are reported."""
        return 1 + (self.best is not None) + (self.saved is not None)
