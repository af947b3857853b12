"""Tables of the results: every trial, and a summary."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from fedbo.table import Cell, Column, Table
from fedbo_paper.experiments.plan import Run
from fedbo_paper.experiments.spec import ARM, LABELS, MEASURED, SECONDS
from fedbo_paper.harness.intervals import cluster_means, mean_and_error

CHECKPOINTS = (0, 5, 10, 20, 30, 40, 50)
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
        Means over targets, repeats and seeds, each followed by its standard error: over functions
        on synthetic ones, and else over runs.
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
        chosen = kept[members]
        # runs on one function resemble each other: its mean is the unit, as in claims and figures
        units = runs["target"][chosen] if cells[members[0]][0] == "synthetic" else None
        values = (
            mean_and_error(cluster_means(column[chosen], units)) for column in measured.values()
        )
        rows.append(
            [*cells[members[0]], len(members), *(float(x) for pair in values for x in pair)]
        )
    names = [name for column in measured for name in (column, f"{column}_error")]
    return Table.from_rows([*by, "runs", *names], rows)
