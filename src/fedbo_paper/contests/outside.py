"""Optuna's samplers, which know nothing of peers, on the same tasks.

They see the unit cube. What they ask for is moved to the nearest point that may be queried (on a
table, the nearest configuration not yet queried), and they are told of that point and its score: a
trial that was asked for elsewhere is withdrawn. Everything else is Optuna's default, but for the
start, which is the common initial points, and the GP's knowledge that scores have no noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import numpy as np

Array = np.ndarray
SAMPLERS = ("Optuna TPE", "Optuna GP")
MISSING = (
    "Optuna is not installed; run in the environment that `make bench` builds (.venv-bench), "
    "or leave its samplers out with --no-outside"
)


def optuna_version() -> str | None:
    """The version that is installed, without importing it; None if there is none."""
    try:
        return version("optuna")
    except PackageNotFoundError:
        return None


def _sampler(name: str, seed: int, starts: int):
    import optuna

    if name == "Optuna TPE":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=starts)
    if name == "Optuna GP":
        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=starts, deterministic_objective=True
        )
    raise ValueError(f"sampler is {name!r}, expected one of {', '.join(SAMPLERS)}")


def run(
    name: str,
    initial: Array,
    evaluate: Callable[[Array], tuple[Array, float]],
    evaluations: int,
    seed: int,
) -> list[float]:
    """Scores, to be maximised, of the initial points (n, D) and of the sampler's queries after.

    ``evaluate`` takes a point and gives the one that was queried in its place, with its score.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise SystemExit(MISSING) from None
    try:
        import torch

        torch.set_num_threads(1)
    except ModuleNotFoundError as error:
        if name == "Optuna GP":
            raise SystemExit(f"{error}, which Optuna's GPSampler needs. {MISSING}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    cube = {
        f"x{d}": optuna.distributions.FloatDistribution(0.0, 1.0) for d in range(len(initial.T))
    }
    scores: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = _sampler(name, seed, len(initial))
        study = optuna.create_study(direction="maximize", sampler=sampler)

        def query(x: Array) -> None:
            point, score = evaluate(x)
            params = {f"x{d}": float(value) for d, value in enumerate(point)}
            told = optuna.trial.create_trial(params=params, distributions=cube, value=score)
            study.add_trial(told)
            scores.append(score)

        for x in initial:
            query(x)
        for _ in range(evaluations):
            trial = study.ask(cube)
            x = np.array([trial.params[key] for key in cube])
            # a failed trial is not seen by either sampler; one left open would be taken for pending
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            query(x)
    return scores
