"""How an agent picks its next query: one file a policy, and what they share in `base`."""

from fedbo.policy.base import Beta, Policy, Query, Target
from fedbo.policy.fts import FTS
from fedbo.policy.thompson import TS

__all__ = ["FTS", "TS", "Beta", "Policy", "Query", "Target"]
