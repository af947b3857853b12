"""One page with everything: verdicts first, then each figure with the claims it is evidence for.

The page needs nothing else: figures and style are inside it, and there is no script. A claim is
judged once for each data set and preset; presets stand side by side.
"""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from fedbo import files
from fedbo.table import Cell, Table
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.experiments.spec import PRESET_NAMES
from fedbo_paper.report.figures import Picture
from fedbo_paper.report.markup import Markup, element, prose

_UNDERSCORE = re.compile(r"(?<=\w\w)_|_(?=\w\w)")  # between words, not in t_n


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the report, in the chapter of that name (`CHAPTERS`).

    Cells that are words of a verdict (holds, met, …) are shown as verdicts.
    """

    chapter: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    @classmethod
    def of(
        cls,
        table: Table,
        chapter: str,
        title: str,
        note: str = "",
        columns: Sequence[str] | None = None,
    ) -> Grid:
        """A table, or some of its columns; a truth value says its column's name: met, or not met.

        >>> grid = Grid.of(Table({"t_n": [40], "simple_regret": [0.5]}), "fig1", "Regret")
        >>> grid.columns, grid.rows
        (('t_n', 'simple regret'), ((40, 0.5),))
        """
        names = table.columns if columns is None else columns
        rows = tuple(zip(*(_said(name, table[name].tolist()) for name in names), strict=True))
        heads = tuple(_UNDERSCORE.sub(" ", name) for name in names)
        return cls(chapter=chapter, title=title, columns=heads, rows=rows, note=note)


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report says.

    =============  ===========================================================================
    lead           one or two sentences under the title
    settings       what was run, as (name, value): experiments, presets, repeats, digest, …
    findings       the claims with their verdicts
    pictures       figures by name, as `figures.draw` gives them
    grids          tables, each in its chapter
    notes          paragraphs by chapter, which explain what is seen there
    choices        what the paper leaves open and what was chosen, as (what, choice)
    commands       how to run it again, as (what, command)
    =============  ===========================================================================
    """

    title: str
    lead: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()
    pictures: dict[str, Picture] = {}
    grids: tuple[Grid, ...] = ()
    notes: dict[str, tuple[str, ...]] = {}
    choices: tuple[tuple[str, str], ...] = ()
    commands: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        named = [*(grid.chapter for grid in self.grids), *self.notes]
        for chapter in named:
            if chapter not in CHAPTERS:
                raise ValueError(f"there is no chapter {chapter!r}, only {', '.join(CHAPTERS)}")


class _Chapter(NamedTuple):
    heading: str
    pictures: tuple[str, ...]


#: By name; findings are in the chapter with whose name their figure's begins (fig1a: fig1).
CHAPTERS = {
    "fig1": _Chapter("Figure 1: synthetic functions", ("fig1",)),
    "fig2": _Chapter("Figure 2: performance and communication", ("fig2",)),
    "fig3": _Chapter("Figure 3: run time", ("fig3",)),
    "fig4": _Chapter("Figure 4: growing t_n", ("fig4",)),
    "appendix": _Chapter(
        "Appendix: the other targets", ("appendix-landmine", "appendix-glass", "appendix-har")
    ),
    "published": _Chapter("Beside the published landmine runs", ("landmine-curves", "published")),
    "diagnostics": _Chapter("What a message is worth", ("diagnostics",)),
    "other": _Chapter("Other claims", ()),
}
_PRESETS = PRESET_NAMES | {"published": "authors’ runs"}
_DATA = {
    "synthetic": "synthetic functions",
    "landmine": "landmine",
    "glass": "Google Glass",
    "har": "mobile phones",
    "agents": "landmine, many agents",
    "all": "all data sets",
    "glass-stand-in": "made-up data in place of Google Glass",
}
_VERDICTS = {  # a verdict's look, and the sign that says the same without colour
    "holds": ("good", "✓"),
    "met": ("good", "✓"),
    "does not hold": ("bad", "✗"),
    "not met": ("bad", "✗"),
    "not decided": ("open", "?"),
}
_HOW_TO_READ = (
    "An effect is positive where the side that the claim favours is ahead; in brackets its 95 % "
    "interval over n functions, or over n pairs of runs given these targets and what their peers "
    "did. A claim *holds* or *does not hold* when the whole interval says so, measured by the "
    "smallest difference that matters; otherwise these data do not decide it."
)
_WHICH_PRESETS = (
    "The *paper preset* has the settings of the paper and of its public code, but for two: maxima "
    "are found by `refine` and not by DIRECT, and landmine fields are scored without noise, unless "
    "it says otherwise above. The *default preset* has those that the library has by itself."
)
_AUTHORS = (
    "The *authors’ runs* are judged by the same rules. Their code pairs the points of a message "
    "with the wrong scores and shifts TAF's incumbents by one (docs/experiments.md), so these runs "
    "say little of RGPE and TAF."
)


def write(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write the report, whole or not at all."""
    files.write(path, page(contents).encode())


def page(contents: Contents) -> str:
    """The report as HTML.

    >>> "<h1>Tea &amp; cake</h1>" in page(Contents(title="Tea & cake"))
    True
    """
    style = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    sections = [*_sections(contents)]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", contents.title),
        element("style", Markup(style)),
    )
    header = element(
        "header",
        element("h1", contents.title),
        element("p", prose(contents.lead), class_="lead") if contents.lead else "",
    )
    main = element("main", header, (section.markup for section in sections))
    body = element("body", _table_of_contents(sections), main)
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


class _Section(NamedTuple):
    anchor: str
    heading: str
    markup: Markup


def _section(anchor: str, heading: str, *children: str | Iterable[Markup]) -> _Section:
    markup = element("section", element("h2", prose(heading)), *children, id=anchor)
    return _Section(anchor, heading, markup)


def _sections(contents: Contents) -> Iterable[_Section]:
    if contents.settings:
        yield _section("run", "What was run", _pairs(contents.settings))
    if contents.findings:
        yield _section("verdicts", "Verdicts", *_verdicts(contents.findings))
    for name, chapter in CHAPTERS.items():
        parts = [*_chapter(name, contents)]
        if parts:
            yield _section(name, chapter.heading, parts)
    if contents.choices:
        lead = element("p", "The paper does not say these; other choices may give other numbers.")
        yield _section(
            "choices", "Choices that the paper leaves open", lead, _pairs(contents.choices)
        )
    if contents.commands:
        rows = (
            element("div", element("p", prose(what)), element("pre", element("code", command)))
            for what, command in contents.commands
        )
        yield _section("commands", "How to run it again", element("div", rows, class_="commands"))


def _table_of_contents(sections: Sequence[_Section]) -> Markup:
    links = (
        element("li", element("a", prose(section.heading), href=f"#{section.anchor}"))
        for section in sections
    )
    return element("nav", element("ol", links), aria_label="Contents")


def _pairs(pairs: Sequence[tuple[str, str]]) -> Markup:
    rows = (
        element("div", element("dt", prose(name)), element("dd", prose(value)))
        for name, value in pairs
    )
    return element("dl", rows)


# The verdicts, all in one table


def _verdicts(findings: Sequence[Finding]) -> Iterable[Markup]:
    presets = _presets(findings)
    yield element("p", _stressed(_HOW_TO_READ))
    yield element("p", _stressed(_WHICH_PRESETS))
    if "published" in presets:
        yield element("p", _stressed(_AUTHORS))
    yield _tally(findings, presets)
    head = element(
        "tr",
        *(element("th", name, scope="col") for name in ("Claim", "Data")),
        *(element("th", _PRESETS.get(preset, preset), scope="col") for preset in presets),
    )
    bodies = (
        _section_rows(section, [f for f in findings if f.section == section], presets)
        for section in dict.fromkeys(finding.section for finding in findings)
    )
    table = element("table", element("thead", head), bodies, class_="verdicts")
    yield element("div", table, class_="wide")


def _tally(findings: Sequence[Finding], presets: Sequence[str]) -> Markup:
    """How many claims hold, by preset."""
    words = ("holds", "does not hold", "not decided")
    head = [element("th", "", scope="col"), *(element("th", _badge(w), scope="col") for w in words)]
    rows = [
        element(
            "tr",
            element("th", _PRESETS.get(preset, preset), scope="row"),
            *(
                element("td", str(sum(f.preset == preset and f.verdict == w for f in findings)))
                for w in words
            ),
        )
        for preset in presets
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", rows))
    return element("div", table, class_="tally")


def _section_rows(section: str, findings: Sequence[Finding], presets: Sequence[str]) -> Markup:
    """The claims of a section of the paper, a row for each data set."""
    title = element("th", _section_name(section), colspan=str(2 + len(presets)), scope="rowgroup")
    rows = [element("tr", title, class_="group")]
    for of_claim in _by_claim(findings):
        data = _experiments(of_claim)
        for i, experiment in enumerate(data):
            cells = [element("td", _DATA.get(experiment, experiment))]
            cells += [
                element("td", *_outcome(finding), class_="outcome")
                for finding in _in_order(of_claim, experiment, presets)
            ]
            if i == 0:
                first = of_claim[0]
                words = (prose(first.claim), " ", _place(first))
                cells.insert(0, element("th", *words, rowspan=str(len(data)), scope="row"))
            rows.append(element("tr", *cells))
    return element("tbody", rows)


def _section_name(section: str) -> str:
    return f"Section {section}" if section[:1].isdigit() else f"Appendix {section}"


def _place(finding: Finding) -> Markup:
    """Where in the report a claim's figure is."""
    return element("a", _figure(finding), href=f"#{_chapter_of(finding)}", class_="place")


def _figure(finding: Finding) -> str:
    return finding.figure.replace("fig", "Figure ").capitalize()


def _outcome(finding: Finding | None) -> Iterable[Markup]:
    if finding is None:
        return [element("span", "–", class_="note")]
    return [_badge(finding.verdict), element("span", _effect(finding), class_="effect")]


def _presets(findings: Sequence[Finding]) -> list[str]:
    found = [*dict.fromkeys(finding.preset for finding in findings)]
    return sorted(found, key=lambda preset: [*_PRESETS, preset].index(preset))


def _experiments(findings: Sequence[Finding]) -> list[str]:
    found = [*dict.fromkeys(finding.experiment for finding in findings)]
    return sorted(found, key=lambda experiment: [*_DATA, experiment].index(experiment))


def _by_claim(findings: Sequence[Finding]) -> Iterable[list[Finding]]:
    for id in dict.fromkeys(finding.id for finding in findings):
        yield [finding for finding in findings if finding.id == id]


def _in_order(
    findings: Sequence[Finding], experiment: str, presets: Sequence[str]
) -> list[Finding | None]:
    """Of each preset the finding about these data, if there is one."""
    found = {finding.preset: finding for finding in findings if finding.experiment == experiment}
    return [found.get(preset) for preset in presets]


# A chapter: pictures, claims, tables


def _chapter(name: str, contents: Contents) -> Iterable[Markup]:
    yield from (
        _picture(contents.pictures[picture])
        for picture in CHAPTERS[name].pictures
        if picture in contents.pictures
    )
    yield from (element("p", prose(text)) for text in contents.notes.get(name, ()))
    findings = [finding for finding in contents.findings if _chapter_of(finding) == name]
    yield from map(_claim, _by_claim(findings))
    yield from (_grid(grid) for grid in contents.grids if grid.chapter == name)


def _chapter_of(finding: Finding) -> str:
    return next((name for name in CHAPTERS if finding.figure.startswith(name)), "other")


def _picture(picture: Picture) -> Markup:
    encoded = base64.b64encode(picture.svg.encode()).decode()
    image = element("img", src=f"data:image/svg+xml;base64,{encoded}", alt=picture.alt)
    caption = element(
        "figcaption", element("b", prose(picture.title)), ". ", prose(picture.caption)
    )
    return element("figure", image, caption)


def _claim(findings: Sequence[Finding]) -> Markup:
    """A claim with all that was found about it, by data set."""
    first = findings[0]
    place = element("small", f"{_section_name(first.section)}, {_figure(first)}")
    rows = (_row([f for f in findings if f.experiment == e]) for e in _experiments(findings))
    return element("article", element("h3", prose(first.claim), " ", place), rows)


def _row(findings: Sequence[Finding]) -> Markup:
    """What was found on one data set, a column for each preset; what is the same is said once."""
    first, presets = findings[0], _presets(findings)
    measures = {finding.measure for finding in findings}
    data = [element("b", _capital(_DATA.get(first.experiment, first.experiment)))]
    if len(measures) == 1:
        data.append(element("span", prose(_capital(first.measure)), class_="measure"))
    columns = (
        element("div", *_detail(finding, own_measure=len(measures) > 1))
        for finding in sorted(findings, key=lambda finding: presets.index(finding.preset))
    )
    return element(
        "div", element("p", *data, class_="data"), element("div", columns, class_="findings")
    )


def _detail(finding: Finding, own_measure: bool) -> Iterable[Markup]:
    yield element(
        "p",
        element("span", _PRESETS.get(finding.preset, finding.preset), class_="preset"),
        _badge(finding.verdict),
        element("b", _effect(finding), class_="effect"),
    )
    if own_measure:
        yield element("p", prose(_capital(finding.measure)), class_="measure")
    yield element("p", prose(finding.note), class_="note")


def _grid(grid: Grid) -> Markup:
    columns = [[row[i] for row in grid.rows] for i in range(len(grid.columns))]
    looks = [
        "number" if all(isinstance(cell, int | float) for cell in column) else "word"
        for column in columns
    ]
    shown = [_column(column) for column in columns]
    head = (
        element("th", prose(name), scope="col", class_=look)
        for name, look in zip(grid.columns, looks, strict=True)
    )
    rows = (
        element("tr", *(element("td", c, class_=a) for c, a in zip(row, looks, strict=True)))
        for row in zip(*shown, strict=True)
    )
    parts = (element("thead", element("tr", head)), element("tbody", rows))
    table = element("div", element("table", *parts, class_="grid"), class_="wide")
    note = [element("p", prose(grid.note), class_="note")] if grid.note else []
    return element("div", element("h3", prose(grid.title)), table, note)


def _column(cells: Sequence[Cell]) -> list[Markup]:
    """Cells as text; numbers of a column have as many decimals as give the largest four digits."""
    floats = [x for x in cells if isinstance(x, float) and math.isfinite(x)]
    largest = max((abs(x) for x in floats), default=0.0)
    decimals = min(6, max(0, 3 - math.floor(math.log10(largest)))) if largest else 1
    short = all(len(f"{x:.10g}") <= 6 for x in floats)  # as they are given: 0.02 and 1.2
    return [_cell(cell, ".10g" if short else f".{decimals}f") for cell in cells]


def _cell(cell: Cell, form: str) -> Markup:
    if isinstance(cell, str):
        return _badge(cell) if cell in _VERDICTS else prose(cell)
    if isinstance(cell, int):
        return prose(f"{cell:,}")
    return prose("–" if math.isnan(cell) else _minus(format(cell, form)))


def _said(name: str, cells: Sequence[Cell]) -> list[Cell]:
    said = {True: name, False: f"not {name}"}
    return [said[cell] if isinstance(cell, bool) else cell for cell in cells]


def _badge(verdict: str) -> Markup:
    look, sign = _VERDICTS.get(verdict, ("open", "?"))
    return element(
        "span", element("span", sign, aria_hidden="true"), f" {verdict}", class_=f"badge {look}"
    )


def _effect(finding: Finding) -> str:
    """The effect and its interval, in as many digits as the interval justifies.

    Half an interval is given three significant digits, but at most four decimals.
    """
    if finding.said:
        return finding.said
    value, low, high = finding.value, finding.low, finding.high
    n = f"n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{finding.n}"
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{_number(value, 3)}, {n}: too few, or all the same: no interval"
    half = (high - low) / 2
    if half <= 1e-9 * abs(value):
        shown = [_number(x, 4) for x in (value, low, high)]
    else:
        decimals = min(4, max(0, 2 - math.floor(math.log10(half))))
        shown = [_minus(f"{round(x, decimals) + 0.0:.{decimals}f}") for x in (value, low, high)]
    return f"{shown[0]} [{shown[1]}, {shown[2]}], {n}"


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return "–"
    return _minus(f"{value:.{digits}g}")


def _minus(number: str) -> str:
    return number.replace("-", "−").replace("inf", "∞")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _stressed(text: str) -> Markup:
    """Prose in which *words* are set apart."""
    pieces: list[Any] = text.split("*")
    return Markup(
        "".join(element("em", piece) if i % 2 else prose(piece) for i, piece in enumerate(pieces))
    )
