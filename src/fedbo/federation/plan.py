"""The privacy plan of a federation: what its releases may cost, who makes them, and when."""

from __future__ import annotations

import math
import operator
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from fedbo.message.release import SENDER_BYTES
from fedbo.message.signed import check_member

#: ε of one release times its members, below which it is mostly noise (`fedbo.privacy.signal`).
ENOUGH = 20.0
_EPSILONS = 1e-6, 1e9  # beyond them, a release would be noise, or have none
_LEAST_DELTA = 1e-15
_MOST_RELEASES = 10_000
_MOST_MEMBERS = 1_000_000
_MOST_DAYS = 10_000.0


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all private releases of a federation cost together, who makes them, and when.

    It is fixed before the first release, and part of the federation's fingerprint. The noise of
    every release follows from it, so that nobody can spend more by looking at what was released.

    Args:
        epsilon: ε of all releases together, 1e-6 to 1e9.
        delta: δ of the same guarantee, 1e-15 to below 1.
        releases: Their number R (default 1). Each has √R times the noise of a single release in its
            sums, and R times in its votes.
        by: The name of the trusted party that makes them (default "hub"). Releases of others are
            refused.
        least_trials: A contribution from fewer trials is left out (default 1).
        least_members: A hub makes a release when this many members have contributed; it never waits
            for the others. By default 20 R / ε, with fewer a release is mostly noise. With 0 only
            its operator makes releases.
        days: Days that lie between two releases of that kind, and before the first (default 0).

    >>> Plan(epsilon=2.0, delta=1e-3)
    Plan(epsilon=2.0, delta=0.001, releases=1, by='hub', least_trials=1, least_members=10, days=0.0)
    """

    epsilon: float
    delta: float
    releases: int = 1
    by: str = "hub"
    least_trials: int = 1
    least_members: int = -1  # by default
    days: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "days"):
            force_setattr(self, name, float(getattr(self, name)))
        for name in ("releases", "least_trials", "least_members"):
            force_setattr(self, name, operator.index(getattr(self, name)))
        low, high = _EPSILONS
        if not low <= self.epsilon <= high or not _LEAST_DELTA <= self.delta < 1.0:
            raise ValueError(
                f"epsilon is {self.epsilon} and delta is {self.delta}, expected epsilon from "
                f"{low:g} to {high:g}, and delta from {_LEAST_DELTA:g} to below 1"
            )
        if self.least_members == -1 and 0 < self.releases <= _MOST_RELEASES:
            members = max(2, math.ceil(ENOUGH * self.releases / self.epsilon))
            force_setattr(self, "least_members", min(members, _MOST_MEMBERS))
        for name, least, most in (
            ("releases", 1, _MOST_RELEASES),
            ("least_trials", 1, _MOST_MEMBERS),
            ("least_members", 0, _MOST_MEMBERS),
            ("days", 0.0, _MOST_DAYS),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, expected {least:g} to {most:,g}"
                )
        check_member(self.by, SENDER_BYTES)

    @classmethod
    def from_table(cls, table: object) -> Plan:
        """Read the [privacy] table of a federation file.

        Args:
            table: The table, or a plan.
        """
        if isinstance(table, Plan):
            return table
        try:
            return msgspec.convert(table, cls, strict=True)
        except (msgspec.ValidationError, OverflowError) as error:
            raise ValueError(f"[privacy]: {error}") from None

    @property
    def table(self) -> dict[str, Any]:
        """The [privacy] table of a federation file."""
        table: dict[str, Any] = msgspec.to_builtins(self)
        return table
