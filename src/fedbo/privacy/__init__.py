"""Differential privacy: what members contribute, releases, exact noise, and what they cost."""

from fedbo.message.release import Release
from fedbo.privacy.accounting import (
    Gaussian,
    Laplace,
    Mechanism,
    Pure,
    SubsampledGaussian,
    epsilon,
    epsilon_basic,
    epsilon_moments,
    epsilon_pld,
    epsilon_renyi,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from fedbo.privacy.budget import Budget, BudgetSpent
from fedbo.privacy.contribution import Contribution, contribute
from fedbo.privacy.local import (
    Estimate,
    LocalCost,
    estimate_votes,
    false_chance,
    local_cost,
    local_vote,
)
from fedbo.privacy.noise import Secret, Simulated, Source, discrete_gaussian, discrete_laplace
from fedbo.privacy.release import Plan, as_messages, first_points, mechanisms, release

__all__ = [
    "Budget",
    "BudgetSpent",
    "Contribution",
    "Estimate",
    "Gaussian",
    "Laplace",
    "LocalCost",
    "Mechanism",
    "Plan",
    "Pure",
    "Release",
    "Secret",
    "Simulated",
    "Source",
    "SubsampledGaussian",
    "as_messages",
    "contribute",
    "discrete_gaussian",
    "discrete_laplace",
    "epsilon",
    "epsilon_basic",
    "epsilon_moments",
    "epsilon_pld",
    "epsilon_renyi",
    "estimate_votes",
    "false_chance",
    "first_points",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "local_cost",
    "local_vote",
    "mechanisms",
    "release",
]
