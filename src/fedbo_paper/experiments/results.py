"""Tables of what was run: every trial, and a summary."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from fedbo.table import Cell, Column, Table
from fedbo_paper.experiments.spec import Run
from fedbo_paper.harness.averages import mean_and_error

ARM = ("method", "M", "N", "t_n", "d_n", "power", "every")
LABELS = ("experiment", "preset", *ARM, "target", "repeat", "seed")
SECONDS = ("seconds_evaluation", "seconds")
#: Of each trial; the seconds come last, for they are never twice the same.
MEASURED = (
    *("iteration", "source", "peer", "score", "best", "simple_regret", "cumulative_regret"),
    *("parameters_received", "bytes_received", *SECONDS),
)
CHECKPOINTS = (0, 5, 10, 20, 30, 40, 50)
SUMMARISED = ("best", "simple_regret", "cumulative_regret", "parameters_received")


def tidy(finished: Sequence[tuple[Run, Table]]) -> Table:
    """Every trial of every run, one row each, behind what the run is."""
    labels = {name: [_label(run, name) for run, _ in finished] for name in LABELS}
    tables = [Table({name: table[name] for name in MEASURED}) for _, table in finished]
    return Table.join(tables, **labels)


def _label(run: Run, name: str) -> Cell:
    value: Cell | None = getattr(run.arm if name in ARM else run, name)
    return math.nan if value is None else value


def digest(runs: Table) -> str:
    """What tells these results from others; it leaves out the seconds.

    >>> digest(Table({"score": [0.5], "seconds": [1.0]}))
    '6179b065'
    """
    kept = Table({name: runs[name] for name in runs.columns if name not in SECONDS})
    return hashlib.sha256(kept.csv().encode()).hexdigest()[:8]


def elapsed(runs: Table) -> Column:
    """CPU seconds since the start of each row's run, evaluations included.

    >>> columns = {"iteration": [0, 0, 1, 0], "seconds": 1.0 + np.arange(4)}
    >>> elapsed(Table(columns | {"seconds_evaluation": np.zeros(4)})).tolist()
    [1.0, 3.0, 6.0, 4.0]
    """
    spent: Column = runs["seconds"] + runs["seconds_evaluation"]
    iteration = runs["iteration"]
    starts = np.flatnonzero((iteration[1:] == 0) & (iteration[:-1] != 0)) + 1
    return np.concatenate([np.cumsum(run) for run in np.split(spent, starts)])


def summary(runs: Table) -> Table:
    """Each arm at some iterations: means over targets, repeats and seeds, with standard errors."""
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
        values = [column[kept[members]] for column in measured.values()]
        rows.append([*cells[members[0]], len(members), *map(float, _means_and_errors(values))])
    names = [name for column in measured for name in (column, f"{column}_error")]
    return Table.from_rows([*by, "runs", *names], rows)


def _means_and_errors(columns: Sequence[Column]) -> list[Column]:
    return [figure for column in columns for figure in mean_and_error(column)]
