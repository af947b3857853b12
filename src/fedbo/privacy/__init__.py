"""Differential privacy: what members contribute, releases, exact noise, and what they cost."""

from fedbo.errors import BudgetSpent
from fedbo.federation.plan import Plan
from fedbo.message.release import Release
from fedbo.privacy.accounting import Mechanism, epsilon
from fedbo.privacy.budget import next_release, one_each
from fedbo.privacy.noise import Simulated, Source
from fedbo.privacy.release import mechanisms, release
from fedbo.privacy.statement import Signal, signal, spent, statement

__all__ = [
    "BudgetSpent",
    "Mechanism",
    "Plan",
    "Release",
    "Signal",
    "Simulated",
    "Source",
    "epsilon",
    "mechanisms",
    "next_release",
    "one_each",
    "release",
    "signal",
    "spent",
    "statement",
]
