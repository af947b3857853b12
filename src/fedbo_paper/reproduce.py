"""From the name of a figure to everything in the output folder.

=====================  ==========================================================================
``runs.csv``           every trial of every run
``summary.csv``        each arm at some iterations, with standard errors
``published.csv``      each method beside its published curve
``fig….png``, ``.pdf`` the figures, also as ``.svg``
``report.html``        the figures, and the paper's claims with their verdicts
``runs/``              finished jobs, which are not run again
=====================  ==========================================================================
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fedbo import files
from fedbo.table import Table
from fedbo_paper.data import MissingData
from fedbo_paper.experiments import results, runner
from fedbo_paper.experiments.claims import Finding, judge
from fedbo_paper.experiments.plan import Job, Plan, Run, plan
from fedbo_paper.experiments.published import Published, beside, by_field
from fedbo_paper.experiments.spec import PRESETS, Selection
from fedbo_paper.harness import workers
from fedbo_paper.harness.store import Store
from fedbo_paper.report.figures import FIGURES, draw
from fedbo_paper.report.report import (
    beside_published,
    by_field_published,
    page,
    provenance,
    settings,
    stands_in,
)
from fedbo_paper.report.sheet import Material


class Outcome(NamedTuple):
    """What came of the requested runs, and what is missing and why.

    Small parts of experiments (``--quick``) have no findings.
    """

    runs: Table
    findings: list[Finding]
    digest: str
    missing: dict[str, str]
    comparison: Table  # with the published runs, without rows if there are none


def reproduce(
    selections: Sequence[Selection],
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    run: runner.RunCalls = workers.run,
    progress: runner.Progress = lambda stage, done, of: None,
    command: str = "fedbo_paper.reproduce.reproduce",
) -> Outcome:
    """Run what is requested and not finished yet, and write the report on it.

    Args:
        selections: What to run, as `wanted` returns it.
        out: The output folder.
        data: The data folder, or None for the usual places.
        run: Runs calls: on all cores by default, on a cluster with `Cluster.run`.
        progress: Called after every job.
        command: How this was called, for the report.

    Returns:
        The outcome. It names the experiments that were left out because their data are missing.

    Raises:
        MissingData: The data of all experiments are missing; the error says what to fetch.
    """
    folder, at = Path(out), None if data is None else Path(data)
    plans, missing = _plans(selections, at)
    if not plans:
        raise MissingData("\n".join(missing.values()))
    folder.mkdir(parents=True, exist_ok=True)
    store: Store[Job] = Store(folder / "runs", runner.key)
    runner.run(plans, store, at, run, progress)
    finished = sorted({run for plan in plans for run in plan.runs}, key=_order)
    tables = [(run, table) for run in finished if (table := store.get(run)) is not None]
    runs = results.tidy(tables)
    done = [plan.selection for plan in plans]
    is_made_up = any(map(stands_in, done))
    marked = _marked(runs) if is_made_up else runs
    files.write(folder / "runs.csv", marked.csv().encode())
    files.write(folder / "summary.csv", results.summary(marked).csv().encode())
    is_quick = any(selection.quick for selection in done)
    findings = [] if is_quick else [f for f in judge(runs) if _is_selected(f, done)]
    if is_made_up:
        findings = [_said_to_be_made_up(finding) for finding in findings]
    published = Published.load(at) or Published(curves={}, inits={})
    comparison = beside(runs.where(experiment="published"), published)
    if comparison.height:
        files.write(folder / "published.csv", comparison.csv().encode())
    figures = {figure for selection in done for figure in selection.figures}
    pictures = draw(
        Material(runs=runs, published=published.curves, stand_in=is_made_up),
        folder,
        [name for name in FIGURES if name.partition("-")[0] in figures],
    )
    html = page(
        [*provenance(command), *settings(runs, done, missing)],
        findings,
        list(pictures.values()),
        [
            beside_published(comparison),
            by_field_published(by_field(runs.where(experiment="published"), published)),
        ]
        if comparison.height
        else [],
        note="A part of the experiments (--quick): it decides no claim." * is_quick,
    )
    files.write(folder / "report.html", html.encode())
    return Outcome(runs, findings, results.digest(runs), missing, comparison)


def _is_selected(finding: Finding, selections: Sequence[Selection]) -> bool:
    """Return whether a finding's figure was requested for its data and its preset."""
    return any(
        finding.figure.startswith(selection.figures)
        and (finding.experiment, finding.preset) == (selection.experiment, selection.preset)
        for selection in selections
    )


def _plans(selections: Sequence[Selection], data: Path | None) -> tuple[list[Plan], dict[str, str]]:
    plans, missing = [], {}
    for selection in selections:
        try:
            plans.append(plan(selection, data))
        except MissingData as error:
            missing[selection.experiment] = str(error)
    return plans, missing


def _order(run: Run) -> tuple[Any, ...]:
    arm = run.arm
    methods = ("TS", "FTS", "RGPE", "TAF")
    return (
        *(run.experiment, PRESETS.index(run.preset), methods.index(arm.method), arm.every),
        *(arm.M, arm.N, arm.t_n, arm.d_n or 0.0, arm.power or 0.0),
        *(run.target, run.repeat, run.seed),
    )


def _said_to_be_made_up(finding: Finding) -> Finding:
    if finding.experiment != "glass":
        return finding
    return msgspec.structs.replace(finding, experiment="glass (made-up data)")


def _marked(runs: Table) -> Table:
    """The runs, with those on made-up data renamed to say so."""
    columns = {name: runs[name] for name in runs.columns}
    names = ["glass-stand-in" if n == "glass" else n for n in runs["experiment"].tolist()]
    return Table(columns | {"experiment": names})
