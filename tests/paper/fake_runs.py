"""Made-up runs in the shape of the tidy table: every experiment, both presets, no computing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedbo.table import Cell, Table

COLUMNS = (
    *("experiment", "preset", "method", "M", "N", "t_n", "d_n", "power", "every"),
    *("target", "repeat", "seed", "iteration", "source", "peer", "score", "best"),
    *("simple_regret", "cumulative_regret", "parameters_received"),
    *("seconds_evaluation", "seconds"),
)
EXPERIMENTS = ("synthetic", "landmine", "glass", "har", "agents", "published")
NONE = Table.from_rows(COLUMNS, [])

_PEERS = {"synthetic": 50, "landmine": 28, "glass": 37, "har": 29, "published": 28}
_SECONDS = {"TS": 0.006, "FTS": 0.007, "RGPE": 0.03, "TAF": 0.06}
_SPEED = {"TS": 8.0, "FTS": 5.0, "RGPE": 12.0, "TAF": 20.0}  # iterations to come closer by e


class Arm(NamedTuple):
    method: str
    M: int = 0
    N: int = 0
    t_n: int = 0
    d_n: float = math.nan
    power: float = math.nan
    every: int = 0


def fake_runs(
    experiments: Sequence[str] = EXPERIMENTS,
    presets: Sequence[str] = ("paper", "default"),
    *,
    targets: int = 6,
    repeats: int = 5,
    iterations: int = 50,
) -> Table:
    """Runs that look like runs: they converge, with the seconds and sizes of their method."""
    rng = np.random.default_rng(0)
    rows: list[tuple[Cell, ...]] = []
    for experiment in experiments:
        for preset in ("paper",) if experiment == "published" else presets:
            if preset not in presets:
                continue
            few = 1 if experiment == "agents" else targets
            for seed in range(3 if experiment == "published" else 1):
                for arm in _arms(experiment):
                    for target in range(few):
                        for repeat in range(repeats):
                            run = (experiment, preset, *arm, target, repeat, seed)
                            steps = _steps(rng, experiment, preset, arm, target, iterations)
                            rows += [(*run, *step) for step in steps]
    return Table.from_rows(COLUMNS, rows)


def _arms(experiment: str) -> list[Arm]:
    if experiment == "synthetic":
        near = [Arm("FTS", M, 50, t_n, 0.02, 0.5) for M in (25, 50, 100) for t_n in (40, 100)]
        return [Arm("TS"), *near, *(Arm("FTS", 100, 50, 100, 1.2, power) for power in (0.5, 2.0))]
    if experiment == "agents":
        return [
            Arm(method, 100, N, 50) for method in ("FTS", "RGPE", "TAF") for N in (7, 28, 300, 1000)
        ]
    N = _PEERS[experiment]
    if experiment == "published":
        return [Arm("TS"), Arm("FTS", 100, N, 50, power=2.0)]
    lengths = [Arm(m, M, N, 50) for m in ("FTS", "RGPE", "TAF") for M in (50, 100, 150, 200)]
    return [Arm("TS"), *lengths, Arm("FTS", 100, N, 50, power=2.0, every=1)]


def _steps(
    rng: np.random.Generator,
    experiment: str,
    preset: str,
    arm: Arm,
    target: int,
    iterations: int,
) -> Iterator[tuple[Cell, ...]]:
    initial = 1 if experiment == "synthetic" else 3
    t = np.r_[np.zeros(initial), np.arange(1.0, iterations + 1)]
    speed = _SPEED[arm.method] * (0.7 if preset == "default" else 1.0)
    top, scale = (1.0, 0.8) if experiment == "synthetic" else (0.80 + 0.01 * target, 0.12)
    distance = scale * np.exp(-t / speed) * rng.gamma(2.0, 0.5, len(t))
    value = top - np.maximum(distance, 0.01 * scale)
    falling = experiment in ("har", "glass")  # the score is an error there
    score = 1.0 - value if falling else value
    best = np.minimum.accumulate(score) if falling else np.maximum.accumulate(score)
    known = experiment == "synthetic"
    simple = 1.0 - best if known else np.full(len(t), math.nan)
    square, incumbent = arm.M**2 * (arm.method in ("RGPE", "TAF")), int(arm.method == "TAF")
    parameters = arm.N * (arm.M + square + incumbent)
    received = parameters * np.maximum(1, t * arm.every)
    seconds = _SECONDS[arm.method] * (1 + arm.N / 100 * (arm.method in ("RGPE", "TAF")))
    for i, iteration in enumerate(t.astype(int)):
        peer = arm.method == "FTS" and iteration > 0 and rng.random() < iteration**-0.5
        yield (
            int(iteration),
            "initial" if iteration == 0 else "peer" if peer else "own",
            f"agent {rng.integers(arm.N)}" if peer else "",
            float(score[i]),
            float(best[i]),
            float(simple[i]),
            float(np.sum(1.0 - value[: i + 1])) if known else math.nan,
            int(received[i]),
            float(0.01 * rng.uniform(0.5, 1.5)),
            math.nan if arm.every else float(seconds * rng.uniform(0.8, 1.2)),
        )
