"""How an agent picks its next query: one file for each policy, and what they share in `base`."""

from fedbo.policy.base import Beta, Policy, Query, Target
from fedbo.policy.fts import FTS
from fedbo.policy.origin import Origin, Source
from fedbo.policy.pts import PTS
from fedbo.policy.rgpe import RGPE
from fedbo.policy.schedule import Constant, Gradual, Power, Steps
from fedbo.policy.taf import TAF
from fedbo.policy.thompson import TS

__all__ = [
    "FTS",
    "PTS",
    "RGPE",
    "TAF",
    "TS",
    "Beta",
    "Constant",
    "Gradual",
    "Origin",
    "Policy",
    "Power",
    "Query",
    "Source",
    "Steps",
    "Target",
]
