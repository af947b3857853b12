"""When a study publishes a message.

Every score makes a message with fresh noise, and whoever averages many of them comes close to the
mean of the agent's belief. So a study publishes when its message has changed enough to be worth it:
after a new best score, or when its history has doubled; or after each so many scores, if the user
asks for that. A message that was due and did not arrive is sent again as it is, without fresh
noise.

Contributions to private releases are due at times that do not depend on scores: how many trials a
member has is public, and would otherwise tell when it found something better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedbo.federation.federation import Federation


def rhythm(federation: Federation, every: int | None = None) -> int | None:
    """Return after how many scores each a message is due; None if the scores decide that.

    Args:
        federation: The federation of the study.
        every: What the user asks for; None (default) if nothing.
    """
    if every is None and federation.privacy is not None:
        return federation.privacy.least_trials
    return every


def due(values: Sequence[float], every: int | None = None) -> list[int]:
    """Return after how many scores a message is published.

    Args:
        values: The scores in the order in which they were told, higher is better; −∞ for a trial
            that counts but has no score.
        every: Publish after each so many scores, see `rhythm`. If None (default), publish when a
            score is the best so far, and when there are twice as many scores as in the last
            message.

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
