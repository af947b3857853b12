"""Which message counts: one for each sender and key, the latest, unless it was withdrawn.

Memory, folders, hubs and Flower decide it here. A withdrawal is a signed message without content:
it takes the place of the message that it withdraws, and of all earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fedbo.message import Heard, Release, Withdrawal

Content = Heard | Withdrawal


class Origin(NamedTuple):
    """What entries that replace each other have in common."""

    fingerprint: bytes
    sender: str
    key: bytes
    is_release: bool


def origin(content: Content) -> Origin:
    """Return what this and the entries that it replaces have in common."""
    header = bytes(content.fingerprint), content.sender, content.key
    return Origin(*header, isinstance(content, Release))


def latest(entries: Iterable[Content]) -> dict[Origin, Content]:
    """Return the entry that counts, by origin; the entries may come in any order.

    It is the one with the largest sequence, and of equal ones the withdrawal. Of two messages with
    the same sequence, every place keeps the same one.

    >>> from fedbo.message import Message
    >>> header = {"fingerprint": bytes(16), "sender": "site-a"}
    >>> one, two = (Message.of_weights([n], sequence=n, t_n=n, **header) for n in (1, 2))
    >>> [content.sequence for content in latest([two, one]).values()]
    [2]
    """
    counting: dict[Origin, Content] = {}
    for entry in entries:
        place = origin(entry)
        counting[place] = max(counting.get(place, entry), entry, key=_rank)
    return counting


def _rank(content: Content) -> tuple[int, bool, bytes]:
    return content.sequence, isinstance(content, Withdrawal), content.encode()
