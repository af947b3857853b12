"""What a report says: findings, figures, tables, and the text around them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fedbo import __version__
from fedbo.table import Table
from fedbo_paper.experiments import published as authors
from fedbo_paper.experiments import results
from fedbo_paper.experiments.claims import Finding, judge
from fedbo_paper.experiments.diagnostics import used
from fedbo_paper.experiments.published import Published
from fedbo_paper.experiments.spec import PRESET_NAMES, REAL, Selection, experiments
from fedbo_paper.harness.store import LIBRARIES, library_versions
from fedbo_paper.problems.problems import Glass
from fedbo_paper.report.choices import choices, commands
from fedbo_paper.report.figures import NAMES, Picture, draw
from fedbo_paper.report.notes import notes
from fedbo_paper.report.report import Contents, Grid
from fedbo_paper.report.sheet import Material

_TITLE = "Federated Bayesian optimisation via Thompson sampling: every experiment, with a verdict"

#: Figures and chapters that belong to another figure.
_ALSO = {"landmine-curves": "fig2", "diagnostics": "fig2"}

#: The experiment, the preset, and the table of `diagnostics.worth`.
Worths = Sequence[tuple[str, str, Table]]


def contents(
    runs: Table,
    selections: Sequence[Selection],
    missing: dict[str, str],
    worths: Worths,
    published: Published | None,
    folder: Path,
) -> Contents:
    """Collect everything that a report says, and draw its figures.

    Args:
        runs: The table of all trials.
        selections: What was requested; nothing else is judged or drawn.
        missing: Why an experiment could not be run, by its name.
        worths: What messages are worth, where that was diagnosed.
        published: The authors' runs, if they are known.
        folder: Where figures are written.
    """
    if not {"landmine", "published"} & {*runs["experiment"].tolist()}:
        published = None
    stand_in = any(map(_stands_in, selections))
    findings = [
        finding
        for finding in judge(runs, None if published is None else published.table())
        if selected(finding, selections)
    ]
    material = Material(
        runs=runs,
        published={} if published is None else published.curves,
        worth=tuple((f"{name}, {PRESET_NAMES[preset]}", table) for name, preset, table in worths),
        stand_in=stand_in,
    )
    figures: set[str] = {figure for selection in selections for figure in selection.figures}
    return Contents(
        title=_TITLE,
        lead=_lead(findings, selections, stand_in),
        settings=tuple(_settings(runs, selections, missing)),
        findings=tuple(_marked(finding) if stand_in else finding for finding in findings),
        pictures=_pictures(material, figures, folder),
        grids=tuple(_grids(runs, worths, published)),
        notes={
            chapter: paragraphs
            for chapter, paragraphs in notes(runs, worths, published).items()
            if _ALSO.get(chapter, chapter) in figures
        },
        choices=choices(selections),
        commands=commands(selections),
    )


def marked(runs: Table, selections: Sequence[Selection]) -> Table:
    """Return the runs, with experiments on made-up data renamed to say so."""
    if not any(map(_stands_in, selections)):
        return runs
    columns = {name: runs[name] for name in runs.columns}
    names = ["glass-stand-in" if n == "glass" else n for n in runs["experiment"].tolist()]
    return Table(columns | {"experiment": names})


def selected(finding: Finding, selections: Sequence[Selection]) -> bool:
    """Return whether a finding's figure was requested for its data and its preset."""
    chapter = finding.figure.rstrip("abcd") if finding.figure[:3] == "fig" else finding.figure
    return any(
        chapter in selection.figures
        and finding.experiment.removesuffix("-stand-in") in (selection.experiment, "all")
        and finding.preset in (selection.preset, "published")
        for selection in selections
    )


def _stands_in(selection: Selection) -> bool:
    problem = selection.spec.problem
    return isinstance(problem, Glass) and problem.stand_in


def _marked(finding: Finding) -> Finding:
    if finding.experiment != "glass":
        return finding
    return msgspec.structs.replace(finding, experiment="glass-stand-in")


def _pictures(material: Material, figures: set[str], folder: Path) -> dict[str, Picture]:
    """The figures that were requested; old files of other figures are removed."""
    chosen = [name for name in NAMES if _ALSO.get(name, name.partition("-")[0]) in figures]
    pictures = draw(material, folder, chosen)
    for name in NAMES:
        if name not in pictures:
            for ending in ("png", "svg"):
                (folder / f"{name}.{ending}").unlink(missing_ok=True)
    return pictures


def _lead(findings: Sequence[Finding], selections: Sequence[Selection], stand_in: bool) -> str:
    ours = [finding.verdict for finding in findings if finding.preset in PRESET_NAMES]
    held, failed = ours.count("holds"), ours.count("does not hold")
    text = (
        "We repeated the experiments of Dai, Low and Jaillet (NeurIPS 2020) and judged each claim "
        f"of the paper. Of {len(ours)} claims, counted once for each data set and preset, {held} "
        f"hold, {failed} do not hold, and {len(ours) - held - failed} are not decided by these "
        "data."
    )
    if any(selection.quick for selection in selections):
        text += " Some experiments were run with --quick: they only show that everything works."
    if stand_in:
        text += " The Google Glass data are made up and only stand in for the real data."
    return text


def _settings(
    runs: Table, selections: Sequence[Selection], missing: dict[str, str]
) -> list[tuple[str, str]]:
    rows = []
    for selection in selections:
        mine = runs.where(experiment=selection.experiment, preset=selection.preset)
        if mine.height:
            title = f"{selection.spec.title}, {PRESET_NAMES[selection.preset]}"
            rows.append((title, _what(selection, mine)))
    rows += [(experiments()[name].title, f"not run: {why}") for name, why in missing.items()]
    rows.append(("Results", f"{runs.height:,} trials, digest {results.digest(runs)}"))
    versions = {
        "fedbo": __version__,
        "Python": platform.python_version(),
        **library_versions(*LIBRARIES),
    }
    rows.append(("Software", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return rows


def _what(selection: Selection, runs: Table) -> str:
    spec = selection.spec
    problem = ", ".join(
        f"{name} {getattr(spec.problem, name)}" for name in spec.problem.__struct_fields__
    )
    seeds = f", seeds {', '.join(map(str, spec.seeds))}" if spec.seeds != (0,) else ""
    quick = "a small part only (--quick): " if selection.quick else ""
    stand_in = "made-up data in place of the real data: " if _stands_in(selection) else ""
    return (
        f"{stand_in}{quick}{runs.where(iteration=1).height} runs of {spec.iterations} iterations "
        f"({problem}; maximiser {selection.maximiser}{seeds})"
    )


def _grids(runs: Table, worths: Worths, published: Published | None) -> list[Grid]:
    """All tables that have rows."""
    summary = results.summary(runs).where(iteration=50)
    grid = Grid.from_table
    grids = [grid(results.regrets(runs), "fig1", _REGRET_TITLE, columns=_REGRET_COLUMNS)]
    for name in REAL:
        title = f"{experiments()[name].title}: best score after 50 iterations"
        some = summary.where(experiment=name)
        grids.append(grid(some, "fig2", title, note=_BEST_NOTE, columns=_BEST_COLUMNS))
    grids.append(grid(results.between_presets(runs), "fig2", _BETWEEN_TITLE, note=_BETWEEN_NOTE))
    if published is not None:
        title = "Our mean best AUC minus the published one"
        grids.append(grid(authors.compare(runs, published), "published", title))
        by_field = authors.compare_fields(runs, published)
        grids.append(grid(by_field, "published", f"{title}, field by field"))
    for name, preset, table in worths:
        title = f"{experiments()[name].title}, {PRESET_NAMES[preset]}: scores of a message's query"
        grids.append(grid(table, "diagnostics", title, note=_WORTH_NOTE))
    grids.append(grid(used(runs), "diagnostics", _USED_TITLE, note=_USED_NOTE))
    return [grid for grid in grids if grid.rows]


_REGRET_TITLE = "Simple and cumulative regret: mean and standard error over functions"
_REGRET_COLUMNS = (
    *("preset", "method", "M", "t_n", "d_n", "power", "iteration", "n"),
    *("simple_regret", "simple_regret_error", "cumulative_regret", "cumulative_regret_error"),
)
_BEST_COLUMNS = (
    *("preset", "method", "M", "every", "runs"),
    *("best", "best_error", "elapsed", "parameters_received"),
)
_BEST_NOTE = (
    "best: mean of the best score so far (an AUC, or a validation error, where lower is better); "
    "best error: its standard error over all runs; every: 1 if messages were sent before every "
    "iteration, 0 if they were sent once; elapsed: CPU seconds of a run, evaluations included; "
    "parameters received: in total."
)
_BETWEEN_TITLE = "What the paper's settings cost: the lead of the default preset"
_BETWEEN_NOTE = (
    "Both presets start from the same points. The columns default and paper are mean best scores, "
    "averaged over all M. The lead is positive where the default preset is better; low and high "
    "are the ends of its 95 % interval over targets × repeats."
)
_WORTH_NOTE = (
    "message, random, best: the target's score at the maximum of the message, at random points, "
    "and at the peer's best point; gain: how much better than random this is; height: the maximum "
    "of the message's function; highest: the best score that the message is based on. Nine out of "
    "ten values lie between low and high."
)
_USED_TITLE = "How many queries of a run followed a peer"
_USED_NOTE = (
    "mean and standard error: queries per run that followed a peer; none: share of runs without "
    "such a query; expected: the same two values as p_t predicts them."
)
