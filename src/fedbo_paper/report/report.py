"""The report: one HTML page with what was run, every verdict, table and figure.

`page` fills the template ``report.html.jinja``. The page is self-contained: figures and style are
embedded, and it has no script. The numbers behind the figures are in ``summary.csv``.
"""

from __future__ import annotations

import base64
import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache

import msgspec
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from numpy.typing import NDArray

from fedbo import __version__
from fedbo.table import Table
from fedbo_paper.experiments import results
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.experiments.published import COMPARED, KNOWN
from fedbo_paper.experiments.sides import ROOTS
from fedbo_paper.experiments.spec import PRESET_NAMES, Selection, experiments
from fedbo_paper.harness.store import LIBRARIES, library_versions
from fedbo_paper.problems.problems import Glass
from fedbo_paper.report.figures import Picture

_SUBSCRIPT = re.compile(r"\b([a-zA-Z])_([a-zA-Z0-9])\b")
_VERDICTS = {  # the class of a verdict's badge, and a sign that says the same without colour
    "holds": ("good", "✓"),
    "does not hold": ("bad", "✗"),
    "not decided": ("open", "?"),
    "seen": ("open", "✓"),
    "not seen": ("open", "✗"),
    "by definition": ("open", "="),
}

Rows = list[tuple[str, str]]
Mask = NDArray[np.bool_]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A table in a report: text in its cells, and what a reader has to know about it."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]


def provenance(command: str, *libraries: str) -> Rows:
    """Describe when, how, with what and on which machine a report was made, as (name, text).

    Args:
        command: How the report was made.
        libraries: Packages whose versions matter beside `LIBRARIES`.

    >>> [name for name, _ in provenance("fedbo reproduce fig1")]
    ['Command', 'Date', 'Machine', 'Software']
    """
    versions = {
        "fedbo": __version__,
        "Python": platform.python_version(),
        **library_versions(*LIBRARIES, *libraries),
    }
    return [
        ("Command", command),
        ("Date", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        ("Machine", f"{_processor()}, {os.cpu_count()} cores, {platform.system()}"),
        ("Software", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]


def _processor() -> str:
    """The processor's name; on Linux the one of its cores."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2] for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return (names[0].strip() if names else platform.processor()) or platform.machine()


def settings(runs: Table, selections: Sequence[Selection], missing: dict[str, str]) -> Rows:
    """Describe what was run, as (name, text).

    Args:
        runs: The table of all trials.
        selections: What was requested.
        missing: Why an experiment could not be run, by its name.
    """
    rows = []
    for selection in selections:
        own = runs.where(experiment=selection.experiment, preset=selection.preset)
        if own.height:
            title = f"{selection.spec.title}, {PRESET_NAMES[selection.preset]}"
            rows.append((title, _what(selection, own)))
    rows += [(experiments()[name].title, f"not run: {why}") for name, why in missing.items()]
    rows.append(("Results", f"{runs.height:,} trials, digest {results.digest(runs)}"))
    return rows


def _what(selection: Selection, runs: Table) -> str:
    spec = selection.spec
    problem = ", ".join(
        f"{name} {getattr(spec.problem, name)}" for name in spec.problem.__struct_fields__
    )
    unit = "function" if selection.experiment == "synthetic" else "target"
    units = len(np.unique(runs["target"]))
    lists = {name: _values(runs, name) for name in ("M", "N", "t_n", "d_n", "power")}
    peers = "; ".join(
        [f"{name} = {', '.join(lists[name])}" for name in ("M", "N", "t_n", "d_n") if lists[name]]
        + [f"p_t = 1 − 1/{_root(power)}, p_1 = p_2" for power in lists["power"]]
        + ["P_N uniform"] * bool(lists["N"])
    )
    return (
        f"{runs.where(iteration=1).height} runs of {spec.iterations} iterations, of "
        f"{units} {unit}{'s' * (units > 1)} with {len(np.unique(runs['repeat']))} "
        f"initialisations of {spec.initial} point{'s' * (spec.initial > 1)} "
        f"(seeds {', '.join(map(str, spec.seeds))}; "
        f"{problem}; maximiser {selection.maximiser}). {peers}. "
        + followed(runs)
        + "With --quick, these runs only show that everything works. " * selection.quick
        + "The data are made up, and only stand in for the real ones." * stands_in(selection)
    ).strip()


def _values(runs: Table, name: str) -> list[str]:
    """The values of a setting in the runs that have peers."""
    values = runs[name][runs["method"] != "TS"].astype(np.float64)
    return [f"{value:g}" for value in np.unique(values[~np.isnan(values)])]


def _root(power: str) -> str:
    return ROOTS.get(float(power), f"t^{power}")


def followed(runs: Table) -> str:
    """Say how many messages FTS followed in a run, and in how many runs none, for each p_t.

    With p_t = 1 − 1/t² it follows .9 in 50 iterations, so FTS and TS can hardly differ.
    """
    said = ""
    for power in _values(runs, "power"):
        own = runs.where(method="FTS", power=float(power))
        starts = np.flatnonzero(np.append(True, own["iteration"][1:] < own["iteration"][:-1]))
        counts = np.add.reduceat((own["source"] == "peer").astype(np.int64), starts)
        said += (
            f"With p_t = 1 − 1/{_root(power)}, FTS followed {counts.mean():.2g} messages in a run "
            f"on average, and none in {100 * (counts == 0).mean():.0f} % of the runs. "
        )
    return said


def beside_published(comparison: Table) -> Listing:
    """Return the comparison with the published curves as a table of a report."""
    arms: dict[tuple[str, int], list[dict[str, float]]] = {}
    for i in range(comparison.height):
        row = {name: column[i] for name, column in comparison.items()}
        arms.setdefault((str(row["method"]), int(row["M"])), []).append(row)
    base = next((rows[0] for (method, M), rows in arms.items() if (method, M) == ("FTS", 100)), {})
    lines = []
    for (method, M), rows in arms.items():
        cells = [f"{r['difference']:+.4f} ± {r['error']:.4f}" for r in rows]
        ours, theirs = float(rows[0]["seconds"]), float(rows[0]["published_seconds"])
        times = [f"{ours:.3g}", f"{theirs:.3g}"]
        if base:
            shares = ours / base["seconds"], theirs / base["published_seconds"]
            times = [f"{t} (×{share:.3g})" for t, share in zip(times, shares, strict=True)]
        levels = f"{rows[-1]['ours']:.4f}, {rows[-1]['published']:.4f}"
        lines.append([_arm(method, M), *cells, levels, *times])
    is_far = np.abs(comparison["distance"]) > 2.0
    note = (
        "fedbo less published: the mean difference of best AUC between runs of the same field and "
        "initial points, ± its standard error, after some iterations; both means after the last; "
        "and seconds an iteration, evaluations not counted here, in brackets as a multiple of "
        f"FTS's. {np.count_nonzero(~is_far)} of {comparison.height} differences are within two "
        f"standard errors. {_far_apart(comparison, is_far)}{KNOWN}"
    )
    columns = ("method", *(f"{after} iterations" for after in COMPARED), "fedbo, published")
    return Listing(
        title="Beside the published runs",
        note=note,
        columns=(*columns, "CPU seconds here", "seconds there"),
        rows=lines,
    )


def stands_in(selection: Selection) -> bool:
    """Return whether made-up data take the place of real ones."""
    problem = selection.spec.problem
    return isinstance(problem, Glass) and problem.stand_in


def _far_apart(comparison: Table, is_far: Mask) -> str:
    """Name the differences beyond two standard errors, which nothing here explains."""
    arms: dict[str, list[str]] = {}
    for i in np.flatnonzero(is_far).tolist():
        arm = _arm(str(comparison["method"][i]), int(comparison["M"][i]))
        sign = "above" if comparison["difference"][i] > 0 else "below"
        arms.setdefault(f"{arm} ({sign})", []).append(str(comparison["iteration"][i]))
    if not arms:
        return ""
    listed = "; ".join(f"{arm} after {', '.join(after)}" for arm, after in arms.items())
    return f"Further apart, and not explained: {listed}. "


def _arm(method: str, M: int) -> str:
    return f"{method}, M = {M}" if M else method


def by_field_published(comparison: Table) -> Listing:
    """Return the comparison on each field as a table of a report."""
    fields = np.unique(comparison["field"]).tolist()
    lines: dict[str, dict[int, str]] = {}
    for method, M, field, difference, error in zip(
        *(comparison[name].tolist() for name in comparison.columns), strict=True
    ):
        if M in (0, 100):
            lines.setdefault(_arm(method, M), {})[field] = f"{difference:+.4f} ± {error:.4f}"
    return Listing(
        title=f"The same after {COMPARED[-1]} iterations, on each field",
        note="fedbo less published: the mean difference over the starts of a field, ± its "
        "standard error.",
        columns=("method", *(f"field {field}" for field in fields)),
        rows=[[arm, *(cells.get(field, "") for field in fields)] for arm, cells in lines.items()],
    )


def page(
    settings: Sequence[tuple[str, str]],
    findings: Sequence[Finding] = (),
    pictures: Sequence[Picture] = (),
    listings: Iterable[Listing] = (),
    *,
    title: str = "The experiments of Dai, Low and Jaillet (NeurIPS 2020)",
    note: str = "",
) -> str:
    """Return the report as HTML.

    Args:
        settings: What was run, as (name, text).
        findings: The verdicts.
        pictures: The figures.
        listings: Further tables.
        title: The title of the page.
        note: A sentence below the title.

    >>> "tea &amp; cake" in page([("data", "tea & cake")])
    True
    """
    return _template().render(
        settings=settings,
        findings=findings,
        pictures=pictures,
        listings=listings,
        verdicts=_VERDICTS,
        title=title,
        note=note,
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
    environment.filters.update(prose=_prose, effect=_effect, data_url=_data_url)
    return environment.get_template("report.html.jinja")


# The filters of the template


def _prose(text: str) -> Markup:
    """Mark up the subscripts of a text; the rest is escaped.

    >>> _prose("t_n > 1")
    Markup('<i>t</i><sub>n</sub> &gt; 1')
    """
    return Markup(_SUBSCRIPT.sub(r"<i>\1</i><sub>\2</sub>", str(escape(text))))


def _effect(finding: Finding) -> str:
    """An effect, its interval, the number of units, and δ if the verdict depends on it."""
    value, low, high = (
        f"{x:.4g}".replace("-", "−").replace("inf", "∞")
        for x in (finding.value, finding.low, finding.high)
    )
    space = "\N{NO-BREAK SPACE}"
    text = f"{value} [{low}, {high}], n{space}={space}{finding.n}"
    has_delta = finding.verdict not in ("seen", "not seen", "by definition")
    return text + f", δ{space}={space}{finding.matters:g}" * has_delta


def _data_url(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
