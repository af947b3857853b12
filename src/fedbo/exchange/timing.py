"""When an agent publishes a message.

Every score makes a message with fresh noise, and whoever averages many of them comes close to the
mean of the agent's belief. So an agent publishes when its message has changed enough to be worth
it: after a new best score, or when its history has doubled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def due(values: Sequence[float], every: int | None = None) -> list[int]:
    """Return after how many scores a message is published.

    Args:
        values: The scores in the order in which they were told, higher is better; −∞ for a trial
            that counts but has no score.
        every: Publish after each so many scores. If None (default), publish when a score is the
            best so far, and when there are twice as many scores as in the last message.

    >>> due([5.0, 6.0, 4.0, 4.0, 4.0, 9.0]), due([5.0, 6.0, 4.0, 4.0, 4.0, 9.0], every=2)
    ([1, 2, 4, 6], [2, 4, 6])
    """
    if every is not None:
        return list(range(every, len(values) + 1, every))
    counts: list[int] = []
    best = -math.inf
    for n, value in enumerate(values, 1):
        if not counts or value > best or n >= 2 * counts[-1]:
            counts.append(n)
        best = max(best, value)
    return counts
