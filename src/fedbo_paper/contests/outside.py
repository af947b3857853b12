"""Runs of Optuna's samplers, which know nothing of peers, on the same tasks.

The samplers see the unit cube. If a sampler asks for a point that cannot be evaluated, the nearest
possible one is evaluated instead (on a table, the nearest configuration that was not tried). The
sampler is told that point and its score, and the trial it asked for is withdrawn. The samplers
start from the common initial points, and the GP knows that scores have no noise. All other
settings are Optuna's defaults.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from fedbo_paper.contests.grounds import Ground, Params

if TYPE_CHECKING:
    import optuna

SAMPLERS = ("Optuna TPE", "Optuna GP")
MISSING = (
    "Optuna is not installed; run in the environment that `make bench` builds (.venv-bench), "
    "or leave its samplers out with --no-outside"
)


def is_installed() -> bool:
    """Check whether Optuna is installed, without importing it."""
    return find_spec("optuna") is not None


def play(ground: Ground, name: str, target: int, seed: int, evaluations: int) -> list[float]:
    """Run a sampler on a task.

    Returns:
        The scores of the initial points and of the sampler's evaluations, in this order.
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
    cube: dict[str, optuna.distributions.BaseDistribution] = {
        f"x{d}": optuna.distributions.FloatDistribution(0.0, 1.0)
        for d in range(ground.space.dimensions)
    }
    sign, tried, scores = ground.space.sign, list[Params](), list[float]()
    initial = ground.initial(target, seed)
    sampler_seed = int(np.random.SeedSequence((5, seed, target)).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = _sampler(name, sampler_seed, len(initial))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for t in range(len(initial) + evaluations):
            if t < len(initial):
                x = ground.space.encode(initial[t])
            else:
                trial = study.ask(cube)
                x = np.array([trial.params[key] for key in cube])
                # both samplers ignore a failed trial, but would treat a running one as pending
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            tried.append(ground.nearest(x, tried))
            scores.append(ground.score(target, tried[-1]))
            point = dict(zip(cube, ground.space.encode(tried[-1]).tolist(), strict=True))
            value = sign * scores[-1]
            study.add_trial(
                optuna.trial.create_trial(params=point, distributions=cube, value=value)
            )
    return scores


def _sampler(name: str, seed: int, starts: int) -> optuna.samplers.BaseSampler:
    import optuna

    if name == "Optuna TPE":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=starts)
    if name == "Optuna GP":
        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=starts, deterministic_objective=True
        )
    raise ValueError(f"sampler is {name!r}, expected one of {', '.join(SAMPLERS)}")
