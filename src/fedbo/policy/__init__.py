"""How an agent picks its next query: one file for each policy, and what they share in `base`."""

from fedbo.policy.base import Policy
from fedbo.policy.ei import EI
from fedbo.policy.fts import FTS
from fedbo.policy.query import Origin, Query, Source
from fedbo.policy.rgpe import RGPE
from fedbo.policy.taf import TAF
from fedbo.policy.target import Target
from fedbo.policy.tips_then_pool import TipsThenPool
from fedbo.policy.ts import TS

__all__ = [
    "EI",
    "FTS",
    "RGPE",
    "TAF",
    "TS",
    "Origin",
    "Policy",
    "Query",
    "Source",
    "Target",
    "TipsThenPool",
]
