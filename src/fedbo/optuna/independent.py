"""The sampler of all parameters that are not the federation's, unless the user names one."""

from __future__ import annotations

import hashlib
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial


def usual_sampler(seed: int | None) -> BaseSampler:
    """Return Optuna's TPE; with a seed, one whose values can be reproduced."""
    return TPESampler() if seed is None else _SeededSampler(int(seed))


class _SeededSampler(TPESampler):
    """TPE with randomness that depends on the seed, the trial and the parameter only.

    So two workers with one seed, or one that is resumed, do not suggest the same values again.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def reseed_rng(self) -> None:
        pass

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        key = hashlib.sha256(f"{self._seed} {trial.number} {param_name}".encode()).digest()
        once = TPESampler(seed=int.from_bytes(key[:4]))
        return once.sample_independent(study, trial, param_name, param_distribution)
