"""From a comparison to everything in the output folder.

=====================  ==========================================================================
``dp.csv``             each method at some rounds: means, differences to its rival, intervals, ε
``dp.png``, ``.pdf``   the figure, also as ``.svg``
``dp.html``            the report: what was run, the table and the figure
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

import hashlib
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
from fedbo_paper.dp.methods import M
from fedbo_paper.experiments import runner
from fedbo_paper.harness import screen, store, workers
from fedbo_paper.harness.intervals import Floats, mean, paired
from fedbo_paper.report import figures
from fedbo_paper.report.report import Listing, page, provenance

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

_CAPTION = (
    "(a) 1 − AUC against rounds, from the same initial points; shaded: 95 % intervals of TS and of "
    "one release. (b) At the last round, beside the published values."
)
_NOTE = "ε is accounted for at δ = 29^−1.1. "
_SCORES = (
    "Levels differ from the published ones, whose scores are noisy probabilities; differences "
    "between methods are what to compare."
)


def reproduce(
    comparison: Comparison,
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    run: runner.RunCalls = workers.run,
    progress: runner.Progress = lambda stage, done, of: None,
    command: str = "fedbo_paper.dp.results.reproduce",
) -> Table:
    """Run what is not finished yet, write table, figure and report, and return the table.

    Args:
        comparison: What to run.
        out: The output folder.
        data: The data folder, or None for the usual places.
        run: Runs calls: on all cores by default, on a cluster with `Cluster.run`.
        progress: Called after every run.
        command: How this was called, for the report.

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
    svg = figures.save(picture.paint(comparison, by_method), folder / "dp").decode()
    html = page(
        [*provenance(command, "dp-accounting"), *settings(comparison, table)],
        pictures=[figures.Picture(name="dp", title="DP-FTS-DE", caption=_CAPTION, svg=svg)],
        listings=[listing(table, _NOTE + _SCORES * (comparison.problem.scoring == "decision"))],
        title="DP-FTS-DE (Dai, Low and Jaillet, NeurIPS 2021) and one private release",
    )
    files.write(folder / "dp.html", html.encode())
    return table


def digest(table: Table) -> str:
    """Return a short digest of the table; the same command gives the same."""
    return hashlib.sha256(table.csv().encode()).hexdigest()[:8]


def settings(comparison: Comparison, table: Table) -> list[tuple[str, str]]:
    """Describe what was compared, as (name, text)."""
    seeds = comparison.seeds
    what = (
        f"{len(CURVES)} methods, each with {seeds} seeds (from {comparison.first_seed} on): "
        f"{comparison.agents} landmine fields with 10 initial points each, {comparison.rounds} "
        f"rounds; M = {M}; p_t = 1 − 1/t; P_N uniform; AUC by {comparison.problem.scoring}, box "
        f"{comparison.problem.box}. Differences are paired by seed, intervals are over seeds."
    )
    return [("Runs", what), ("Results", f"{len(CURVES) * seeds} runs, digest {digest(table)}")]


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


def listing(summary: Table, note: str = "") -> Listing:
    """Return the last round as a table of the report, and of a terminal."""
    last = summary.where(round=int(summary["round"].max()))
    title = f"1 − AUC after round {last['round'][0]}, mean of all fields ± half its 95 % interval"
    rows = []
    for i, curve in enumerate(CURVES):
        at = {name: column[i] for name, column in last.items()}
        own = f"{at['loss']:.4f} ± {at['high'] - at['loss']:.4f}"
        lead = f"{at['difference']:+.4f} ± {at['difference_high'] - at['difference']:.4f}"
        published = "" if math.isnan(at["published"]) else f"{at['published']:.4f}"
        versus = (lead, curve.rival) if i else ("", "")
        theirs = "" if curve.published_epsilon is None else f"{curve.published_epsilon:g}"
        rows.append([curve.label, _epsilon(at["epsilon"]), own, *versus, published, theirs])
    columns = ("method", "ε", "1 − AUC", "less its rival", "rival", "published", "published ε")
    return Listing(title=title, note=note, columns=columns, rows=rows)


def _epsilon(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.2f}"


def shown(summary: Table) -> Shown:
    """Return the last round as a table for a terminal."""
    last = listing(summary)
    table = screen.table(*last.columns[:4], title=last.title)
    for row in last.rows:
        *cells, rival = row[:5]
        table.add_row(*cells[:3], f"{cells[3]} {rival}".strip())
    return table
