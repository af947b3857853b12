"""Runs of Optuna's samplers, which know nothing of peers, on the same tasks.

The samplers see the unit cube. If a sampler asks for a point that cannot be evaluated, the nearest
possible one is evaluated instead (on a table, the nearest configuration that was not tried). The
sampler is told that point and its score, and the trial it asked for is withdrawn. The samplers
start from the common initial points, and the GP knows that scores have no noise. All other
settings are Optuna's defaults.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from fedbo_paper.contests.grounds import Ground, Params
from fedbo_paper.harness.intervals import Floats

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
    sign, tried = ground.space.sign, list[Params]()

    def evaluate(x: Floats) -> tuple[Floats, float]:
        params = ground.nearest(x, tried)
        tried.append(params)
        return ground.space.encode(params), sign * ground.score(target, params)

    initial = np.array([ground.space.encode(params) for params in ground.initial(target, seed)])
    sampler_seed = int(np.random.SeedSequence((5, seed, target)).generate_state(1)[0])
    return [sign * score for score in run(name, initial, evaluate, evaluations, sampler_seed)]


def run(
    name: str,
    initial: Floats,
    evaluate: Callable[[Floats], tuple[Floats, float]],
    evaluations: int,
    seed: int,
) -> list[float]:
    """Maximise a function on the unit cube with a sampler of Optuna.

    Args:
        name: One of `SAMPLERS`.
        initial: Initial points (n, D).
        evaluate: Takes a point, and returns the point that was evaluated instead and its score.
        evaluations: Number of evaluations after the initial points.
        seed: Seed of the sampler.

    Returns:
        All scores, those of the initial points first.
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
        f"x{d}": optuna.distributions.FloatDistribution(0.0, 1.0) for d in range(len(initial.T))
    }
    scores: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = _sampler(name, seed, len(initial))
        study = optuna.create_study(direction="maximize", sampler=sampler)

        def query(x: Floats) -> None:
            point, score = evaluate(x)
            params = dict(zip(cube, point.tolist(), strict=True))
            told = optuna.trial.create_trial(params=params, distributions=cube, value=score)
            study.add_trial(told)
            scores.append(score)

        for x in initial:
            query(x)
        for _ in range(evaluations):
            trial = study.ask(cube)
            x = np.array([trial.params[key] for key in cube])
            # both samplers ignore a failed trial, but would treat a running one as pending
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            query(x)
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
