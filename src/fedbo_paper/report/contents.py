"""What a report says: findings, pictures, tables, and the words around them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from fedbo import __version__
from fedbo.table import Table
from fedbo_paper.experiments import published as beside
from fedbo_paper.experiments import results
from fedbo_paper.experiments.claims import Finding, judge
from fedbo_paper.experiments.diagnostics import used
from fedbo_paper.experiments.published import Published
from fedbo_paper.experiments.spec import PRESET_NAMES, REAL, Selection, experiments
from fedbo_paper.problems.problems import Glass
from fedbo_paper.report.choices import choices, commands
from fedbo_paper.report.figures import NAMES, Material, Picture, Worth, draw
from fedbo_paper.report.notes import notes
from fedbo_paper.report.report import Contents, Grid

_TITLE = "Federated Bayesian optimisation via Thompson sampling: every experiment, with a verdict"

#: What comes along with a figure.
_ALSO = {"landmine-curves": "fig2", "diagnostics": "fig2"}

#: What messages are worth: the experiment, the preset, and the table of `diagnostics.worth`.
Worths = Sequence[tuple[str, str, Table]]


def contents(
    runs: Table,
    selections: Sequence[Selection],
    missing: dict[str, str],
    worths: Worths,
    published: Published | None,
    folder: Path,
) -> Contents:
    """Everything that the runs say; pictures are written to the folder on the way."""
    if not {"landmine", "published"} & {*runs["experiment"].tolist()}:
        published = None
    findings = [
        finding
        for finding in judge(runs, None if published is None else published.table())
        if selected(finding, selections)
    ]
    material = Material(
        runs=runs,
        published={} if published is None else published.curves,
        worth=tuple(one for name, preset, table in worths for one in _worth(name, preset, table)),
        stand_in=any(_stands_in(selection) for selection in selections),
    )
    return Contents(
        title=_TITLE,
        lead=_lead(findings, selections),
        settings=tuple(_settings(runs, selections, missing)),
        findings=tuple(_marked(finding, material.stand_in) for finding in findings),
        pictures=_pictures(material, selections, folder),
        grids=tuple(_grids(runs, worths, published)),
        notes={
            chapter: said
            for chapter, said in notes(runs, worths, published).items()
            if _ALSO.get(chapter, chapter) in _figures(selections)
        },
        choices=choices(selections),
        commands=commands(selections),
    )


def marked(runs: Table, selections: Sequence[Selection]) -> Table:
    """The runs, with made-up data called so in the column of experiments."""
    if not any(map(_stands_in, selections)):
        return runs
    columns = {name: runs[name] for name in runs.columns}
    names = ["glass-stand-in" if n == "glass" else n for n in runs["experiment"].tolist()]
    return Table(columns | {"experiment": names})


def selected(finding: Finding, selections: Sequence[Selection]) -> bool:
    """Whether the figure that a finding is about was asked for, of these data and this preset."""
    chapter = finding.figure.rstrip("abcd") if finding.figure[:3] == "fig" else finding.figure
    return any(
        chapter in selection.figures
        and finding.experiment.removesuffix("-stand-in") in (selection.experiment, "all")
        and finding.preset in (selection.preset, "published")
        for selection in selections
    )


def _figures(selections: Sequence[Selection]) -> set[str]:
    return {figure for selection in selections for figure in selection.figures}


def _pictures(
    material: Material, selections: Sequence[Selection], folder: Path
) -> dict[str, Picture]:
    """The figures that were asked for; pictures of others are old, and removed."""
    wanted = _figures(selections)
    chosen = [name for name in NAMES if _ALSO.get(name, name.partition("-")[0]) in wanted]
    pictures = draw(material, folder, chosen)
    for name in NAMES:
        if name not in pictures:
            for ending in ("png", "svg"):
                (folder / f"{name}.{ending}").unlink(missing_ok=True)
    return pictures


def _marked(finding: Finding, stand_in: bool) -> Finding:
    if not stand_in or finding.experiment != "glass":
        return finding
    return msgspec.structs.replace(finding, experiment="glass-stand-in")


def _lead(findings: Sequence[Finding], selections: Sequence[Selection]) -> str:
    quick = any(selection.quick for selection in selections)
    small = " Parts of it are small (--quick) and only show that everything works." if quick else ""
    made_up = any(map(_stands_in, selections))
    invented = " The Google Glass data are made up: they only stand in." if made_up else ""
    ours = [finding.verdict for finding in findings if finding.preset in PRESET_NAMES]
    held, failed = ours.count("holds"), ours.count("does not hold")
    return (
        "The experiments of Dai, Low and Jaillet (NeurIPS 2020), run anew, and what they say of "
        f"each claim of the paper. Of {len(ours)} claims, counted once for each data set and "
        f"preset, {held} hold, {failed} do not, and {len(ours) - held - failed} are not decided by "
        f"these data.{small}{invented}"
    )


def _settings(
    runs: Table, selections: Sequence[Selection], missing: dict[str, str]
) -> list[tuple[str, str]]:
    rows = []
    for selection in selections:
        mine = runs.where(experiment=selection.experiment, preset=selection.preset)
        if len(mine):
            title = f"{selection.spec.title}, {PRESET_NAMES[selection.preset]}"
            rows.append((title, _what(selection, mine)))
    rows += [(experiments()[name].title, f"not run: {why}") for name, why in missing.items()]
    rows.append(("Results", f"{len(runs):,} trials, digest {results.digest(runs)}"))
    rows.append(("Software", ", ".join(f"{name} {version}" for name, version in _VERSIONS)))
    return rows


def _what(selection: Selection, runs: Table) -> str:
    spec = selection.spec
    count = len({*map(repr, zip(*(runs[name].tolist() for name in results.LABELS), strict=True))})
    problem = ", ".join(
        f"{name} {getattr(spec.problem, name)}" for name in spec.problem.__struct_fields__
    )
    seeds = f", seeds {', '.join(map(str, spec.seeds))}" if spec.seeds != (0,) else ""
    quick = "a small part only (quick): " if selection.quick else ""
    stand_in = "made-up data that only stand in for the real: " if _stands_in(selection) else ""
    return (
        f"{stand_in}{quick}{count} runs of {spec.iterations} iterations ({problem}; "
        f"maximiser {selection.maximiser}{seeds})"
    )


def _stands_in(selection: Selection) -> bool:
    problem = selection.spec.problem
    return isinstance(problem, Glass) and problem.stand_in


def _worth(experiment: str, preset: str, table: Table) -> tuple[Worth, ...]:
    return Worth.of(table, panel=f"{experiment}, {PRESET_NAMES[preset]}")


def _grids(runs: Table, worths: Worths, published: Published | None) -> list[Grid]:
    grids = []
    regret = results.regrets(runs)
    if len(regret):
        title = "Simple and cumulative regret: mean and standard error over functions"
        grids.append(Grid.from_table(regret, "fig1", title, columns=_REGRETS))
    best = results.summary(runs)
    best = Table({name: best[name][best["iteration"] == 50] for name in _BEST})
    for name in REAL:
        if len(some := best.where(experiment=name)):
            title = f"{experiments()[name].title}: best score after 50 iterations"
            grids.append(Grid.from_table(some, "fig2", title, note=_BEST_NOTE, columns=_BEST[1:]))
    between = results.between_presets(runs)
    if len(between):
        title = "What the paper's settings cost: the default preset's lead, from the same points"
        grids.append(Grid.from_table(between, "fig2", title, note=_BETWEEN))
    if published is not None:
        compared = beside.compare(runs, published)
        if len(compared):
            title = "Difference of the mean best AUC to the published one"
            grids.append(Grid.from_table(compared, "published", title))
            by_field = beside.compare_fields(runs, published)
            grids.append(Grid.from_table(by_field, "published", "The same, field by field"))
    for name, preset, table in worths:
        title = (
            f"{experiments()[name].title}, {PRESET_NAMES[preset]}: what a message's query scores"
        )
        grids.append(Grid.from_table(table, "diagnostics", title, note=_WORTH_NOTE))
    following = used(runs)
    if len(following):
        title = "How many of a run's queries followed a peer"
        grids.append(Grid.from_table(following, "diagnostics", title, note=_USED_NOTE))
    return grids


_REGRETS = (
    *("preset", "method", "M", "t_n", "d_n", "power", "iteration", "n"),
    *("simple_regret", "simple_regret_error", "cumulative_regret", "cumulative_regret_error"),
)
_VERSIONS = (
    ("fedbo", __version__),
    ("Python", platform.python_version()),
    *((name, version(name)) for name in ("numpy", "scipy", "scikit-learn")),
)
_BEST_NOTE = (
    "best: mean of the best score so far (an AUC, or a validation error, where less is better), "
    "and its standard error over all runs; every: 1 where messages were sent before every "
    "iteration; elapsed: CPU seconds of a run, evaluations included; parameters received: in all."
)
_USED_NOTE = (
    "mean and standard error: queries a run that followed a peer; none: share of runs without any; "
    "expected: what p_t lets one expect."
)
_WORTH_NOTE = (
    "message, random, best: the target's score at the message's maximum, at random points, at the "
    "peer's best point; gain: how much better than random; height: the message's function at its "
    "maximum; highest: the best score that went into it. Nine of ten values lie from low to high."
)
_BETWEEN = (
    "Best score, averaged over all M; the lead is positive where the default preset is better, "
    "with its 95 % interval over targets × repeats."
)
_BEST = (
    *("experiment", "preset", "method", "M", "every", "runs"),
    *("best", "best_error", "elapsed", "parameters_received"),
)
