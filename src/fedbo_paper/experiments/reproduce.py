"""From the name of a figure to everything in the output folder.

=====================  ==========================================================================
``runs.csv``           every trial of every run
``summary.csv``        each arm at some iterations, with standard errors
``fig….png``, ``.svg`` the pictures
``report.html``        the pictures, the paper's claims and what became of them
``selections.json``    what was asked for so far: a folder collects, so that presets and figures
                       that were run one after the other meet in one report
``runs/``              finished jobs, for the next time
=====================  ==========================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fedbo import files
from fedbo.table import Table
from fedbo_paper.data import MissingData
from fedbo_paper.experiments import results, runner
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.experiments.plan import Plan, plan
from fedbo_paper.experiments.published import Published
from fedbo_paper.experiments.spec import (
    FIGURES,
    PRESETS,
    Experiment,
    Figure,
    Maximiser,
    Preset,
    Run,
    Selection,
    experiments,
)
from fedbo_paper.harness.store import Store
from fedbo_paper.problems.synthetic import Synthetic
from fedbo_paper.report import report
from fedbo_paper.report.contents import contents, marked


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the output folder, and what could not be run for want of data."""

    folder: Path
    runs: Table
    findings: tuple[Finding, ...]
    digest: str
    missing: dict[str, str]


def wanted(
    names: Sequence[str],
    *,
    only: str | None = None,
    presets: Sequence[Preset] = ("paper",),
    quick: bool = False,
    seed: int = 0,
    maximiser: Maximiser | None = None,
    problem: Mapping[str, Any] | None = None,
) -> list[Selection]:
    """What to run for these figures, of all experiments or of only one.

    >>> [(s.experiment, s.preset) for s in wanted(["fig1"])]
    [('synthetic', 'paper')]
    >>> wanted(["fig5"])
    Traceback (most recent call last):
    ValueError: there is no 'fig5', expected fig1, fig2, fig3, fig4, appendix, published or all
    """
    figures, given = _figures(names), dict(problem or {})
    chosen, taken = [], set()
    for name, spec in experiments().items():
        shown = tuple(figure for figure in figures if figure in spec.targets)
        if not shown or only not in (None, name):
            continue
        for preset in presets:
            if preset in spec.presets:
                options = {k: v for k, v in given.items() if k in spec.problem.__struct_fields__}
                taken |= {*options}
                selection = Selection(
                    experiment=name,
                    preset=preset,
                    figures=shown,
                    quick=quick,
                    seed=seed,
                    maximiser=_maximiser(spec, maximiser),
                    problem=options,
                )
                chosen.append(selection)
    if not chosen:
        raise ValueError(_nothing(figures, only, presets))
    if unused := [name for name in given if name not in taken]:
        which = ", ".join(dict.fromkeys(selection.experiment for selection in chosen))
        raise ValueError(f"{', '.join(unused)}: no option of {which}; leave it out")
    return chosen


def _maximiser(spec: Experiment, asked: Maximiser | None) -> Maximiser:
    """The one that was asked for, else the experiment's own; listed points are enumerated."""
    own = spec.maximiser or "refine"
    return own if asked is None or isinstance(spec.problem, Synthetic) else asked


def _figures(names: Sequence[str]) -> tuple[Figure, ...]:
    for name in names:
        if name not in (*FIGURES, "all"):
            raise ValueError(f"there is no {name!r}, expected {', '.join(FIGURES)} or all")
    return tuple(figure for figure in FIGURES if figure in names or "all" in names)


def _nothing(figures: Sequence[str], only: str | None, presets: Sequence[str]) -> str:
    among = [name for name, spec in experiments().items() if {*figures} & {*spec.targets}]
    which = "" if only is None else f" of {only!r}"
    return (
        f"{', '.join(figures)} has nothing{which} with the preset {', '.join(presets)}; "
        f"its experiments are {', '.join(among)} ('published' has the paper's preset only)"
    )


def left_out(
    selections: Sequence[Selection], data: str | os.PathLike[str] | None = None
) -> dict[str, str]:
    """The experiments whose data are not there, and what to do about it."""
    return _plans(selections, None if data is None else Path(data))[1]


def reproduce(
    selections: Sequence[Selection],
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: runner.Progress | None = None,
) -> Outcome:
    """Run what is wanted and not there yet, and write all that the folder now has.

    ``jobs`` is the number of processes; None leaves it to `joblib.parallel_config`. An experiment
    whose data are not there is left out and said to be; if nothing is left, `MissingData` says what
    to fetch.
    """
    folder, at = Path(out), None if data is None else Path(data)
    plans, missing = _plans(selections, at)
    if not plans:
        raise MissingData("\n".join(missing.values()))
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "selections.json").exists():
        _asked(folder / "selections.json")  # say it now if that is damaged
    store = Store(folder / "runs", at)
    runner.run(plans, store, at, jobs, progress)
    everything = _remember(folder, [plan.selection for plan in plans])
    show = progress or (lambda stage, done, of: None)
    show("report", 0, 1)
    kept, unknown = _plans(everything, at)
    runs = results.tidy(_finished([run for plan in kept for run in plan.runs], store))
    _write(folder / "runs.csv", marked(runs, everything))
    _write(folder / "summary.csv", results.summary(runs))
    missing = unknown | missing
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


def _finished(runs: Sequence[Run], store: Store) -> list[tuple[Run, Table]]:
    """Those of the runs that are done, in an order of their own."""
    tables = [(run, store.get(run)) for run in sorted(dict.fromkeys(runs), key=_order)]
    return [(run, table) for run, table in tables if table is not None]


def _worths(plans: Sequence[Plan], store: Store) -> list[tuple[str, str, Table]]:
    """What messages are worth, where that was found out."""
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
    """What was ever asked for in this folder, the latest of each experiment and preset."""
    path = folder / "selections.json"
    kept = {}
    if path.exists():
        kept = {(one.experiment, one.preset): one for one in _asked(path)}
    for one in selections:
        old = kept.get((one.experiment, one.preset))
        if old is not None and old.like(one):
            both = tuple(f for f in FIGURES if f in old.figures or f in one.figures)
            one = msgspec.structs.replace(one, figures=both)
        kept[one.experiment, one.preset] = one
    everything = [kept[key] for key in sorted(kept)]
    files.write(path, msgspec.json.format(msgspec.json.encode(everything)))
    return everything


def _asked(path: Path) -> list[Selection]:
    try:
        asked = msgspec.json.decode(path.read_bytes(), type=list[Selection])
        _ = [selection.spec for selection in asked]
        return asked
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        raise files.FileRefused(
            f"{path} does not say what was asked for in this folder: {error}; delete it, and run "
            "what the report is to have again (finished jobs are kept)"
        ) from None


def _write(path: Path, table: Table) -> None:
    files.write(path, table.csv().encode())
