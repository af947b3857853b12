"""What past studies are worth: `python benchmarks/past_studies.py`, with OptunaHub installed.

A task is a Branin or a Hartmann function, shifted and scaled at random. Four past studies of other
tasks of its family have 40 trials each. The table has the mean regret of 20 trials over seeds, in
units of the regret of a median random point. It is the one in the package for OptunaHub.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
import optunahub
from optuna.samplers import BaseSampler, TPESampler
from scipy.optimize import minimize

from fedbo import Federation, Float, Space
from fedbo.exchange import FolderExchange
from fedbo.optuna.stored import StoredStudy

PACKAGE: Any = optunahub.load_local_module(
    "samplers/fedbo",
    registry_root=str(Path(__file__).parents[1] / "integrations" / "optunahub" / "package"),
)
PAST, PAST_TRIALS, TRIALS, SHOWN = 4, 40, 20, (1, 3, 5, 10, 20)

# Hartmann's function of six variables
_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


class Task(NamedTuple):
    """A function on the unit cube, to be minimised."""

    dimensions: int
    value: Callable[[np.ndarray], float]

    def __call__(self, trial: optuna.Trial) -> float:
        names = [f"x{d}" for d in range(self.dimensions)]
        return self.value(np.array([trial.suggest_float(name, 0, 1) for name in names]))

    def levels(self) -> tuple[float, float]:
        """Return the lowest value, and that of a median random point."""
        U = np.random.default_rng(0).random((2000, self.dimensions))
        values = np.array([self.value(u) for u in U])
        box = [(0.0, 1.0)] * self.dimensions
        starts = U[np.argsort(values)[:10]]
        lowest = min(minimize(self.value, u, method="L-BFGS-B", bounds=box).fun for u in starts)
        return float(lowest), float(np.median(values))


def branin(rng: np.random.Generator) -> Task:
    shift, scale = rng.normal(0, 0.7, 2), rng.uniform(0.5, 2)

    def value(u: np.ndarray) -> float:
        x, y = 15 * u + [-5, 0] + shift
        bowl = (y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6) ** 2
        return float(scale * (bowl + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10))

    return Task(2, value)


def hartmann(rng: np.random.Generator) -> Task:
    shift, scale = rng.normal(0, 0.06, 6), rng.uniform(0.5, 2)
    alpha = _ALPHA * rng.uniform(0.8, 1.2, 4)

    def value(u: np.ndarray) -> float:
        return float(-scale * alpha @ np.exp(-(_A * (u + shift - _P) ** 2).sum(axis=1)))

    return Task(6, value)


def noise(task: Task, rng: np.random.Generator) -> Task:
    return task._replace(value=lambda u: float(rng.normal()))


def study(task: Task, sampler: BaseSampler, trials: int) -> optuna.Study:
    made = optuna.create_study(sampler=sampler)
    made.optimize(task, n_trials=trials)
    return made


def samplers(
    past: list[optuna.Study], useless: list[optuna.Study], D: int, seed: int, folder: str
) -> Iterator[tuple[str, BaseSampler]]:
    federation = Federation(Space({f"x{d}": Float(0, 1) for d in range(D)}, direction="minimize"))
    exchange = FolderExchange(Path(folder) / "exchange")
    for each in past:
        StoredStudy(each, federation).publish(exchange)
    yield "RGPESampler", PACKAGE.RGPESampler(past, seed=seed)
    yield "RGPESampler, past studies of noise", PACKAGE.RGPESampler(useless, seed=seed)
    yield "FederatedSampler, messages", PACKAGE.FederatedSampler(federation, exchange, seed=seed)
    yield "FederatedSampler alone", PACKAGE.FederatedSampler(seed=seed)
    yield "TPESampler", TPESampler(seed=seed)


def regrets(family: Callable[[np.random.Generator], Task], seed: int) -> dict[str, np.ndarray]:
    """Return the regret after each trial, by sampler."""
    rng = np.random.default_rng(1000 + seed)
    tasks = [family(rng) for _ in range(PAST + 1)]
    past = [
        study(task, TPESampler(seed=100 * seed + k), PAST_TRIALS)
        for k, task in enumerate(tasks[:PAST])
    ]
    useless = [
        study(noise(task, rng), TPESampler(seed=k), PAST_TRIALS)
        for k, task in enumerate(tasks[:PAST])
    ]
    task = tasks[PAST]
    lowest, median = task.levels()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FEDBO_STATE"] = str(Path(folder) / "state")  # its keys and its ledger
        runs = {
            name: study(task, sampler, TRIALS)
            for name, sampler in samplers(past, useless, task.dimensions, seed, folder)
        }
    best = {
        name: np.minimum.accumulate([t.value for t in run.trials]) for name, run in runs.items()
    }
    return {name: (values - lowest) / (median - lowest) for name, values in best.items()}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=40)
    seeds = options.parse_args().seeds
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for family in (branin, hartmann):
        runs = [regrets(family, seed) for seed in range(seeds)]
        print(
            f"{family.__name__}, after {', '.join(map(str, SHOWN))} trials (± one standard error)"
        )
        for name in runs[0]:
            values = np.array([run[name] for run in runs])[:, np.array(SHOWN) - 1]
            errors = values.std(axis=0, ddof=1) / np.sqrt(seeds)
            print(
                f"  {name:36}",
                *(f"{m:.3f} ± {e:.3f}" for m, e in zip(values.mean(axis=0), errors, strict=True)),
                sep="  ",
            )
