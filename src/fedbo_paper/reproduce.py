"""From the name of a figure to everything in the output folder.

=====================  ==========================================================================
``runs.csv``           every trial of every run
``summary.csv``        each arm at some iterations, with standard errors
``fig….png``, ``.svg`` the figures
``report.html``        the figures, and the paper's claims with their verdicts
``selections.json``    what was requested so far; presets and figures that are run one after the
                       other appear in one report
``runs/``              finished jobs, which are not run again
=====================  ==========================================================================
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fedbo import files
from fedbo.table import Table
from fedbo_paper.data import MissingData
from fedbo_paper.experiments import results, runner
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.experiments.plan import Job, Plan, Run, plan
from fedbo_paper.experiments.published import Published
from fedbo_paper.experiments.spec import FIGURES, PRESET_NAMES, PRESETS, Selection
from fedbo_paper.harness import workers
from fedbo_paper.harness.store import Store
from fedbo_paper.report.report import contents, page, stands_in


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the output folder, and what is missing from it and why."""

    folder: Path
    runs: Table
    findings: tuple[Finding, ...]
    digest: str
    missing: dict[str, str]


def reproduce(
    selections: Sequence[Selection],
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    run: runner.RunCalls = workers.run,
    progress: runner.Progress = lambda stage, done, of: None,
) -> Outcome:
    """Run what is requested and not finished yet, and write everything that the folder has.

    Args:
        selections: What to run, as `wanted` returns it.
        out: The output folder.
        data: The data folder, or None for the usual places.
        run: Runs calls: on all cores by default, on a cluster with `Cluster.run`.
        progress: Called after every job.

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
    earlier = _requested(folder / "selections.json")  # a damaged file is refused at once
    store: Store[Job] = Store(folder / "runs", runner.key)
    runner.run(plans, store, at, run, progress)
    everything = _together(earlier, [plan.selection for plan in plans])
    files.write(folder / "selections.json", msgspec.json.format(msgspec.json.encode(everything)))
    kept, unknown = _plans(everything, at)
    runs = results.tidy(_finished([run for plan in kept for run in plan.runs], store))
    marked = _marked(runs) if any(map(stands_in, everything)) else runs
    files.write(folder / "runs.csv", marked.csv().encode())
    files.write(folder / "summary.csv", results.summary(marked).csv().encode())
    missing = unknown | _outdated(everything, runs) | missing
    said = contents(runs, everything, missing, Published.load(at), folder)
    files.write(folder / "report.html", page(said).encode())
    digest = results.digest(runs)
    return Outcome(folder=folder, runs=runs, findings=said.findings, digest=digest, missing=missing)


def _plans(selections: Sequence[Selection], data: Path | None) -> tuple[list[Plan], dict[str, str]]:
    plans, missing = [], {}
    for selection in selections:
        try:
            plans.append(plan(selection, data))
        except MissingData as error:
            missing[selection.experiment] = str(error)
    return plans, missing


def _outdated(selections: Sequence[Selection], runs: Table) -> dict[str, str]:
    """The experiments that were requested earlier, and whose runs can no longer be used."""
    return {
        selection.experiment: f"its runs ({PRESET_NAMES[selection.preset]}) were made with other "
        "code or libraries; run its command again"
        for selection in selections
        if not runs.where(experiment=selection.experiment, preset=selection.preset).height
    }


def _finished(runs: Sequence[Run], store: Store[Job]) -> list[tuple[Run, Table]]:
    """The runs that are finished, in an order that does not depend on when they finished."""
    tables = [(run, store.get(run)) for run in sorted(dict.fromkeys(runs), key=_order)]
    return [(run, table) for run, table in tables if table is not None]


def _order(run: Run) -> tuple[Any, ...]:
    arm = run.arm
    methods = ("TS", "FTS", "RGPE", "TAF")
    return (
        *(run.experiment, PRESETS.index(run.preset), methods.index(arm.method), arm.every),
        *(arm.M, arm.N, arm.t_n, arm.d_n or 0.0, arm.power or 0.0),
        *(run.target, run.repeat, run.seed),
    )


def _marked(runs: Table) -> Table:
    """The runs, with those on made-up data renamed to say so."""
    columns = {name: runs[name] for name in runs.columns}
    names = ["glass-stand-in" if n == "glass" else n for n in runs["experiment"].tolist()]
    return Table(columns | {"experiment": names})


def _together(earlier: Sequence[Selection], selections: Sequence[Selection]) -> list[Selection]:
    """Everything requested so far, the latest for each experiment and preset."""
    kept = {(selection.experiment, selection.preset): selection for selection in earlier}
    for selection in selections:
        key = selection.experiment, selection.preset
        if key in kept and kept[key].like(selection):
            both = {*kept[key].figures, *selection.figures}
            figures = tuple(figure for figure in FIGURES if figure in both)
            selection = msgspec.structs.replace(selection, figures=figures)
        kept[key] = selection
    return [kept[key] for key in sorted(kept)]


def _requested(path: Path) -> list[Selection]:
    if not path.exists():
        return []
    try:
        requested = msgspec.json.decode(path.read_bytes(), type=list[Selection])
        _ = [selection.spec for selection in requested]
        return requested
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        raise files.FileRefused(
            f"{path} is damaged: {error}; delete it, and run the commands again whose results the "
            "report should show (finished jobs are kept)"
        ) from None
