"""Tables of the results: every trial, a summary, regrets, and the lead of one preset."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import get_args

import numpy as np

from fedbo.table import Cell, Column, Table
from fedbo_paper.experiments.answers import scale
from fedbo_paper.experiments.sides import UNIT, Rows, Runs, Side, groups_of
from fedbo_paper.experiments.spec import ARM, REAL, Method, Run
from fedbo_paper.harness.averages import mean_and_error
from fedbo_paper.harness.intervals import cluster_means, paired

LABELS = ("experiment", "preset", *ARM, "target", "repeat", "seed")
SECONDS = ("seconds_evaluation", "seconds")
#: Columns of each trial. The seconds, which differ from run to run, come last.
MEASURED = (
    *("iteration", "source", "peer", "score", "best", "simple_regret", "cumulative_regret"),
    *("parameters_received", "bytes_received", *SECONDS),
)
CHECKPOINTS = (0, 5, 10, 20, 30, 40, 50)
_LISTED = (10, 50)  # iterations whose regrets and leads are listed
SUMMARISED = ("best", "simple_regret", "cumulative_regret", "parameters_received")


def tidy(finished: Sequence[tuple[Run, Table]]) -> Table:
    """Return every trial of every run, one row each, with the labels of its run."""
    labels = {name: [_label(run, name) for run, _ in finished] for name in LABELS}
    tables = [Table({name: table[name] for name in MEASURED}) for _, table in finished]
    return Table.join(tables, **labels)


def _label(run: Run, name: str) -> Cell:
    value: Cell | None = getattr(run.arm if name in ARM else run, name)
    return math.nan if value is None else value


def digest(runs: Table) -> str:
    """Return a short digest of the results without the seconds.

    >>> digest(Table({"score": [0.5], "seconds": [1.0]}))
    '6179b065'
    """
    kept = Table({name: runs[name] for name in runs.columns if name not in SECONDS})
    return hashlib.sha256(kept.csv().encode()).hexdigest()[:8]


def elapsed(runs: Table) -> Column:
    """Return the CPU seconds since the start of each row's run, evaluations included.

    >>> columns = {"iteration": [0, 0, 1, 0], "seconds": 1.0 + np.arange(4)}
    >>> elapsed(Table(columns | {"seconds_evaluation": np.zeros(4)})).tolist()
    [1.0, 3.0, 6.0, 4.0]
    """
    spent: Column = runs["seconds"] + runs["seconds_evaluation"]
    iteration = runs["iteration"]
    starts = np.flatnonzero((iteration[1:] == 0) & (iteration[:-1] != 0)) + 1
    return np.concatenate([np.cumsum(run) for run in np.split(spent, starts)])


def summary(runs: Table) -> Table:
    """Summarise each arm at some iterations.

    Returns:
        Means over targets, repeats and seeds, each followed by its standard error.
    """
    iteration = runs["iteration"]
    ends = np.append(iteration[1:] != iteration[:-1], True)  # initial points share iteration 0
    kept = np.flatnonzero(ends & np.isin(iteration, CHECKPOINTS))
    by = ("experiment", "preset", *ARM, "iteration")
    cells = list(zip(*(runs[name][kept].tolist() for name in by), strict=True))
    measured = {name: runs[name] for name in SUMMARISED} | {"elapsed": elapsed(runs)}
    groups: dict[str, list[int]] = {}
    for i, label in enumerate(cells):
        groups.setdefault(repr(label), []).append(i)  # as text: NaN is not equal to itself
    rows: list[list[Cell]] = []
    for members in groups.values():
        values = (mean_and_error(column[kept[members]]) for column in measured.values())
        rows.append(
            [*cells[members[0]], len(members), *(float(x) for pair in values for x in pair)]
        )
    names = [name for column in measured for name in (column, f"{column}_error")]
    return Table.from_rows([*by, "runs", *names], rows)


def regrets(runs: Table) -> Table:
    """List simple and cumulative regret where the optimum is known.

    Returns:
        Means and standard errors over ``n`` functions, each the mean of its repeats.
    """
    rows = [
        [group.experiment, group.preset, *arm, at, *_regret_at(group, of_arm, at)]
        for group in groups_of(runs)
        if np.isfinite(group.curve("simple_regret")[:, -1]).all()
        for arm, of_arm in group.arms()
        for at in sorted({t for t in _LISTED if t < group.T} | {group.T})
    ]
    means = ("simple_regret", "simple_regret_error", "cumulative_regret", "cumulative_regret_error")
    return Table.from_rows(["experiment", "preset", *ARM, "iteration", "n", *means], rows)


def _regret_at(group: Runs, of_arm: Rows, iteration: int) -> list[Cell]:
    cells: list[Cell] = []
    for name in ("simple_regret", "cumulative_regret"):
        means = cluster_means(group.curve(name)[of_arm, iteration], group.clusters[of_arm])
        cells += map(float, mean_and_error(means))
    return [len(means), *cells]


def between_presets(runs: Table) -> Table:
    """Compare the default preset with the paper preset, for each method from the same points.

    Returns:
        The mean best score of both presets and the lead of the default preset, with its interval. A
        unit is a target with a repeat; methods with several M are averaged over them.
    """
    groups = {(group.experiment, group.preset): group for group in groups_of(runs)}
    rows = [
        [experiment, method, at, *compared]
        for experiment in REAL
        for method in get_args(Method)
        for at in _LISTED
        if (default := groups.get((experiment, "default"))) is not None
        and (paper := groups.get((experiment, "paper"))) is not None
        and (compared := _lead(default, paper, Side(method), at))
    ]
    columns = ("experiment", "method", "iteration", "default", "paper", "lead", "low", "high", "n")
    return Table.from_rows(columns, rows)


def _lead(default: Runs, paper: Runs, side: Side, at: int) -> list[Cell]:
    """The means of both, and the lead of the first; nothing if they share fewer than two starts."""
    ours, theirs = (_by_start(runs, side, at) for runs in (default, paper))
    shared = [start for start in ours if start in theirs]
    if len(shared) < 2:
        return []
    a, b = (np.array([found[start] for start in shared]) for found in (ours, theirs))
    sign, _ = scale(default)
    effect = paired(sign * a, sign * b)
    return [float(a.mean()), float(b.mean()), effect.value, effect.low, effect.high, effect.n]


def _by_start(runs: Runs, side: Side, at: int) -> dict[tuple[Cell, ...], float]:
    """The side's mean best score at an iteration, for each target and repeat."""
    rows = side.select(runs)
    starts = zip(*(runs.label(name)[rows].tolist() for name in UNIT), strict=True)
    found: dict[tuple[Cell, ...], list[float]] = {}
    for start, best in zip(starts, runs.best[rows, min(at, runs.T)].tolist(), strict=True):
        found.setdefault(start, []).append(best)
    return {start: float(np.mean(values)) for start, values in found.items()}
