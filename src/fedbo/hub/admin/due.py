"""When a hub makes a private release by itself."""

from __future__ import annotations

from typing import NamedTuple

from fedbo.federation import Plan

_DAY = 86400.0


class Standing(NamedTuple):
    """How far the releases of a federation are.

    Args:
        made: How many were made, in all epochs.
        since: When the last one was made; before the first, when the federation was created.
        members: How many members have contributed from enough trials in the current epoch.
        has_changed: Whether one of them has contributed since the last release.
    """

    made: int
    since: float
    members: int
    has_changed: bool


def is_due(plan: Plan, standing: Standing, now: float) -> bool:
    """Tell whether the plan asks for a release now. Nobody waits for members that are away.

    Args:
        plan: The privacy plan of the federation.
        standing: How far its releases are.
        now: The time, in seconds since 1970.

    >>> plan = Plan(epsilon=2.0, delta=1e-3, least_members=20, days=7.0)
    >>> is_due(plan, Standing(0, since=0.0, members=20, has_changed=True), now=7 * 86400.0)
    True
    """
    return (
        0 < plan.least_members <= standing.members
        and standing.made < plan.releases
        and standing.since + plan.days * _DAY <= now
        and (standing.made == 0 or standing.has_changed)
    )
