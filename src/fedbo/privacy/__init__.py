"""Differential privacy: exact noise."""

from fedbo.privacy.noise import Secret, Simulated, Source, discrete_gaussian, discrete_laplace

__all__ = ["Secret", "Simulated", "Source", "discrete_gaussian", "discrete_laplace"]
