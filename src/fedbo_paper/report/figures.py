"""The paper's figures, from the table of all runs.

Lower is better everywhere, except next to the published curves, which show the AUC itself.

Bands and bars are one standard error on either side of the mean. On synthetic functions it is taken
over functions, each the mean of its initialisations; on real data over all runs, as in the
published logs. There it includes the differences between targets, so a paired difference may be
clear although two bars overlap: `claims` judges paired differences.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.insight.colours import COLOURS
from fedbo.table import Table
from fedbo_paper.experiments.published import Curve, differences, name_of
from fedbo_paper.experiments.results import elapsed
from fedbo_paper.experiments.sides import Floats, Runs
from fedbo_paper.experiments.spec import PRESET_NAMES, REAL
from fedbo_paper.harness.intervals import cluster_means, mean_and_error
from fedbo_paper.report import strokes
from fedbo_paper.report.sheet import DATA_SETS, DataSet, Material, Sheet, curves_of
from fedbo_paper.report.strokes import COLOUR, METHODS, STYLE, WIDTH, name

_M = 100  # the paper's choice in every figure that does not vary M
_APART = {"FTS": 1.0, "RGPE": 0.95, "TAF": 1.05}  # keeps equal lengths of RGPE and TAF visible
_MOMENTS = 100  # at which a curve against time is drawn
#: Colour and style by M, the largest M last.
_BY_LENGTH: tuple[tuple[str, Any], ...] = (
    (COLOURS[4], (0, (1, 1.2))),
    (COLOURS[5], (0, (4, 1.2, 1, 1.2))),
    (COLOURS[2], (0, (5, 1.5))),
    (COLOURS[1], "-"),
)
#: The panels of figure 1: letter, t_n and d_n.
_SETTINGS = (("a", 40, 0.02), ("b", 100, 0.02), ("c", 40, 1.2), ("d", 100, 1.2))


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A drawn figure, and what a report says about it."""

    name: str
    title: str
    caption: str
    svg: str


def draw(material: Material, folder: Path, only: Sequence[str]) -> dict[str, Picture]:
    """Write each figure that has data as PNG, SVG and PDF; the same runs give the same files.

    Args:
        material: What to draw.
        folder: Where the files are written. It is created if there is a figure.
        only: The names of the figures to draw.

    Returns:
        The pictures for a report, by name.
    """
    pictures = {}
    for wanted in only:
        figure = paint(wanted, material)
        if strokes.has_data(figure):
            title, caption, _ = FIGURES[wanted]
            svg = save(figure, folder / wanted).decode()
            pictures[wanted] = Picture(name=wanted, title=title, caption=caption, svg=svg)
    return pictures


def save(figure: Figure, path: Path) -> bytes:
    """Write a figure as PNG, SVG and PDF, and return the SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(strokes.RC):
        figure.savefig(f"{path}.png", dpi=160, metadata={"Software": None})
        figure.set_layout_engine("none")  # the others keep the layout of the PNG
        figure.savefig(f"{path}.pdf", metadata={"CreationDate": None, "Creator": None})
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    Path(f"{path}.svg").write_bytes(file.getvalue())
    return file.getvalue()


def paint(wanted: str, material: Material) -> Figure:
    """Draw one of `FIGURES`."""
    with matplotlib.rc_context(strokes.RC):
        figure = FIGURES[wanted][2](material)
        for axes in figure.axes:
            axes.set_visible(axes.has_data())  # a preset may have fewer panels than another
    return figure


def _total_seconds(runs: Table) -> Floats:
    """The CPU seconds since the start of each run, evaluations included: (R, T + 1)."""
    columns = {column: runs[column] for column in runs.columns}
    return curves_of(Table(columns | {"elapsed": elapsed(runs)}), "elapsed")


def _fig1(material: Material) -> Figure:
    """Simple regret with near and with far peers that have few and many observations."""

    def paint_panel(axes: Axes, runs: Table, fts: Table, is_far: bool) -> None:
        _regret(axes, runs.where(method="TS"), "TS", (COLOUR["TS"], STYLE["TS"]))
        (_regrets_by_schedule if is_far else _regrets_by_length)(axes, fts)

    return _synthetic(material, "simple regret", paint_panel)


def _cumulative(material: Material) -> Figure:
    """Cumulative regret, per query."""

    def paint_panel(axes: Axes, runs: Table, fts: Table, is_far: bool) -> None:
        for arm, label, method in (
            (runs.where(method="TS"), "TS", "TS"),
            (fts.where(M=_M, power=0.5), f"FTS, $M = {_M}$", "FTS"),
        ):
            _regret(axes, arm, label, (COLOUR[method], STYLE[method]), "cumulative_regret")

    return _synthetic(material, "cumulative regret / t", paint_panel)


def _synthetic(
    material: Material, y: str, paint_panel: Callable[[Axes, Table, Table, bool], None]
) -> Figure:
    """A panel for each of `_SETTINGS`, logarithmic for simple regrets, which span decades."""
    is_simple = y == "simple regret"
    sheet = Sheet(material, ["synthetic"], len(_SETTINGS), height=2.8, share=True)
    for preset, panels in sheet.rows:
        runs = material.select("synthetic", preset)
        for axes, (letter, t_n, d_n) in zip(panels, _SETTINGS, strict=True):
            title = f"({letter}) $t_n = {t_n}$, $d_n = {d_n}$, {preset}"
            name(axes, title, "iteration", y if axes is panels[0] else "")
            fts = runs.where(method="FTS", t_n=t_n, d_n=d_n, every=0)
            if fts.height:
                paint_panel(axes, runs, fts, d_n > 1)
                axes.legend(loc="lower left" if is_simple else "lower right")
                if not is_simple:
                    axes.set_ylim(bottom=0.0)
    return sheet.finish(log_y=range(len(_SETTINGS)) if is_simple else ())


def _messages(material: Material) -> Figure:
    """Messages once, and before every iteration, with fixed t_n."""
    sheet = Sheet(material, ["synthetic"], 2, height=2.8, share=True)
    for preset, panels in sheet.rows:
        runs = material.select("synthetic", preset)
        for axes, t_n in zip(panels, (40, 100), strict=True):
            title = f"$t_n = {t_n}$, {PRESET_NAMES[preset]}"
            name(axes, title, "iteration", "simple regret" if t_n == 40 else "")
            fts = runs.where(method="FTS", t_n=t_n, M=_M, power=0.5, d_n=0.02)
            for every, label, look in (
                (0, "messages once", (COLOUR["FTS"], "-")),
                (1, "before every iteration", (COLOURS[2], (0, (5, 1.5)))),
            ):
                if fts.where(every=1).height:
                    _regret(axes, fts.where(every=every), label, look)
                    axes.legend(loc="lower left")
    return sheet.finish(log_y=range(2))


def _regrets_by_length(axes: Axes, fts: Table) -> None:
    lengths = np.unique(fts["M"]).tolist()
    for i, M in enumerate(lengths, len(_BY_LENGTH) - len(lengths)):
        _regret(axes, fts.where(M=M), f"FTS, $M = {M}$", _BY_LENGTH[max(0, i)])


def _regrets_by_schedule(axes: Axes, fts: Table) -> None:
    for power, words, look in (
        (0.5, r"\sqrt{t}", (COLOUR["FTS"], "-")),
        (2.0, "t^2", (COLOURS[2], "-.")),
    ):
        _regret(axes, fts.where(power=power), f"FTS, $p_t = 1 - 1/{words}$", look)


def _regret(
    axes: Axes, table: Table, label: str, look: tuple[str, Any], column: str = "simple_regret"
) -> None:
    if table.height:
        runs = Runs("synthetic", "", table)
        columns = [cluster_means(values, runs.clusters) for values in runs.curve(column).T]
        curves = np.array(columns).T
        if column == "cumulative_regret":
            curves = curves[:, 1:] / np.arange(1, curves.shape[1])
        start = runs.T + 1 - curves.shape[1]
        strokes.band(axes, curves, label, *look, start=start)


def _fig2(material: Material) -> Figure:
    """Best performance after the last iteration against parameters per peer."""
    sheet = Sheet(material, REAL, height=2.9)
    for axes, data, runs in sheet.data_panels("numbers that a peer sends"):
        _by_length(axes, runs.where(every=0), data)
    strokes.methods_legend(sheet.figure)
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


def _fig3(material: Material) -> Figure:
    """Best performance against run time for target 0, and run time against the agents' number."""
    counted = int("agents" in material.runs["experiment"])
    sheet = Sheet(material, (*REAL, "agents"), more=counted, height=2.7)
    for axes, data, runs in sheet.data_panels("CPU seconds, evaluations counted", between=",\n"):
        _against_time(axes, runs.where(target=0), data)
    for preset, panels in sheet.rows if counted else ():
        title = f"(d) {DATA_SETS[0].title},\n{PRESET_NAMES[preset]}"
        name(panels[-1], title, "number of peers", "CPU seconds without evaluations")
        _dots(panels[-1], material.select("agents", preset), "N", _seconds_by_agents)
    strokes.methods_legend(sheet.figure)
    last = sheet.grid.shape[1] - 1
    return sheet.finish(log_x=range(last + 1), log_y=[last] * counted)


def _seconds_by_agents(arm: Table, method: str) -> tuple[float, float, float]:
    return float(arm["N"][0]), *_mean_and_error(Runs("", "", arm).clock[:, -1])


def _against_time(axes: Axes, runs: Table, data: DataSet) -> None:
    """The mean best performance at each moment; a run that has ended keeps its last value."""
    for method in METHODS:
        arm = _usual_arm(runs, method)
        if not arm.height:
            continue
        times = np.maximum(_total_seconds(arm), 1e-6)
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


def _fig4(material: Material) -> Figure:
    """Messages sent once, and before every iteration with growing t_n: target 0."""
    sheet = Sheet(material, REAL, height=2.8)
    for axes, data, all_targets in sheet.data_panels("iteration"):
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
        sheet = Sheet(material, [data.experiment], 5, height=2.4)
        for preset, panels in sheet.rows:
            runs = material.select(data.experiment, preset)
            for target, axes in enumerate(panels, 1):
                measure = data.measure if target == 1 else ""
                made_up = material.stand_in and data.experiment == "glass"
                title = f"{data.agent} {target}{' (made-up data)' * made_up}, {preset}"
                name(axes, title, "CPU seconds", measure)
                _against_time(axes, runs.where(target=target), data)
        strokes.methods_legend(sheet.figure)
        return sheet.finish(log_x=range(5))

    return paint_targets


def _published(material: Material) -> Figure:
    """The published setting: each method beside its published curve, and their differences."""
    figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    above, below = figure.subplots(2, len(METHODS), sharex=True, sharey="row")
    runs = material.select("published", "paper")
    for top, bottom, method in zip(above, below, METHODS, strict=True):
        first = method == METHODS[0]
        M = 0 if method == "TS" else _M
        name(top, f"{method}, $M = {M}$" if M else method, "", "mean best AUC" if first else "")
        name(bottom, "", "iteration", "fedbo less published" if first else "")
        own = runs.where(method=method)
        lengths = np.unique(own["M"]).tolist()
        for i, m in enumerate(lengths, len(_BY_LENGTH) - len(lengths)):
            arm, theirs = own.where(M=m), material.published.get(name_of(method, m))
            if m == M:
                strokes.band(top, curves_of(arm, "best"), "fedbo", COLOUR[method], "-")
            if theirs is not None:
                look = (COLOUR[method], "-") if m == M else (strokes.INK, _BY_LENGTH[i][1])
                _beside(top if m == M else None, bottom, arm, theirs, f"M = {m}", look)
        if own.height:
            top.legend(loc="lower right")
            bottom.axhline(0.0, color=strokes.INK, linewidth=0.8)
            if method == "FTS":  # the styles are the same in all panels
                bottom.legend(loc="lower right", ncols=2)
    return figure


def _beside(
    top: Axes | None,
    bottom: Axes,
    arm: Table,
    theirs: Curve,
    label: str,
    look: tuple[str, Any],
) -> None:
    """A published curve, and our mean difference to it with two standard errors."""
    apart = differences(arm, theirs)
    if top is not None:
        mean, error = np.asarray(theirs.mean), np.asarray(theirs.se)
        t = np.arange(len(mean))
        strokes.line(top, t, mean, error, "published", strokes.INK, (0, (4, 2)))
    if len(apart):
        mean, error = mean_and_error(apart)
        reach = 2 * error if top is not None else np.zeros_like(error)
        strokes.line(bottom, np.arange(len(mean)), mean, reach, label, *look)


_ERRORS = "Shaded: one standard error on either side of the mean."
_OVER_FUNCTIONS = "Shaded: one standard error over functions."
_TIME = f"Best performance so far against CPU seconds, evaluations counted; M = 100. {_ERRORS}"

#: The title, the caption and the painter of each figure, by name.
FIGURES: dict[str, tuple[str, str, Callable[[Material], Figure]]] = {
    "fig1": (
        "Figure 1: synthetic functions",
        "Simple regret of TS and FTS, averaged over functions and initialisations: the effect of "
        "M when peers have (a) few and (b) many observations, and peers whose functions are very "
        "different, with (c) few and (d) many observations. Both (c) and (d) are the paper's "
        f"figure 1c, for which it gives no t_n. {_OVER_FUNCTIONS}",
        _fig1,
    ),
    "fig1-cumulative": (
        "Figure 1, cumulative regret",
        "The cumulative regret until iteration t, divided by t: no regret means that it goes to 0. "
        "A query at exactly the point of an earlier one is replaced by a random one, as in the "
        f"authors' code, which costs regret here. {_OVER_FUNCTIONS}",
        _cumulative,
    ),
    "fig1-messages": (
        "Messages that come once, or before every iteration",
        "Simple regret of FTS if every peer sends one message before the first iteration, and if "
        "every peer sends a new draw from the same belief before each iteration (t_n fixed, "
        f"d_n = 0.02, M = 100). {_OVER_FUNCTIONS}",
        _messages,
    ),
    "fig2": (
        "Figure 2: performance against the length of a message",
        "Best performance after the last iteration against how many numbers each peer sends, for "
        "M = 50, 100, 150, 200. Points closer to the bottom left are better. Of a symmetric matrix "
        "one triangle is sent, so RGPE and TAF send half of the paper's M² numbers. Bars: one "
        "standard error over all runs.",
        _fig2,
    ),
    "fig3": (
        "Figure 3: performance against run time, and run time against the number of agents",
        f"(a)–(c) {_TIME} The target is the first agent. (d) CPU seconds of 50 iterations, "
        "evaluations not counted, against the number of peers.",
        _fig3,
    ),
    "fig4": (
        "Figure 4: growing t_n",
        "Best performance so far if messages are sent once, and if peers continue and send a new "
        f"message before every iteration. The target is the first agent, M = 100. {_ERRORS} With "
        "p_t = 1 − 1/t² (paper preset) FTS is expected to follow 0.9 messages in a run, and none "
        "in 38 % of runs, so the curves can hardly differ.",
        _fig4,
    ),
    **{
        f"appendix-{data.experiment}": (
            f"Appendix: {data.title}, the other five targets",
            _TIME,
            _appendix(data),
        )
        for data in DATA_SETS
    },
    "published": (
        "The published setting, repeated",
        "Above: mean best AUC from the published initial points, scored by SVC(probability=True) "
        f"and maximised by DIRECT as in the authors' code, beside their curves; M = 100. {_ERRORS} "
        "Below: the mean difference (fedbo less published) between runs of the same field and "
        "initial points, for each M. Shaded: two standard errors at M = 100.",
        _published,
    ),
}
