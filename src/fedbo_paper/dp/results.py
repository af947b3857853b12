"""From a comparison to everything in the output folder.

=====================  ==========================================================================
``dp.csv``             each method at some rounds: means, differences to its rival, intervals, ε
``dp.png``, ``.svg``   the figure
``runs/``              finished runs, which are not run again
=====================  ==========================================================================

=======  ==================================================================  ================
symbol   meaning                                                             shape
=======  ==================================================================  ================
R, N, T  seeds, fields, rounds                                               scalars
loss     1 − best AUC so far, after round 0, 1, …, T; 0 is the initial       (R, N, T + 1)
         points
level    mean loss of all fields: one number for each seed                   (R, T + 1)
=======  ==================================================================  ================

The agents of a run share the server and its noise, so the unit of all intervals is a run of the
whole federation, not a field. Intervals are 95 % t-intervals over seeds: they are about other
starts and other noise on these 29 fields, not about other fields. Differences are paired by seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from rich.table import Table as Shown

from fedbo import files
from fedbo.table import Cell, Table
from fedbo_paper.dp import picture
from fedbo_paper.dp.comparison import CURVES, PUBLISHED_ROUND, Comparison, Job, perform
from fedbo_paper.experiments import runner
from fedbo_paper.harness import screen, store, workers
from fedbo_paper.harness.intervals import Floats, mean, paired
from fedbo_paper.report import figures

#: Rounds that the summary lists, beside the last one.
LISTED = (0, 5, 10, 20, 30, 40, 50, 60)

#: The modules that decide the numbers of a run.
SOURCE = (
    "fedbo",
    "fedbo_paper.preset",
    "fedbo_paper.problems",
    *(f"fedbo_paper.dp.{name}" for name in ("comparison", "methods", "policy", "server")),
)
key = partial(store.key, source=SOURCE)

Runs = Mapping[Job, Table]


def reproduce(
    comparison: Comparison,
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    run: runner.RunCalls = workers.run,
    progress: runner.Progress = lambda stage, done, of: None,
) -> Table:
    """Run what is not finished yet, write the table and the figure, and return the table.

    Args:
        comparison: What to run.
        out: The output folder.
        data: The data folder, or None for the usual places.
        run: Runs calls: on all cores by default, on a cluster with `Cluster.run`.
        progress: Called after every run.

    Raises:
        MissingData: The landmine data are missing; the error says what to do.
        ModuleNotFoundError: The package dp-accounting is missing; the error says what to do.
    """
    folder, at = Path(out), None if data is None else Path(data)
    # What is missing is said before anything is run or written.
    comparison.problem.tasks(at)
    for curve in CURVES:
        curve.method.epsilon(comparison.rounds)
    folder.mkdir(parents=True, exist_ok=True)
    calls = {job: partial(perform, job, at) for job in comparison.jobs()}
    jobs: store.Store[Job] = store.Store(folder / "runs", key)
    runs = runner.finish("runs", calls, jobs, run, progress)
    by_method = levels(comparison, runs)
    table = summary(comparison, by_method)
    files.write(folder / "dp.csv", table.csv().encode())
    figures.save(picture.paint(comparison, by_method), folder / "dp")
    return table


def loss(run: Table, agents: int, rounds: int) -> Floats:
    """Return 1 − best AUC so far of each field of a run, (N, T + 1)."""
    curves = np.empty((agents, rounds + 1))
    for n in range(agents):
        own = run.where(agent=n)
        best = np.maximum.accumulate(own["score"].astype(np.float64))
        curves[n] = 1.0 - best[np.searchsorted(own["round"], np.arange(rounds + 1), "right") - 1]
    return curves


def levels(comparison: Comparison, runs: Runs) -> dict[str, Floats]:
    """Return the mean loss over fields, (R, T + 1), of each method by its name."""
    by_method: dict[str, list[Floats]] = {}
    for job in comparison.jobs():
        curves = loss(runs[job], job.agents, job.rounds)
        by_method.setdefault(job.method.name, []).append(curves.mean(axis=0))
    return {name: np.array(curves) for name, curves in by_method.items()}


def summary(comparison: Comparison, by_method: Mapping[str, Floats]) -> Table:
    """Summarise each method at some rounds.

    Returns:
        The mean of 1 − AUC with its interval, the paired difference to the method's rival with its
        interval (below 0 is better), ε, and what was published for the last round.
    """
    rounds = [t for t in LISTED if t < comparison.rounds] + [comparison.rounds]
    rows: list[list[Cell]] = []
    for curve in CURVES:
        level, rival = by_method[curve.method.name], by_method[curve.rival]
        for t in rounds:
            own, lead = mean(level[:, t]), paired(level[:, t], rival[:, t])
            published = curve.published if t == PUBLISHED_ROUND else None
            effects = (own.value, own.low, own.high, lead.value, lead.low, lead.high)
            paid = (curve.method.epsilon(comparison.rounds), curve.published_epsilon, published)
            numbers = (math.nan if x is None else x for x in (*effects, *paid))
            rows.append([curve.method.name, t, comparison.seeds, curve.rival, *numbers])
    columns = (
        *("method", "round", "seeds", "rival", "loss", "low", "high"),
        *("difference", "difference_low", "difference_high"),
        *("epsilon", "published_epsilon", "published"),
    )
    return Table.from_rows(columns, rows)


def shown(summary: Table) -> Shown:
    """Return the last round as a table for a terminal."""
    last = summary.where(round=int(summary["round"].max()))
    title = f"1 − AUC after round {last['round'][0]}, mean of all fields ± half its 95 % interval"
    table = screen.table("method", "ε", "1 − AUC", "less its rival", "", title=title)
    for i, curve in enumerate(CURVES):
        at = {name: column[i] for name, column in last.items()}
        epsilon = "∞" if math.isinf(at["epsilon"]) else f"{at['epsilon']:.2f}"
        own = f"{at['loss']:.4f} ± {at['high'] - at['loss']:.4f}"
        lead = f"{at['difference']:+.4f} ± {at['difference_high'] - at['difference']:.4f}"
        table.add_row(curve.label, epsilon, own, *((lead, curve.rival) if i else ("", "")))
    return table
