"""Samplers of Optuna alone: FederatedSampler, TPE, GPSampler and random search, with defaults.

Each sampler makes a whole study of each problem for each seed, which also chooses the instance of
the problem. A regret of 0 is the best value of all studies of an instance, and a regret of 1 is the
median of random search; instances where both are equal are left out. Trials that break a constraint
do not count; before the first other one, the regret is that of the worst value. Shown are means
over seeds, the ratio of FederatedSampler's regret to that of each other sampler, paired, with 95 %
intervals, and the CPU seconds that the samplers took, without the objectives.

    FEDBO_DATA=folder python benchmarks/samplers.py --json out.json
    FEDBO_DATA=folder python benchmarks/samplers.py --constrained --seeds 20 --trials 50
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedbo_paper.data.places import user_folder
from fedbo_paper.harness.intervals import Floats, bootstrap

from .objectives import CONSTRAINED, OBJECTIVES, Objective
from .stored import FEDBO, TASKS, stored
from .terminal import estimate, finish, parser, positive, some, table, work

FEDERATED, RANDOM = "FederatedSampler", "RandomSampler"
SAMPLERS = (FEDERATED, "TPESampler", "GPSampler", RANDOM)
AT = (10, 20, 50, 100, 200)  # trials after which samplers are compared
OUTSIDE = (*TASKS, f"{__package__}.objectives", __name__)


def play(objective: Objective, name: str, seed: int, instance: int, trials: int) -> list[float]:
    """Return the values of a study, their margins (below 0: infeasible), and CPU seconds."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = _sampler(name, seed)
    clock = Clock(sampler)
    study = optuna.create_study(sampler=sampler)
    seconds: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study.optimize(
            lambda trial: objective(trial, instance),
            n_trials=trials,
            callbacks=[lambda *_: seconds.append(clock.seconds)],
        )
    values = [float(trial.value or 0.0) for trial in study.trials]
    margins = [-max(trial.constraints.values(), default=-np.inf) for trial in study.trials]
    return [*values, *map(float, margins), *seconds]


class Clock:
    """Adds up the CPU seconds that a sampler takes."""

    METHODS = (
        "before_trial",
        "infer_relative_search_space",
        "sample_relative",
        "sample_independent",
        "after_trial",
    )

    def __init__(self, sampler: Any) -> None:
        self.seconds = 0.0
        self._is_running = False  # a method may call another
        for method in self.METHODS:
            setattr(sampler, method, partial(self._timed, getattr(sampler, method)))

    def _timed(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if self._is_running:
            return method(*arguments)
        self._is_running, start = True, time.process_time()
        try:
            return method(*arguments)
        finally:
            self._is_running = False
            self.seconds += time.process_time() - start


def _sampler(name: str, seed: int) -> Any:
    import optuna

    if name == FEDERATED:
        from fedbo.optuna import FederatedSampler

        return FederatedSampler(seed=seed)
    if name == "GPSampler":
        import torch

        torch.set_num_threads(1)
    return getattr(optuna.samplers, name)(seed=seed)


def regrets(values: Floats, margins: Floats, names: list[str]) -> dict[str, Floats]:
    """Compute regrets (seeds, trials) from values and margins (samplers, seeds, trials).

    Without seeds whose instance is flat.
    """
    best = np.where(margins >= 0.0, values, np.inf).min(axis=(0, 2))[:, None]
    worst = values.max(axis=(0, 2))[:, None]
    middle = np.median(values[names.index(RANDOM)], axis=1)[:, None]
    varies = (best < middle)[:, 0]
    result = {}
    for name, value, margin in zip(names, values, margins, strict=True):
        feasible = np.where(margin >= 0.0, value, worst)
        excess = np.minimum.accumulate(feasible, axis=1) - best
        result[name] = excess[varies] / (middle - best)[varies]
    return result


def main() -> None:
    options = _options()
    problems = CONSTRAINED if options.constrained else OBJECTIVES
    names = [*dict.fromkeys((FEDERATED, *options.samplers, RANDOM))]
    trials, seeds = options.trials, range(options.seeds)
    result: dict[str, Any] = {}
    for title, objective in problems.items():
        if options.only and options.only not in title:
            continue
        calls = [
            partial(_stored, title, objective, name, seed, options)
            for seed in seeds
            for name in names
        ]
        runs = np.array(work(title, calls, options.jobs))
        runs = runs.reshape(len(seeds), len(names), 3, trials).transpose(2, 1, 0, 3)
        values, margins, seconds = runs
        result[title] = _figures(names, regrets(values, margins, names), margins, seconds)
        _show(title, result[title])
    finish(result, options.json)


def _stored(title: str, objective: Objective, name: str, seed: int, options: Any) -> list[float]:
    instance = 2 * seed + (options.targets == "odd")
    compute = partial(play, objective, name, seed, instance, options.trials)
    source = (*FEDBO, *OUTSIDE) if name == FEDERATED else OUTSIDE
    file = f"{title}-{name}-{instance}"
    details = (title, name, instance, options.trials)
    return stored(options.cache, file, 3 * options.trials, compute, *details, source=source)


def _figures(
    names: list[str], regret: dict[str, Floats], margins: Floats, seconds: Floats
) -> dict[str, Any]:
    at = [n for n in AT if n <= margins.shape[-1]]
    result = {}
    for k, name in enumerate(names):
        ratios = {
            n: bootstrap(np.divide, regret[FEDERATED][:, n - 1, None], regret[name][:, n - 1, None])
            for n in at
        }
        result[name] = {
            "regret": {n: float(regret[name][:, n - 1].mean()) for n in at},
            "FederatedSampler's": {} if name == FEDERATED else ratios,
            "feasible": {n: float((margins[k, :, :n] >= 0.0).sum(axis=1).mean()) for n in at},
            "seconds": float(seconds[k, :, -1].mean()),
        }
    return result


def _show(title: str, figures: dict[str, Any]) -> None:
    at = [*figures[FEDERATED]["regret"]]
    is_constrained = any(f["feasible"][at[-1]] < at[-1] for f in figures.values())
    rows = []
    for name, of in figures.items():
        ratios = [estimate(ratio) for ratio in of["FederatedSampler's"].values()] or ["–"] * len(at)
        cells = [f"{of['regret'][n]:.3f}, {cell}" for n, cell in zip(at, ratios, strict=True)]
        feasible = [f"{of['feasible'][at[-1]]:.1f}"] if is_constrained else []
        rows.append([name, *cells, *feasible, f"{of['seconds']:.2f}"])
    columns = ["sampler", *map(str, at), *(["feasible"] if is_constrained else []), "CPU seconds"]
    table(f"{title}: mean regret after this many trials, fedbo's / the sampler's", columns, rows)


def _options() -> Any:
    result = parser(__doc__)
    add = result.add_argument
    add("--constrained", action="store_true", help="the problems with constraints")
    add("--only", metavar="TEXT", help="problems with this in their names")
    add("--samplers", type=some(SAMPLERS), default=SAMPLERS, metavar="A,B", help="default: all")
    add("--seeds", type=positive, default=10, metavar="N", help="default: 10")
    add("--trials", type=positive, default=200, metavar="N", help="default: 200")
    text = "instances; choose on some, report on others; default: odd"
    add("--targets", choices=("even", "odd"), default="odd", help=text)
    folder = user_folder() / "benchmarks" / "samplers"
    add("--cache", type=Path, default=folder, metavar="DIR", help="where studies are stored")
    return result.parse_args()
