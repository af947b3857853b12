"""Differential privacy: what members contribute, releases, exact noise, and what they cost."""

from fedbo.federation.plan import Plan
from fedbo.message.release import Release
from fedbo.privacy.accounting import (
    Gaussian,
    Laplace,
    Mechanism,
    Pure,
    SubsampledGaussian,
    epsilon,
    epsilon_basic,
    epsilon_pld,
    epsilon_renyi,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from fedbo.privacy.budget import BudgetSpent, is_due, next_release, one_each, releases_made
from fedbo.privacy.contribution import shape
from fedbo.privacy.local import local_vote
from fedbo.privacy.noise import (
    Derived,
    Secret,
    Simulated,
    Source,
    discrete_gaussian,
    discrete_laplace,
)
from fedbo.privacy.release import mechanisms, planned, release, voted_points
from fedbo.privacy.statement import Signal, signal, spent, statement

__all__ = [
    "BudgetSpent",
    "Derived",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Plan",
    "Pure",
    "Release",
    "Secret",
    "Signal",
    "Simulated",
    "Source",
    "SubsampledGaussian",
    "discrete_gaussian",
    "discrete_laplace",
    "epsilon",
    "epsilon_basic",
    "epsilon_pld",
    "epsilon_renyi",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "is_due",
    "local_vote",
    "mechanisms",
    "next_release",
    "one_each",
    "planned",
    "release",
    "releases_made",
    "shape",
    "signal",
    "spent",
    "statement",
    "voted_points",
]
