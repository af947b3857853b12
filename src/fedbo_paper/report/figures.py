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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.insight.colours import COLOURS
from fedbo.table import Table
from fedbo_paper.experiments.published import Curve
from fedbo_paper.experiments.results import elapsed
from fedbo_paper.experiments.sides import Floats, Runs
from fedbo_paper.experiments.spec import PRESET_NAMES, REAL
from fedbo_paper.harness.intervals import cluster_means, mean_and_error
from fedbo_paper.report import strokes
from fedbo_paper.report.strokes import COLOUR, METHODS, STYLE, WIDTH, name, shade

_M = 100  # the paper's choice in every figure that does not vary M
_APART = {"FTS": 1.0, "RGPE": 0.95, "TAF": 1.05}  # keeps equal lengths of RGPE and TAF visible
_MOMENTS = 100  # at which a curve against time is drawn
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
    svg: str


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What figures are drawn from.

    Args:
        runs: The table of all trials.
        published: The authors' curves by name ("TS", "FTS-M100", …).
        stand_in: Whether the runs of "glass" used made-up data.

    >>> Material(runs=Table({"experiment": ["har"], "preset": ["default"]})).presets("har")
    ['default']
    """

    runs: Table
    published: Mapping[str, Curve] = {}
    stand_in: bool = False

    def select(self, experiment: str, preset: str) -> Table:
        """Return the runs of an experiment with a preset."""
        return self.runs.where(experiment=experiment, preset=preset)

    def presets(self, *experiments: str) -> list[str]:
        """Return the presets of these experiments; ["paper"], for an empty row, if none was run."""
        run = {*self.runs["preset"][np.isin(self.runs["experiment"], experiments)].tolist()}
        return [preset for preset in PRESET_NAMES if preset in run] or ["paper"]


class DataSet(NamedTuple):
    """A data set of section 5.2, and what is drawn of its scores."""

    experiment: str
    title: str
    agent: str
    measure: str

    def loss(self, runs: Table) -> Floats:
        """The best scores so far, turned so that lower is better: (R, T + 1)."""
        best = _curves(runs, "best")
        return 1.0 - best if self.experiment == "landmine" else best


DATA_SETS = (
    DataSet("landmine", "landmine detection", "field", "1 − AUC"),
    DataSet("glass", "Google Glass", "person", "validation error"),
    DataSet("har", "mobile phones", "person", "validation error"),
)


def draw(material: Material, folder: Path, only: Sequence[str]) -> dict[str, Picture]:
    """Write each figure that has data as PNG and SVG; the same runs give the same files.

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
    """Write a figure as PNG and SVG, and return the SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(strokes.RC):
        figure.savefig(f"{path}.png", dpi=160, metadata={"Software": None})
        figure.set_layout_engine("none")  # the SVG keeps the layout of the PNG
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    Path(f"{path}.svg").write_bytes(file.getvalue())
    return file.getvalue()


def paint(wanted: str, material: Material) -> Figure:
    """Draw one of `FIGURES`."""
    with matplotlib.rc_context(strokes.RC):
        figure = FIGURES[wanted][2](material)
        for axes in figure.axes:
            if not axes.has_data():
                strokes.say_not_run(axes)
    return figure


def _curves(runs: Table, column: str) -> Floats:
    """A column after each iteration of each run, 0 after the initial points: (R, T + 1)."""
    return Runs("", "", runs).curve(column)


def _total_seconds(runs: Table) -> Floats:
    """The CPU seconds since the start of each run, evaluations included: (R, T + 1)."""
    columns = {column: runs[column] for column in runs.columns}
    return _curves(Table(columns | {"elapsed": elapsed(runs)}), "elapsed")


class _Sheet:
    """A figure with a row of panels for each preset that was run."""

    def __init__(
        self,
        material: Material,
        experiments: Sequence[str],
        columns: int,
        height: float,
        share: Any = "col",
    ) -> None:
        self.material = material
        presets = material.presets(*experiments)
        size = (WIDTH, 0.4 + height * len(presets))
        self.figure = Figure(figsize=size, layout="constrained")
        self.grid = self.figure.subplots(
            len(presets), columns, squeeze=False, sharex="col", sharey=share
        )
        self.rows: list[tuple[str, list[Axes]]] = [
            (preset, [*panels]) for preset, panels in zip(presets, self.grid, strict=True)
        ]

    def data_panels(self, x: str, between: str = ", ") -> Iterator[tuple[Axes, DataSet, Table]]:
        """The panels of the real data sets, named, each with its runs."""
        for preset, panels in self.rows:
            for letter, axes, data in zip("abc", panels, DATA_SETS, strict=False):
                made_up = self.material.stand_in and data.experiment == "glass"
                title = f"({letter}) {data.title}{' (stand-in)' * made_up}{between}"
                name(axes, title + PRESET_NAMES[preset], x, data.measure)
                yield axes, data, self.material.select(data.experiment, preset)

    def finish(self, log_x: Sequence[int] = (), log_y: Sequence[int] = ()) -> Figure:
        """Make axes of some columns logarithmic, and label x only below the last panel with data.

        Nothing that is drawn here can be negative, so an axis ends just below 0.
        """
        for column, panels in enumerate(self.grid.T):
            for axes in panels if any(axes.has_data() for axes in panels) else ():
                if column in log_x:
                    strokes.logarithmic(axes, "x")
                if column in log_y:
                    strokes.logarithmic(axes, "y")
        for axes in self.grid.flat:
            low, high = axes.get_ylim()
            if low < 0:
                axes.set_ylim(bottom=-0.02 * high)
        for panels in self.grid.T:
            drawn = [axes for axes in panels if axes.has_data()] or [*panels]
            for axes in panels:
                axes.tick_params(labelbottom=axes is drawn[-1])
                if axes is not drawn[-1]:
                    axes.set_xlabel("")
        return self.figure


def _fig1(material: Material) -> Figure:
    """Synthetic functions: (a) t_n = 40, (b) t_n = 100, (c) d_n = 1.2."""
    sheet = _Sheet(material, ["synthetic"], 3, 2.8, share=True)
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


def _regret(axes: Axes, table: Table, label: str, colour: str, style: Any) -> None:
    if table.height:
        runs = Runs("synthetic", "", table)
        columns = [cluster_means(column, runs.clusters) for column in runs.curve("simple_regret").T]
        strokes.band(axes, np.array(columns).T, label, colour, style)


def _fig2(material: Material) -> Figure:
    """Best performance after the last iteration against parameters per peer."""
    sheet = _Sheet(material, REAL, 3, 2.9)
    for axes, data, runs in sheet.data_panels("parameters per peer"):
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
    sheet = _Sheet(material, (*REAL, "agents"), 4, 2.7)
    for axes, data, runs in sheet.data_panels("CPU seconds", between=",\n"):
        _against_time(axes, runs.where(target=0), data)
    for preset, panels in sheet.rows:
        title = f"(d) {DATA_SETS[0].title},\n{PRESET_NAMES[preset]}"
        name(panels[3], title, "number of peers", "CPU seconds of a run")
        _dots(panels[3], material.select("agents", preset), "N", _seconds_by_agents)
    strokes.methods_legend(sheet.figure)
    return sheet.finish(log_x=range(4), log_y=[3])


def _seconds_by_agents(arm: Table, method: str) -> tuple[float, float, float]:
    return float(arm["N"][0]), *_mean_and_error(_total_seconds(arm)[:, -1])


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
    sheet = _Sheet(material, REAL, 3, 2.8)
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
        sheet = _Sheet(material, [data.experiment], 5, 2.4)
        for preset, panels in sheet.rows:
            runs = material.select(data.experiment, preset)
            for target, axes in enumerate(panels, 1):
                measure = data.measure if target == 1 else ""
                name(axes, f"{data.agent} {target}, {preset}", "CPU seconds", measure)
                _against_time(axes, runs.where(target=target), data)
        strokes.methods_legend(sheet.figure)
        return sheet.finish(log_x=range(5))

    return paint_targets


def _published(material: Material) -> Figure:
    """The published setting: TS and FTS from the published initial points."""
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharex=True)
    middle.sharey(left)
    for axes, method in ((left, "TS"), (middle, "FTS")):
        title = method if method == "TS" else f"{method}, $M = {_M}$"
        name(axes, title, "iteration", "mean best AUC" if axes is left else "")
        arm = material.select("published", "paper").where(method=method)
        theirs = material.published.get(method if method == "TS" else f"{method}-M{_M}")
        if arm.height:
            best = _best_by_start(arm)
            strokes.band(axes, np.array([*best.values()]), "fedbo", COLOUR[method], "-")
            if theirs is not None:
                mean, error = np.asarray(theirs.mean), np.asarray(theirs.se)
                t = np.arange(len(mean))
                strokes.line(axes, t, mean, error, "published", strokes.INK, (0, (4, 2)))
                _differences(right, best, theirs, method)
            axes.legend(loc="lower right")
    name(right, "fedbo − published, paired, ± 2 standard errors", "iteration", "")
    if right.has_data():
        right.axhline(0.0, color=strokes.INK, linewidth=0.8)
        right.legend(loc="lower right")
    return figure


def _best_by_start(arm: Table) -> dict[tuple[int, int], Floats]:
    """The best AUC so far by (field, run), the mean over seeds."""
    runs = Runs("published", "", arm)
    starts = zip(runs.label("target").tolist(), runs.label("repeat").tolist(), strict=True)
    curves: dict[tuple[int, int], list[Floats]] = {}
    for start, curve in zip(starts, runs.best, strict=True):
        curves.setdefault(start, []).append(curve)
    return {start: np.mean(of_seeds, axis=0) for start, of_seeds in curves.items()}


def _differences(
    axes: Axes, best: Mapping[tuple[int, int], Floats], theirs: Curve, method: str
) -> None:
    """The mean difference between our runs and theirs, paired by (field, run)."""
    apart = []
    for (field, run), ours in best.items():
        if run in theirs.runs.get(field, {}):
            length = min(len(ours), len(theirs.mean))
            apart.append(ours[:length] - np.asarray(theirs.runs[field][run])[:length])
    if apart:
        mean, error = mean_and_error(np.array(apart))
        t = np.arange(len(mean))
        strokes.line(axes, t, mean, 2 * error, method, COLOUR[method], STYLE[method])


_ERRORS = "Shaded: one standard error on either side of the mean."
_TIME = f"Best performance so far against CPU seconds, evaluations included; M = 100. {_ERRORS}"

#: The title, the caption and the painter of each figure, by name.
FIGURES: dict[str, tuple[str, str, Callable[[Material], Figure]]] = {
    "fig1": (
        "Figure 1: synthetic functions",
        "Simple regret of TS and FTS, averaged over functions and initialisations: the effect of "
        "M when peers have (a) few and (b) many observations, and (c) peers whose functions are "
        "very different. Shaded: one standard error over functions.",
        _fig1,
    ),
    "fig2": (
        "Figure 2: performance against the length of a message",
        "Best performance after the last iteration against the number of parameters that each "
        "peer sends, for M = 50, 100, 150, 200. Points closer to the bottom left are better. "
        "Bars: one standard error over all runs.",
        _fig2,
    ),
    "fig3": (
        "Figure 3: performance against run time, and run time against the number of agents",
        f"(a)–(c) {_TIME} The target is the first agent. (d) Total CPU seconds of a run against "
        "the number of peers.",
        _fig3,
    ),
    "fig4": (
        "Figure 4: growing t_n",
        "Best performance so far if messages are sent once, and if peers continue and send a new "
        f"message before every iteration. The target is the first agent, M = 100. {_ERRORS}",
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
        "Mean best AUC from the published initial points, scored by SVC(probability=True) and "
        f"maximised by DIRECT as in the authors' code, together with their curves. {_ERRORS} "
        "Right: the mean difference between runs of the same field and initial points.",
        _published,
    ),
}
