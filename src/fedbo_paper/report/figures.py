"""The paper's figures, from the table of all runs.

Each preset that was run gets its own row of panels. All rows share their axes, so that presets can
be compared. Lower is better everywhere, except next to the published curves, which show the AUC
itself. A panel without runs says so.

Bands and bars are one standard error on either side of the mean. On synthetic functions it is taken
over functions, each the mean of its initialisations; on real data over all runs, as in the
published logs. There it includes the differences between targets, so a paired difference may be
clear although two bars overlap: `claims` judges paired differences.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedbo.insight.colours import COLOURS
from fedbo.table import Table
from fedbo_paper.experiments.published import Curve
from fedbo_paper.experiments.spec import PRESET_NAMES, REAL
from fedbo_paper.harness.averages import mean_and_error
from fedbo_paper.report import curves, strokes
from fedbo_paper.report.captions import WORDS
from fedbo_paper.report.curves import Floats
from fedbo_paper.report.sheet import DATA_SETS, DataSet, Material, Sheet
from fedbo_paper.report.strokes import COLOUR, METHODS, STYLE, WIDTH, name, shade

_M = 100  # the paper's choice in every figure that does not vary M
_APART = {"FTS": 1.0, "RGPE": 0.95, "TAF": 1.05}  # keeps equal lengths of RGPE and TAF visible
_MOMENTS = 100  # at which a curve against time is drawn
_OURS: tuple[tuple[str, float, Any], ...] = (("paper", 0.3, "-"), ("default", -0.4, "-."))
_QUERIES = {"random": "random point", "message": "message", "best": "peer's best point"}
_THEIRS: Any = (0, (4, 2))
#: Shade and style of FTS by M, the largest M last.
_BY_LENGTH: tuple[tuple[float, Any], ...] = (
    (0.1, (0, (1, 3))),
    (0.55, (0, (1, 1))),
    (0.15, (0, (4, 1.5))),
    (-0.25, "-"),
)


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A drawn figure, and what a report says about it."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str


def draw(material: Material, folder: Path, only: Sequence[str] | None = None) -> dict[str, Picture]:
    """Write each figure that has data as PNG and SVG; the same runs give the same files.

    Args:
        material: What to draw.
        folder: Where the files are written. It is created if there is a figure.
        only: The names of the figures to draw, all of `NAMES` by default.

    Returns:
        The pictures for a report, by name.

    >>> draw(Material(runs=Table.from_rows(["experiment", "preset"], [])), Path("unused"), [])
    {}
    """
    pictures = {}
    for wanted in NAMES if only is None else only:
        figure = paint(wanted, material)
        if not strokes.has_data(figure):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(strokes.RC):
            figure.savefig(folder / f"{wanted}.png", dpi=160, metadata={"Software": None})
            figure.set_layout_engine("none")  # the SVG keeps the layout of the PNG
            file = io.BytesIO()
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        (folder / f"{wanted}.svg").write_bytes(file.getvalue())
        svg = file.getvalue().decode()
        pictures[wanted] = Picture(name=wanted, svg=svg, **WORDS[wanted]._asdict())
    return pictures


def paint(wanted: str, material: Material) -> Figure:
    """Draw one figure of `NAMES`."""
    if wanted not in _PAINTERS:
        raise ValueError(f"there is no figure {wanted!r}, only {', '.join(_PAINTERS)}")
    with matplotlib.rc_context(strokes.RC):
        figure = _PAINTERS[wanted](material)
        for axes in figure.axes:
            if not axes.has_data():
                strokes.say_not_run(axes)
    return figure


def _fig1(material: Material) -> Figure:
    """Synthetic functions: (a) t_n = 40, (b) t_n = 100, (c) d_n = 1.2."""
    sheet = Sheet(material, ["synthetic"], 3, 2.8, share=True)
    settings = (("a", 40, 0.02), ("b", 100, 0.02), ("c", 100, 1.2))
    for preset, panels in sheet.rows:
        runs = material.select("synthetic", preset)
        for axes, (letter, t_n, d_n) in zip(panels, settings, strict=True):
            title = f"({letter}) $t_n = {t_n}$, $d_n = {d_n}$, {PRESET_NAMES[preset]}"
            name(axes, title, "iteration", "simple regret" if axes is panels[0] else "")
            fts = runs.where(method="FTS", t_n=t_n, d_n=d_n)
            if fts.height:
                _regret(axes, runs.where(method="TS"), "TS", COLOUR["TS"], STYLE["TS"])
                (_regrets_by_schedule if letter == "c" else _regrets_by_length)(axes, fts)
                axes.legend(loc="upper right")
    return sheet.finish()


def _regrets_by_length(axes: Axes, fts: Table) -> None:
    lengths = np.unique(fts["M"]).tolist()
    for i, M in enumerate(lengths, len(_BY_LENGTH) - len(lengths)):
        towards, style = _BY_LENGTH[max(0, i)]
        _regret(axes, fts.where(M=M), f"FTS, $M = {M}$", shade(COLOUR["FTS"], towards), style)


def _regrets_by_schedule(axes: Axes, fts: Table) -> None:
    for power, words, towards, style in ((0.5, r"\sqrt{t}", 0.0, "-"), (2.0, "t^2", -0.45, "-.")):
        colour = shade(COLOUR["FTS"], towards)
        _regret(axes, fts.where(power=power), f"FTS, $p_t = 1 - 1/{words}$", colour, style)


def _regret(axes: Axes, runs: Table, label: str, colour: str, style: Any) -> None:
    if runs.height:
        functions = curves.average(curves.by_run(runs, "simple_regret"), lambda run: run[0])
        strokes.band(axes, curves.stack(functions), label, colour, style)


def _fig2(material: Material) -> Figure:
    """Best performance after the last iteration against parameters per peer."""
    sheet = Sheet(material, REAL, 3, 2.9)
    for axes, data, preset, runs in sheet.data_panels("parameters per peer"):
        _by_length(axes, runs.where(every=0), data)
        if axes.has_data() and data.experiment == "landmine" and preset == "paper":
            _published_by_length(axes, material.published)
    strokes.methods_legend(sheet.figure, published=bool(material.published))
    return sheet.finish(log_x=range(3))


def _by_length(axes: Axes, runs: Table, data: DataSet) -> None:
    """A point for each M of a method, and a horizontal line for TS, which receives nothing."""

    def point(arm: Table, method: str) -> tuple[float, float, float]:
        per_peer = arm["parameters_received"][-1] / arm["N"][-1]
        return _APART[method] * per_peer, *_mean_and_error(data.loss(arm)[:, -1])

    _dots(axes, runs, "M", point)
    alone = runs.where(method="TS")
    if alone.height:
        strokes.level(axes, *_mean_and_error(data.loss(alone)[:, -1]), "TS")
    axes.margins(x=0.1, y=0.1)


def _dots(
    axes: Axes, runs: Table, by: str, point: Callable[[Table, str], tuple[float, float, float]]
) -> None:
    """A point (x, mean, error) for each value of a column, joined for each method but TS."""
    for method in METHODS[1:]:
        arms = runs.where(method=method)
        points = [point(arms.where(**{by: n}), method) for n in np.unique(arms[by]).tolist()]
        if points:
            strokes.dots(axes, np.array(points), method)


def _mean_and_error(values: Floats) -> tuple[float, float]:
    mean, error = mean_and_error(values)
    return float(mean), float(error)


def _published_by_length(axes: Axes, published: Mapping[str, Curve]) -> None:
    """The same for the authors' runs; as the paper counts, a belief has M + M² parameters."""
    for method in METHODS[1:]:
        found = {M: published.get(f"{method}-M{M}") for M in (50, 100, 150, 200)}
        points = [
            (
                _APART[method] * (M if method == "FTS" else M + M**2),
                1.0 - curve.mean[-1],
                curve.se[-1],
            )
            for M, curve in found.items()
            if curve is not None
        ]
        if points:
            strokes.dots(axes, np.array(points), method, muted=True)
    if "TS" in published:
        level = 1.0 - published["TS"].mean[-1]
        axes.axhline(level, color=shade(COLOUR["TS"], 0.5), linestyle=":", zorder=0)


def _fig3(material: Material) -> Figure:
    """Best performance against run time for target 0, and run time against the agents' number."""
    sheet = Sheet(material, (*REAL, "agents"), 4, 2.7)
    for axes, data, _, runs in sheet.data_panels("CPU seconds", between=",\n"):
        _against_time(axes, runs.where(target=0), data)
    for preset, panels in sheet.rows:
        title = f"(d) {DATA_SETS[0].title},\n{PRESET_NAMES[preset]}"
        name(panels[3], title, "number of peers", "CPU seconds of a run")
        _against_agents(panels[3], material.select("agents", preset))
    strokes.methods_legend(sheet.figure)
    return sheet.finish(log_x=range(4), log_y=[3])


def _against_time(axes: Axes, runs: Table, data: DataSet) -> None:
    """The mean best performance at each moment; a run that has ended keeps its last value."""
    for method in METHODS:
        arm = _usual_arm(runs, method)
        if not arm.height:
            continue
        elapsed = curves.totals_by_run(arm, "seconds", "seconds_evaluation")
        times = np.maximum(curves.stack(elapsed), 1e-6)
        moments = np.geomspace(times[:, 0].max(), times[:, -1].max(), _MOMENTS)
        steps = [
            loss[np.searchsorted(time, moments, side="right") - 1]
            for time, loss in zip(times, data.loss(arm), strict=True)
        ]
        mean, error = mean_and_error(np.array(steps))
        strokes.line(axes, moments, mean, error, method, COLOUR[method], STYLE[method])


def _usual_arm(runs: Table, method: str) -> Table:
    """The runs of a method with messages sent once, and with M = 100 unless it is TS."""
    arm = runs.where(method=method, every=0)
    return arm if method == "TS" else arm.where(M=_M)


def _against_agents(axes: Axes, runs: Table) -> None:
    """Total seconds against N, and below them the evaluations, which no method can save."""
    evaluating: dict[int, list[float]] = {}

    def point(arm: Table, method: str) -> tuple[float, float, float]:
        N = int(arm["N"][0])
        total = curves.totals_by_run(arm, "seconds", "seconds_evaluation")
        evaluation = curves.totals_by_run(arm, "seconds_evaluation")
        evaluating.setdefault(N, []).append(float(curves.stack(evaluation)[:, -1].mean()))
        return N, *_mean_and_error(curves.stack(total)[:, -1])

    _dots(axes, runs, "N", point)
    if evaluating:
        N, seconds = zip(*sorted((N, np.mean(some)) for N, some in evaluating.items()), strict=True)
        axes.plot(N, seconds, ":", color=strokes.GREY, linewidth=1)
        strokes.tag(axes, "evaluations alone", N[0], seconds[0])


def _fig4(material: Material) -> Figure:
    """Messages sent once, and before every iteration with growing t_n: target 0."""
    sheet = Sheet(material, REAL, 3, 2.8)
    for axes, data, _, all_targets in sheet.data_panels("iteration"):
        runs = all_targets.where(target=0)
        growing = runs.where(method="FTS", M=_M, every=1)
        if not growing.height:
            continue
        for arm, label, colour, style in (
            (_usual_arm(runs, "TS"), "TS", COLOUR["TS"], STYLE["TS"]),
            (_usual_arm(runs, "FTS"), "FTS, sent once", COLOUR["FTS"], "-"),
            (growing, "FTS, growing $t_n$", COLOURS[2], "-."),
        ):
            if arm.height:
                strokes.band(axes, data.loss(arm), label, colour, style)
        axes.legend(loc="upper right")
    return sheet.finish()


def _appendix(data: DataSet) -> Callable[[Material], Figure]:
    """Targets 1 to 5 of a data set, as figure 3 shows target 0."""

    def paint_targets(material: Material) -> Figure:
        sheet = Sheet(material, [data.experiment], 5, 2.4)
        for preset, panels in sheet.rows:
            runs = material.select(data.experiment, preset)
            for target, axes in enumerate(panels, 1):
                measure = data.measure if target == 1 else ""
                name(axes, f"{data.agent} {target}, {preset}", "CPU seconds", measure)
                _against_time(axes, runs.where(target=target), data)
        strokes.methods_legend(sheet.figure)
        return sheet.finish(log_x=range(5))

    return paint_targets


def _landmine_curves(material: Material) -> Figure:
    """A panel for each method: the authors' curve, and ours with each preset."""
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    panels = figure.subplots(1, len(METHODS), sharex=True, sharey=True)
    for axes, method in zip(panels, METHODS, strict=True):
        name(axes, _with_length(method), "iteration", "mean best AUC" if method == "TS" else "")
        for preset, towards, style in _OURS:
            runs = _usual_arm(material.select("landmine", preset), method)
            if runs.height:
                best = curves.stack(curves.by_run(runs, "best"))
                strokes.band(axes, best, preset, shade(COLOUR[method], towards), style)
        if axes.has_data():
            _published_curve(axes, material.published, method)
    if strokes.has_data(figure):
        lines = [
            ("published", strokes.INK, _THEIRS),
            *((PRESET_NAMES[preset], shade("#777777", by), style) for preset, by, style in _OURS),
        ]
        handles = [Line2D([], [], label=la, color=co, linestyle=st) for la, co, st in lines]
        figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


def _published(material: Material) -> Figure:
    """The published setting: TS and FTS from the published initial points."""
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharex=True)
    middle.sharey(left)
    for axes, method in ((left, "TS"), (middle, "FTS")):
        name(axes, _with_length(method), "iteration", "mean best AUC" if axes is left else "")
        arm = material.select("published", "paper").where(method=method)
        if arm.height:
            best = curves.average(curves.by_run(arm, "best"), lambda run: run[:2])
            seeds = len(np.unique(arm["seed"]))
            label = "fedbo" if seeds == 1 else f"fedbo, mean of {seeds} seeds"
            strokes.band(axes, curves.stack(best), label, COLOUR[method], "-")
            _published_curve(axes, material.published, method)
            axes.legend(loc="lower right")
            _differences(right, best, material.published, method)
    name(right, "fedbo − published, paired, ± 2 standard errors", "iteration", "")
    if right.has_data():
        right.axhline(0.0, color=strokes.INK, linewidth=0.8)
        right.legend(loc="lower right")
    return figure


def _differences(
    axes: Axes, best: Mapping[Any, Floats], published: Mapping[str, Curve], method: str
) -> None:
    """The mean difference between our runs and theirs, paired by (field, run)."""
    curve = published.get(_published_name(method))
    theirs = curve.runs if curve is not None else {}
    both = [(field, run) for field, run in best if run in theirs.get(field, {})]
    if both:
        known = {(field, run): np.asarray(theirs[field][run]) for field, run in both}
        length = min(map(len, [*best.values(), *known.values()]))
        apart = np.array([best[pair][:length] - known[pair][:length] for pair in both])
        mean, error = mean_and_error(apart)
        style = STYLE[method]
        strokes.line(axes, np.arange(length), mean, 2 * error, method, COLOUR[method], style)


def _published_name(method: str) -> str:
    return method if method == "TS" else f"{method}-M{_M}"


def _with_length(method: str) -> str:
    return method if method == "TS" else f"{method}, $M = {_M}$"


def _published_curve(axes: Axes, published: Mapping[str, Curve], method: str) -> None:
    curve = published.get(_published_name(method))
    if curve is not None:
        mean, se = np.asarray(curve.mean), np.asarray(curve.se)
        strokes.line(axes, np.arange(len(mean)), mean, se, "published", strokes.INK, _THEIRS)


def _diagnostics(material: Material) -> Figure:
    """What a query is worth by its source; dots, because the axis does not start at 0."""
    panels = material.worth or (("landmine detection", Table({"quantity": []})),)
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    grid = figure.subplots(1, len(panels), sharex=True, squeeze=False)
    for axes, (title, table) in zip(grid[0], panels, strict=True):
        name(axes, title, "mean score of the query", "")
        found = table["quantity"].tolist()
        shown = [quantity for quantity in _QUERIES if quantity in found]
        for i, quantity in enumerate(shown):
            row = found.index(quantity)
            colour = COLOUR["FTS"] if quantity == "message" else strokes.GREY
            error = np.nan_to_num(table["standard_error"][row])
            axes.errorbar(table["mean"][row], i, xerr=error, fmt="o", color=colour, capsize=3)
        if shown:
            axes.set_yticks(range(len(shown)), [_QUERIES[quantity] for quantity in shown])
            axes.set_ylim(len(shown) - 0.5, -0.5)
            axes.grid(axis="x", color="#E4E4E4", linewidth=0.8)
    return figure


_PAINTERS: dict[str, Callable[[Material], Figure]] = {
    "fig1": _fig1,
    "fig2": _fig2,
    "fig3": _fig3,
    "fig4": _fig4,
    **{f"appendix-{data.experiment}": _appendix(data) for data in DATA_SETS},
    "landmine-curves": _landmine_curves,
    "published": _published,
    "diagnostics": _diagnostics,
}
NAMES = tuple(_PAINTERS)
