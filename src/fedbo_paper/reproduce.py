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
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fedbo import files
from fedbo.table import Table
from fedbo_paper.data import MissingData
from fedbo_paper.experiments import results, runner
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.experiments.keys import key
from fedbo_paper.experiments.plan import Plan, plan
from fedbo_paper.experiments.published import Published
from fedbo_paper.experiments.spec import FIGURES, PRESET_NAMES, PRESETS, Job, Run, Selection
from fedbo_paper.harness.store import Store
from fedbo_paper.report import report
from fedbo_paper.report.contents import contents, marked


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the output folder, and what is missing from it and why."""

    folder: Path
    runs: Table
    findings: tuple[Finding, ...]
    digest: str
    missing: dict[str, str]


def left_out(
    selections: Sequence[Selection], data: str | os.PathLike[str] | None = None
) -> dict[str, str]:
    """Return the experiments whose data are missing, and what to do about it."""
    return _plans(selections, None if data is None else Path(data))[1]


def reproduce(
    selections: Sequence[Selection],
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: runner.Progress | None = None,
) -> Outcome:
    """Run what is requested and not finished yet, and write everything that the folder has.

    Args:
        selections: What to run, as `wanted` returns it.
        out: The output folder.
        data: The data folder, or None for the usual places.
        jobs: How many jobs run at once; None leaves it to `joblib.parallel_config`.
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
    if (folder / "selections.json").exists():
        _requested(folder / "selections.json")  # a damaged file is refused before anything runs
    store = Store(folder / "runs", partial(key, data=at))
    runner.run(plans, store, at, jobs, progress)
    everything = _remember(folder, [plan.selection for plan in plans])
    show = progress or (lambda stage, done, of: None)
    show("report", 0, 1)
    kept, unknown = _plans(everything, at)
    runs = results.tidy(_finished([run for plan in kept for run in plan.runs], store))
    _write(folder / "runs.csv", marked(runs, everything))
    _write(folder / "summary.csv", results.summary(runs))
    missing = unknown | _outdated(kept, runs) | missing
    page = contents(runs, everything, missing, _worths(kept, store), Published.load(at), folder)
    report.write(folder / "report.html", page)
    show("report", 1, 1)
    digest = results.digest(runs)
    return Outcome(folder=folder, runs=runs, findings=page.findings, digest=digest, missing=missing)


def _plans(selections: Sequence[Selection], data: Path | None) -> tuple[list[Plan], dict[str, str]]:
    plans, missing = [], {}
    for selection in selections:
        try:
            plans.append(plan(selection, data))
        except MissingData as error:
            missing[selection.experiment] = str(error)
    return plans, missing


def _outdated(plans: Sequence[Plan], runs: Table) -> dict[str, str]:
    """The experiments that were requested earlier, and whose runs can no longer be used."""
    return {
        one.experiment: f"its runs ({PRESET_NAMES[one.preset]}) were made with other code, data or "
        "libraries; run its command again"
        for one in (plan.selection for plan in plans)
        if not runs.where(experiment=one.experiment, preset=one.preset).height
    }


def _finished(runs: Sequence[Run], store: Store[Job]) -> list[tuple[Run, Table]]:
    """The runs that are finished, in an order that does not depend on when they finished."""
    tables = [(run, store.get(run)) for run in sorted(dict.fromkeys(runs), key=_order)]
    return [(run, table) for run, table in tables if table is not None]


def _worths(plans: Sequence[Plan], store: Store[Job]) -> list[tuple[str, str, Table]]:
    """What messages are worth, where that was diagnosed."""
    found = [
        (plan.selection.experiment, plan.selection.preset, store.get(diagnosis))
        for plan in plans
        for diagnosis in plan.diagnoses
    ]
    return [(name, preset, table) for name, preset, table in found if table is not None]


def _order(run: Run) -> tuple[Any, ...]:
    arm = run.arm
    methods = ("TS", "FTS", "RGPE", "TAF")
    return (
        *(run.experiment, PRESETS.index(run.preset), methods.index(arm.method), arm.every),
        *(arm.M, arm.N, arm.t_n, arm.d_n or 0.0, arm.power or 0.0),
        *(run.target, run.repeat, run.seed),
    )


def _remember(folder: Path, selections: Sequence[Selection]) -> list[Selection]:
    """Everything requested so far in this folder, the latest for each experiment and preset."""
    path = folder / "selections.json"
    kept = {}
    if path.exists():
        kept = {(one.experiment, one.preset): one for one in _requested(path)}
    for one in selections:
        old = kept.get((one.experiment, one.preset))
        if old is not None and old.like(one):
            both = tuple(f for f in FIGURES if f in old.figures or f in one.figures)
            one = msgspec.structs.replace(one, figures=both)
        kept[one.experiment, one.preset] = one
    everything = [kept[one] for one in sorted(kept)]
    files.write(path, msgspec.json.format(msgspec.json.encode(everything)))
    return everything


def _requested(path: Path) -> list[Selection]:
    try:
        requested = msgspec.json.decode(path.read_bytes(), type=list[Selection])
        _ = [selection.spec for selection in requested]
        return requested
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        raise files.FileRefused(
            f"{path} is damaged: {error}; delete it, and run the commands again whose results the "
            "report should show (finished jobs are kept)"
        ) from None


def _write(path: Path, table: Table) -> None:
    files.write(path, table.csv().encode())
