"""How an agent picks its next query: one file for each policy, and what they share in `base`."""

from fedbo.policy.base import Policy
from fedbo.policy.fts import FTS, TS
from fedbo.policy.pool import EI, TipsThenPool
from fedbo.policy.rgpe import RGPE
from fedbo.policy.taf import TAF
from fedbo.policy.target import Origin, Query, Source, Target

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
