"""Differential privacy: exact noise, and what releases cost."""

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
from fedbo.privacy.noise import Secret, Simulated, Source, discrete_gaussian, discrete_laplace

__all__ = [
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Pure",
    "Secret",
    "Simulated",
    "Source",
    "SubsampledGaussian",
    "discrete_gaussian",
    "discrete_laplace",
    "epsilon",
    "epsilon_basic",
    "epsilon_moments",
    "epsilon_pld",
    "epsilon_renyi",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
]
