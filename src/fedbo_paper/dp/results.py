"""From a comparison to everything in the output folder.

=====================  ==========================================================================
``dp.csv``             each method at some rounds: means, differences to TS, intervals, ε
``dp-pairs.csv``       one release less what it is judged against, with intervals
``dp-curves.csv``      1 − best AUC so far of every field in every run
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
from typing import NamedTuple

import numpy as np
from rich.table import Table as Shown

from fedbo import files
from fedbo.table import Cell, Table
from fedbo_paper.dp import picture
from fedbo_paper.dp.comparison import CURVES, PAIRS, PUBLISHED_ROUND, Comparison, Job, perform
from fedbo_paper.experiments import runner
from fedbo_paper.harness import screen, store, workers
from fedbo_paper.harness.intervals import Floats, mean, paired

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


class Outcome(NamedTuple):
    """What a comparison gave: each method at some rounds, and one release less its rivals."""

    summary: Table
    pairs: Table


def reproduce(
    comparison: Comparison,
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    run: runner.RunCalls = workers.run,
    progress: runner.Progress = lambda stage, done, of: None,
) -> Outcome:
    """Run what is not finished yet, and write the tables and the figure.

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
    found = levels(comparison, runs)
    outcome = Outcome(summary(comparison, found), pairs(comparison, found))
    files.write(folder / "dp.csv", outcome.summary.csv().encode())
    files.write(folder / "dp-pairs.csv", outcome.pairs.csv().encode())
    files.write(folder / "dp-curves.csv", every_curve(comparison, runs).csv().encode())
    picture.draw(comparison, found, folder)
    return outcome


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
    seeds = range(comparison.first_seed, comparison.first_seed + comparison.seeds)
    return {
        curve.method.name: np.array(
            [
                loss(runs[comparison.job(curve, seed)], comparison.agents, comparison.rounds).mean(
                    axis=0
                )
                for seed in seeds
            ]
        )
        for curve in CURVES
    }


def summary(comparison: Comparison, found: Mapping[str, Floats]) -> Table:
    """Summarise each method at some rounds.

    Returns:
        The mean of 1 − AUC with its interval, the paired difference to the first method with its
        interval (below 0 is better), ε, and what was published for the last round.
    """
    base = found[CURVES[0].method.name]
    rows: list[list[Cell]] = []
    for curve in CURVES:
        level = found[curve.method.name]
        for t in _listed(comparison):
            own = mean(level[:, t])
            lead = paired(level[:, t], base[:, t])
            known = curve.published if t == PUBLISHED_ROUND else None
            effects = (own.value, own.low, own.high, lead.value, lead.low, lead.high)
            theirs = [math.nan if x is None else x for x in (curve.published_epsilon, known)]
            paid = curve.method.epsilon(comparison.rounds)
            rows.append([curve.method.name, t, comparison.seeds, *effects, paid, *theirs])
    columns = (
        *("method", "round", "seeds", "loss", "low", "high"),
        *("difference", "difference_low", "difference_high"),
        *("epsilon", "published_epsilon", "published"),
    )
    return Table.from_rows(columns, rows)


def pairs(comparison: Comparison, found: Mapping[str, Floats]) -> Table:
    """Compare each method of `PAIRS` with what it is judged against, at the same rounds.

    Returns:
        The paired difference of 1 − AUC with its interval; below 0, the method is better.
    """
    rows: list[list[Cell]] = []
    for method, against in PAIRS:
        for t in _listed(comparison):
            lead = paired(found[method][:, t], found[against][:, t])
            effect = (lead.value, lead.low, lead.high)
            rows.append([method, against, t, comparison.seeds, *effect])
    columns = ("method", "against", "round", "seeds")
    return Table.from_rows((*columns, "difference", "low", "high"), rows)


def _listed(comparison: Comparison) -> list[int]:
    return [t for t in LISTED if t < comparison.rounds] + [comparison.rounds]


def every_curve(comparison: Comparison, runs: Runs) -> Table:
    """Return the curve of every field in every run: method, seed, agent, round, loss."""
    tables, names, seeds = [], [], []
    for curve in CURVES:
        for seed in range(comparison.first_seed, comparison.first_seed + comparison.seeds):
            run = runs[comparison.job(curve, seed)]
            curves = loss(run, comparison.agents, comparison.rounds)
            agent, t = np.indices(curves.shape)
            columns = {"agent": agent.ravel(), "round": t.ravel(), "loss": curves.ravel()}
            tables.append(Table(columns))
            names.append(curve.method.name)
            seeds.append(seed)
    return Table.join(tables, method=names, seed=seeds)


def tables(outcome: Outcome) -> list[Shown]:
    """Return tables for a terminal: the last round, and what one release gained."""
    summary = outcome.summary
    last = summary.where(round=int(summary["round"].max()))
    title = f"1 − AUC after round {last['round'][0]}, mean of all fields ± half its 95 % interval"
    table = screen.table("method", "ε", "1 − AUC", "less TS", "published", title=title)
    labels = {curve.method.name: curve.label for curve in CURVES}
    for i, method in enumerate(last["method"].tolist()):
        at = {name: column[i] for name, column in last.items()}
        reach = at["difference_high"] - at["difference"]
        table.add_row(
            *(labels[method], _epsilon(at["epsilon"], at["published_epsilon"])),
            f"{at['loss']:.4f} ± {at['high'] - at['loss']:.4f}",
            f"{at['difference']:+.4f} ± {reach:.4f}" if i else "",
            "" if math.isnan(at["published"]) else f"{at['published']:.4f}",
        )
    return [table, _gains(outcome.pairs)]


def _gains(pairs: Table) -> Shown:
    """One release less what it is judged against, at a few rounds."""
    rounds = [t for t in (5, 20) if t in pairs["round"]] + [int(pairs["round"].max())]
    title = "Paired differences of 1 − AUC; below 0, the first method is better"
    table = screen.table("methods", *(f"after round {t}" for t in rounds), title=title)
    at = {(row[0], row[1], row[2]): row[4:] for row in zip(*pairs.values(), strict=True)}
    for method, against in PAIRS:
        effects = [at[method, against, t] for t in rounds]
        cells = [f"{value:+.4f} ± {high - value:.4f}" for value, _, high in effects]
        table.add_row(f"{method} less {against}", *cells)
    return table


def _epsilon(epsilon: float, published: float) -> str:
    """The accounted ε at the publication's δ, and the published one in brackets."""
    ours = "∞" if math.isinf(epsilon) else f"{epsilon:.2f}"
    return ours if math.isnan(published) else f"{ours} ({published:g})"
