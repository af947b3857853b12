"""fedbo inside Optuna: a sampler that joins a federation."""

from fedbo.optuna.sampler import FederatedSampler

__all__ = ["FederatedSampler"]
