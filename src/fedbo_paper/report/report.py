"""The report: one HTML page with what was run, every verdict and every figure.

`page` fills the template ``report.html.jinja``. The page is self-contained: figures and style are
embedded, and it has no script. The numbers behind the figures are in ``summary.csv``.
"""

from __future__ import annotations

import base64
import platform
import re
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from fedbo import __version__
from fedbo.table import Table
from fedbo_paper.experiments import results
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.experiments.spec import PRESET_NAMES, Selection, experiments
from fedbo_paper.harness.store import LIBRARIES, library_versions
from fedbo_paper.problems.problems import Glass
from fedbo_paper.report.figures import Picture

_SUBSCRIPT = re.compile(r"\b([a-zA-Z])_([a-zA-Z0-9])\b")
_VERDICTS = {  # the class of a verdict's badge, and a sign that says the same without colour
    "holds": ("good", "✓"),
    "does not hold": ("bad", "✗"),
    "not decided": ("open", "?"),
}


def settings(
    runs: Table, selections: Sequence[Selection], missing: dict[str, str]
) -> list[tuple[str, str]]:
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
        + "; with --quick, they only show that everything works" * selection.quick
        + "; the data are made up, and only stand in for the real ones" * stands_in(selection)
    )


def stands_in(selection: Selection) -> bool:
    """Return whether made-up data take the place of real ones."""
    problem = selection.spec.problem
    return isinstance(problem, Glass) and problem.stand_in


def page(
    settings: Sequence[tuple[str, str]], findings: Sequence[Finding], pictures: Sequence[Picture]
) -> str:
    """Return the report as HTML.

    >>> "tea &amp; cake" in page([("data", "tea & cake")], [], [])
    True
    """
    return _template().render(
        settings=settings, findings=findings, pictures=pictures, verdicts=_VERDICTS
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
    """An effect, its interval, and the number of units."""
    value, low, high = (
        f"{x:.4g}".replace("-", "−").replace("inf", "∞")
        for x in (finding.value, finding.low, finding.high)
    )
    return f"{value} [{low}, {high}], n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{finding.n}"


def _data_url(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
