"""Runs of Optuna's and BoTorch's optimisers on the same tasks.

The samplers see the unit cube. If a sampler asks for a point that cannot be evaluated, the nearest
possible one is evaluated instead (on a table, the nearest configuration that was not tried). The
sampler is told that point and its score, and the trial it asked for is withdrawn. The samplers
start from the common initial points, or, told the best, from `peers.first_settings`. They
sample from then on, and the GPs know that scores have no noise. All other settings are the defaults
of their libraries.

"BoTorch logEI" is a SingleTaskGP with standardised scores, fitted before each query, and
LogExpectedImprovement, which `optimize_acqf` maximises from 8 of 128 random points.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from fedbo_paper.harness.intervals import Floats

from .grounds import Ground, Params

TPE, BOTORCH = "Optuna TPE", "BoTorch logEI"
TOLD = "Optuna TPE, told the best (shares settings)"
#: The library that each sampler needs, beside those of the development environment.
SAMPLERS = {TPE: "optuna", TOLD: "optuna", "Optuna GP": "torch", BOTORCH: "botorch"}
MISSING = (
    "{} needs {}, which is not installed: run in the environment that `make bench` builds "
    "(.venv-bench), or leave out samplers from outside with --no-outside"
)

_RESTARTS, _RAW = 8, 128  # of optimize_acqf
_NOISE = 1e-6  # variance of the noise of standardised scores that have none


class Sampler(Protocol):
    """Proposes points of the unit cube; maximises the values that it is told."""

    def ask(self) -> Floats: ...
    def tell(self, x: Floats, value: float) -> None: ...


def is_installed(name: str) -> bool:
    """Check whether the library of a sampler is installed, without importing it."""
    return find_spec(SAMPLERS[name]) is not None


def play(
    ground: Ground, name: str, target: int, seed: int, first: Sequence[Params], trials: int
) -> list[float]:
    """Run a sampler on a task, after ``first``; return the scores of its trials."""
    sampler_seed = int(np.random.SeedSequence((5, seed, target)).generate_state(1)[0])
    sign, tried, scores = ground.space.sign, list[Params](), list[float]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = _sampler(name, ground.space.dimensions, sampler_seed, len(first))
        for t in range(trials):
            x = ground.space.encode(first[t]) if t < len(first) else sampler.ask()
            tried.append(ground.nearest(x, tried))
            scores.append(ground.score(target, tried[-1]))
            sampler.tell(ground.space.encode(tried[-1]), sign * scores[-1])
    return scores


def _sampler(name: str, D: int, seed: int, starts: int) -> Sampler:
    if name not in SAMPLERS:
        raise ValueError(f"sampler is {name!r}, expected one of {', '.join(SAMPLERS)}")
    if not is_installed(name):
        raise SystemExit(MISSING.format(name, SAMPLERS[name]))
    return BoTorch(D, seed) if name == BOTORCH else Optuna(name, D, seed, starts)


class Optuna:
    """A sampler of Optuna."""

    def __init__(self, name: str, D: int, seed: int, starts: int) -> None:
        import optuna

        self._trials = optuna.trial
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._cube: dict[str, optuna.distributions.BaseDistribution] = {
            f"x{d}": optuna.distributions.FloatDistribution(0.0, 1.0) for d in range(D)
        }
        sampler: optuna.samplers.BaseSampler
        if name == "Optuna GP":
            import torch

            torch.set_num_threads(1)
            sampler = optuna.samplers.GPSampler(
                seed=seed, n_startup_trials=starts, deterministic_objective=True
            )
        else:
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=starts)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)

    def ask(self) -> Floats:
        trial = self._study.ask(self._cube)
        # both samplers ignore a failed trial, but would treat a running one as pending
        self._study.tell(trial, state=self._trials.TrialState.FAIL)
        return np.array([trial.params[key] for key in self._cube])

    def tell(self, x: Floats, value: float) -> None:
        point = dict(zip(self._cube, x.tolist(), strict=True))
        self._study.add_trial(
            self._trials.create_trial(params=point, distributions=self._cube, value=value)
        )


class BoTorch:
    """Log expected improvement of BoTorch."""

    def __init__(self, D: int, seed: int) -> None:
        import torch

        torch.set_num_threads(1)
        self._bounds = torch.tensor([[0.0] * D, [1.0] * D], dtype=torch.float64)
        self._seeds = np.random.default_rng(seed)
        self._X: list[list[float]] = []
        self._y: list[float] = []

    def ask(self) -> Floats:
        import torch
        from botorch.acquisition import LogExpectedImprovement
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Standardize
        from botorch.optim import optimize_acqf
        from gpytorch.mlls import ExactMarginalLogLikelihood

        X = torch.tensor(self._X, dtype=torch.float64)
        y = torch.tensor(self._y, dtype=torch.float64)[:, None]
        noise = torch.full_like(y, _NOISE * (float(y.var()) or 1.0))
        model = SingleTaskGP(X, y, noise, outcome_transform=Standardize(m=1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        x, _ = optimize_acqf(
            LogExpectedImprovement(model, best_f=y.max()),
            bounds=self._bounds,
            q=1,
            num_restarts=_RESTARTS,
            raw_samples=_RAW,
            options={"seed": int(self._seeds.integers(2**31))},
        )
        return np.asarray(x[0].numpy(), dtype=float)

    def tell(self, x: Floats, value: float) -> None:
        self._X.append(x.tolist())
        self._y.append(value)
