"""Thompson sampling: query where a draw from the agent's own posterior is largest."""

from __future__ import annotations

from msgspec.structs import force_setattr

from fedbo.policy.base import Beta, Policy, beta_at, beta_from
from fedbo.policy.query import Query
from fedbo.policy.target import Target


class TS(Policy, frozen=True, tag="ts"):
    """Thompson sampling on the agent's own GP: an agent that works alone.

    Args:
        beta: β_t, a constant or a sequence such as `fedbo.theory.beta_sequence` gives.

    >>> TS()
    TS(beta=1.0)
    """

    beta: Beta = 1.0

    def __post_init__(self) -> None:
        force_setattr(self, "beta", beta_from(self.beta))

    def query(self, target: Target) -> Query:
        f_t = target.own_draw(beta_at(self.beta, target.t))
        return target.query_draw(f_t)
