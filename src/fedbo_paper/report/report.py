"""The report: one HTML page with every verdict, and each figure with its numbers.

`page` fills the template ``report.html.jinja``. The page is self-contained: figures and style are
embedded, and it has no script. A claim is judged once for each data set and preset, and presets are
shown side by side.
"""

from __future__ import annotations

import base64
import math
import platform
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from fedbo import __version__
from fedbo.table import Cell, Table
from fedbo_paper.experiments import results
from fedbo_paper.experiments.claims import Finding, judge
from fedbo_paper.experiments.published import Published
from fedbo_paper.experiments.spec import PRESET_NAMES, REAL, Selection, experiments
from fedbo_paper.harness.store import LIBRARIES, library_versions
from fedbo_paper.problems.problems import Glass
from fedbo_paper.report.figures import FIGURES, Material, Picture, draw

_UNDERSCORE = re.compile(r"(?<=\w\w)_|_(?=\w\w)")  # between words, not in t_n
_SUBSCRIPT = re.compile(r"\b([a-zA-Zωφ])_([a-zA-Z0-9])\b")
_MINUS = re.compile(r"(?<!\w)-(?=\d)")
_CODE = re.compile(r"`([^`]+)`")


class Grid(NamedTuple):
    """A table of the report, in its chapter, a key of `CHAPTERS`."""

    chapter: str
    title: str
    table: Table

    def heads(self) -> list[str]:
        """The names of the columns.

        >>> Grid("fig1", "Regret", Table({"t_n": [40], "simple_regret": [0.5]})).heads()
        ['t_n', 'simple regret']
        """
        return [_UNDERSCORE.sub(" ", name) for name in self.table]

    def rows(self) -> list[list[str]]:
        """Each row's cells as text."""
        columns = ([_cell(cell) for cell in column.tolist()] for column in self.table.values())
        return [list(row) for row in zip(*columns, strict=True)]


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report says.

    Args:
        lead: One or two sentences under the title.
        settings: What was run, as (name, value).
        findings: The claims with their verdicts.
        pictures: Figures by name, as `figures.draw` returns them.
        grids: Tables, each in its chapter.
    """

    lead: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()
    pictures: dict[str, Picture] = {}
    grids: tuple[Grid, ...] = ()


#: The headings of the chapters, by name. A finding belongs to the chapter whose name its figure
#: starts with: "fig1a" belongs to "fig1".
CHAPTERS = {
    "fig1": "Figure 1: synthetic functions",
    "fig2": "Figure 2: performance and communication",
    "fig3": "Figure 3: run time",
    "fig4": "Figure 4: growing t_n",
    "appendix": "Appendix: the other targets",
    "published": "Comparison with the published landmine runs",
}
_NAMES = {  # of presets and data sets, in the order in which they are shown
    **PRESET_NAMES,
    "synthetic": "synthetic functions",
    "landmine": "landmine",
    "glass": "Google Glass",
    "har": "mobile phones",
    "agents": "landmine, many agents",
}
_VERDICTS = {  # the class of a verdict's badge, and a sign that says the same without colour
    "holds": ("good", "✓"),
    "does not hold": ("bad", "✗"),
    "not decided": ("open", "?"),
}


def contents(
    runs: Table,
    selections: Sequence[Selection],
    missing: dict[str, str],
    published: Published | None,
    folder: Path,
) -> Contents:
    """Collect everything that a report says, and draw its figures.

    Args:
        runs: The table of all trials.
        selections: What was requested; nothing else is judged or drawn.
        missing: Why an experiment could not be run, by its name.
        published: The authors' runs, if the data folder has them.
        folder: Where figures are written.
    """
    if not {"landmine", "published"} & {*runs["experiment"].tolist()}:
        published = None
    findings = [finding for finding in judge(runs) if _is_selected(finding, selections)]
    material = Material(
        runs=runs,
        published={} if published is None else published.curves,
        stand_in=any(map(stands_in, selections)),
    )
    figures = {figure for selection in selections for figure in selection.figures}
    summary = results.summary(runs).where(iteration=50)
    grids = []
    for name, chapter in (("synthetic", "fig1"), *((name, "fig2") for name in REAL)):
        rows = summary.where(experiment=name)
        title = f"{experiments()[name].title}: after 50 iterations"
        table = Table({column: rows[column] for column in _SUMMARY})
        grids += [Grid(chapter, title, table)] if rows.height else []
    return Contents(
        lead=_lead(selections),
        settings=tuple(_settings(runs, selections, missing)),
        findings=tuple(findings),
        pictures=draw(material, folder, [n for n in FIGURES if n.partition("-")[0] in figures]),
        grids=tuple(grids),
    )


_SUMMARY = (
    *("preset", "method", "M", "t_n", "d_n", "power", "every", "runs", "best", "best_error"),
    *("simple_regret", "simple_regret_error", "elapsed", "parameters_received"),
)


def _is_selected(finding: Finding, selections: Sequence[Selection]) -> bool:
    """Return whether a finding's figure was requested for its data and its preset."""
    return any(
        finding.figure.startswith(selection.figures)
        and finding.experiment == selection.experiment
        and finding.preset == selection.preset
        for selection in selections
    )


def stands_in(selection: Selection) -> bool:
    """Return whether made-up data take the place of real ones."""
    problem = selection.spec.problem
    return isinstance(problem, Glass) and problem.stand_in


def _lead(selections: Sequence[Selection]) -> str:
    text = "The experiments of Dai, Low and Jaillet (NeurIPS 2020), and whether their claims hold."
    if any(selection.quick for selection in selections):
        text += " Some experiments were run with --quick: they only show that everything works."
    if any(map(stands_in, selections)):
        text += " The Google Glass data are made up and only stand in for the real data."
    return text


def _settings(
    runs: Table, selections: Sequence[Selection], missing: dict[str, str]
) -> list[tuple[str, str]]:
    rows = []
    for selection in selections:
        own = runs.where(experiment=selection.experiment, preset=selection.preset)
        if own.height:
            title = f"{selection.spec.title}, {PRESET_NAMES[selection.preset]}"
            rows.append((title, _what(selection, own)))
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
    return (
        f"{runs.where(iteration=1).height} runs of {spec.iterations} iterations "
        f"({problem}; maximiser {selection.maximiser}{seeds})"
    )


def page(contents: Contents) -> str:
    """Return the report as HTML.

    >>> "tea &amp; cake" in page(Contents(lead="tea & cake"))
    True
    """
    chapters = {name: _chapter(name, contents) for name in CHAPTERS}
    sections = {
        "run": "What was run" if contents.settings else "",
        "verdicts": "Verdicts" if contents.findings else "",
        **{name: CHAPTERS[name] if any(chapter) else "" for name, chapter in chapters.items()},
    }
    return _template().render(
        contents=contents,
        chapters=chapters,
        sections={anchor: heading for anchor, heading in sections.items() if heading},
        verdicts=_VERDICTS,
        tallied=("holds", "does not hold", "not decided"),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        prose=_prose,
        effect=_effect,
        grouped=_grouped,
        named=_named,
        section_name=_section_name,
        figure_name=_figure_name,
        data_url=_data_url,
    )
    return environment.get_template("report.html.jinja")


class _Chapter(NamedTuple):
    pictures: list[Picture]
    grids: list[Grid]


def _chapter(name: str, contents: Contents) -> _Chapter:
    return _Chapter(
        [picture for shown, picture in contents.pictures.items() if shown.startswith(name)],
        [grid for grid in contents.grids if grid.chapter == name],
    )


# The filters of the template


def _prose(text: str) -> Markup:
    """Mark up a text: subscripts, minus signs, and code in backticks; the rest is escaped.

    >>> _prose("t_n > -1 and `M`")
    Markup('<i>t</i><sub>n</sub> &gt; −1 and <code>M</code>')
    """
    pieces = [str(escape(piece)) for piece in _CODE.split(text)]  # the odd ones are code
    pieces[::2] = [
        _SUBSCRIPT.sub(r"<i>\1</i><sub>\2</sub>", _MINUS.sub("−", piece)) for piece in pieces[::2]
    ]
    pieces[1::2] = [f"<code>{piece}</code>" for piece in pieces[1::2]]
    return Markup("".join(pieces))


def _effect(finding: Finding) -> str:
    """An effect, its interval, and the number of units."""
    value, low, high = (_cell(x) for x in (finding.value, finding.low, finding.high))
    return f"{value} [{low}, {high}], n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{finding.n}"


def _grouped(findings: Iterable[Finding], by: str) -> list[tuple[str, list[Finding]]]:
    """Findings by one of their fields; presets and data sets come in the order of `_NAMES`."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(getattr(finding, by), []).append(finding)
    if by in ("preset", "experiment"):
        return sorted(groups.items(), key=lambda group: [*_NAMES, group[0]].index(group[0]))
    return [*groups.items()]


def _named(name: str) -> str:
    return _NAMES.get(name, name)


def _section_name(section: str) -> str:
    return f"Section {section}" if section[:1].isdigit() else f"Appendix {section}"


def _figure_name(figure: str) -> str:
    return figure.replace("fig", "Figure ").capitalize()


def _data_url(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    return "–" if math.isnan(cell) else f"{cell:.4g}".replace("-", "−").replace("inf", "∞")
