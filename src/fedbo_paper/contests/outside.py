"""Runs of Optuna's and BoTorch's optimisers, which know nothing of peers, on the same tasks.

The samplers see the unit cube. If a sampler asks for a point that cannot be evaluated, the nearest
possible one is evaluated instead (on a table, the nearest configuration that was not tried). The
sampler is told that point and its score, and the trial it asked for is withdrawn. The samplers
start from the common initial points, and the GPs know that scores have no noise. All other settings
are the defaults of their libraries.

"BoTorch logEI" is a SingleTaskGP with standardised scores, fitted before each query, and
LogExpectedImprovement, which `optimize_acqf` maximises from 8 of 128 random points.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from fedbo_paper.contests.grounds import Ground, Params
from fedbo_paper.harness.intervals import Floats

BOTORCH = "BoTorch logEI"
SAMPLERS = ("Optuna TPE", "Optuna GP", BOTORCH)
MISSING = (
    "{} is not installed; run in the environment that `make bench` builds (.venv-bench), "
    "or leave out its samplers with --no-outside"
)

_RESTARTS, _RAW = 8, 128  # of optimize_acqf
_NOISE = 1e-6  # variance of the noise of standardised scores that have none


class Sampler(Protocol):
    """Proposes points of the unit cube; maximises the values that it is told."""

    def ask(self) -> Floats: ...
    def tell(self, x: Floats, value: float) -> None: ...


def library(name: str) -> str:
    """Return the name of the library that a sampler belongs to.

    >>> library("BoTorch logEI")
    'BoTorch'
    """
    return name.split()[0]


def is_installed(name: str) -> bool:
    """Check whether the library of a sampler is installed, without importing it."""
    return find_spec(library(name).lower()) is not None


def play(ground: Ground, name: str, target: int, seed: int, evaluations: int) -> list[float]:
    """Run a sampler on a task.

    Returns:
        The scores of the initial points and of the sampler's evaluations, in this order.
    """
    initial = ground.initial(target, seed)
    sampler_seed = int(np.random.SeedSequence((5, seed, target)).generate_state(1)[0])
    sign, tried, scores = ground.space.sign, list[Params](), list[float]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = _sampler(name, ground.space.dimensions, sampler_seed, len(initial))
        for t in range(len(initial) + evaluations):
            x = ground.space.encode(initial[t]) if t < len(initial) else sampler.ask()
            tried.append(ground.nearest(x, tried))
            scores.append(ground.score(target, tried[-1]))
            sampler.tell(ground.space.encode(tried[-1]), sign * scores[-1])
    return scores


def _sampler(name: str, D: int, seed: int, starts: int) -> Sampler:
    if name not in SAMPLERS:
        raise ValueError(f"sampler is {name!r}, expected one of {', '.join(SAMPLERS)}")
    try:
        return BoTorch(D, seed) if name == BOTORCH else Optuna(name, D, seed, starts)
    except ModuleNotFoundError as error:
        text = MISSING.format(library(name))
        raise SystemExit(f"{error}, which {name} needs. {text}") from None


class Optuna:
    """A sampler of Optuna.

    Args:
        name: "Optuna TPE" or "Optuna GP".
        D: Number of parameters.
        seed: The seed of the sampler.
        starts: Number of initial points.
    """

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
    """Log expected improvement of BoTorch.

    Args:
        D: Number of parameters.
        seed: The seed of the points from which the acquisition function is maximised.
    """

    def __init__(self, D: int, seed: int) -> None:
        import botorch  # noqa: F401 - a missing library is noticed here, not in the first query
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
