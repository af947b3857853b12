"""Pictures like the paper's, from the tidy table of all runs.

A row of panels is drawn for each preset that was run, on common axes, so that what the paper's
settings cost can be seen. Down is better everywhere but beside the published curves, which are of
the AUC itself. A panel without runs says so.

Bands and bars are one standard error on either side of the mean. On synthetic functions it is over
functions, each the mean of its initialisations; on real data over all runs, as in the published
logs. So there it holds the differences between targets, and two bars that overlap may still belong
to a clear paired difference: `claims` judges those.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import matplotlib
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from fedbo.insight.style import COLOURS
from fedbo.table import Table
from fedbo_paper.experiments.spec import PRESET_NAMES
from fedbo_paper.harness.averages import mean_and_error
from fedbo_paper.report import curves, strokes
from fedbo_paper.report.captions import WORDS
from fedbo_paper.report.curves import Floats, where
from fedbo_paper.report.strokes import COLOUR, METHODS, STYLE, WIDTH, logarithmic, name, shade

_M = 100  # the paper's choice wherever message length is not what is varied
_APART = {"FTS": 1.0, "RGPE": 0.95, "TAF": 1.05}  # RGPE and TAF send the same: let both be seen
_GRID = 100  # moments at which a curve against time is drawn
_OURS: tuple[tuple[str, float, Any], ...] = (("paper", 0.3, "-"), ("default", -0.4, "-."))
_QUERIES = {"random": "random point", "message": "message", "best": "peer's best point"}
_THEIRS: Any = (0, (4, 2))
#: Shade and style of FTS by M; the largest, which all figures have, is the last.
_BY_LENGTH: tuple[tuple[float, Any], ...] = (
    (0.1, (0, (1, 3))),
    (0.55, (0, (1, 1))),
    (0.15, (0, (4, 1.5))),
    (-0.25, "-"),
)


class PublishedCurve(Protocol):
    """Best AUC of the authors' landmine runs after 0 … 50 iterations: mean, standard error.

    ``runs[field][run]`` is one run's.
    """

    @property
    def mean(self) -> ArrayLike: ...

    @property
    def se(self) -> ArrayLike: ...

    @property
    def runs(self) -> Mapping[int, Mapping[int, ArrayLike]]: ...


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """What queries of one kind score on average, and the standard error of it."""

    panel: str
    query: str
    mean: float
    se: float

    @classmethod
    def of(cls, table: Table, panel: str) -> tuple[Worth, ...]:
        """The scores in a table of `diagnostics.worth`, for a panel with this title.

        >>> table = Table({"quantity": ["message"], "mean": [0.7], "standard_error": [0.01]})
        >>> Worth.of(table, "landmine, paper preset")[0].query
        'message'
        """
        columns = (table[name].tolist() for name in ("quantity", "mean", "standard_error"))
        found = {quantity: (mean, se) for quantity, mean, se in zip(*columns, strict=True)}
        return tuple(
            cls(panel=panel, query=words, mean=found[quantity][0], se=found[quantity][1])
            for quantity, words in _QUERIES.items()
            if quantity in found
        )


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What pictures are drawn from.

    ``published`` has the authors' curves by name ("TS", "FTS-M100", …); ``worth`` what a message's
    query is worth; ``stand_in`` says that the runs of "glass" are not of Google Glass data.

    >>> Material(runs=Table({"experiment": ["har"], "preset": ["default"]})).presets("har")
    ['default']
    """

    runs: Table
    published: Mapping[str, PublishedCurve] = {}
    worth: tuple[Worth, ...] = ()
    stand_in: bool = False

    def of(self, experiment: str, preset: str) -> Table:
        """The runs of an experiment with a preset."""
        return self.runs.where(experiment=experiment, preset=preset)

    def presets(self, *experiments: str) -> list[str]:
        """The presets with which any of these were run; without any, one for a row of nothing."""
        found = {*self.runs["preset"][np.isin(self.runs["experiment"], experiments)].tolist()}
        return [preset for preset in PRESET_NAMES if preset in found] or ["paper"]


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A drawn figure, and all that a report says of it."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str


def draw(material: Material, folder: Path, only: Sequence[str] | None = None) -> dict[str, Picture]:
    """Write each figure that has data as PNG and SVG; the pictures for a report, by name.

    ``only`` names the figures that are wanted, of `NAMES`. The same runs give the same files.

    >>> draw(Material(runs=Table.from_rows(["experiment", "preset"], [])), Path("unused"))
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
            figure.set_layout_engine("none")  # keeps the places that were just found
            svg = _svg(figure)
        (folder / f"{wanted}.svg").write_text(svg, encoding="utf-8")
        pictures[wanted] = Picture(name=wanted, svg=svg, **WORDS[wanted]._asdict())
    return pictures


def paint(wanted: str, material: Material) -> Figure:
    """One figure of `NAMES`.

    >>> nothing = Material(runs=Table.from_rows(["experiment", "preset"], []))
    >>> [axes.texts[0].get_text() for axes in paint("fig1", nothing).axes]
    ['not run', 'not run', 'not run']
    """
    if wanted not in _PAINTERS:
        raise ValueError(f"there is no figure {wanted!r}, only {', '.join(_PAINTERS)}")
    with matplotlib.rc_context(strokes.RC):
        figure = _PAINTERS[wanted](material)
        for axes in figure.axes:
            if not axes.has_data():
                strokes.say_not_run(axes)
    return figure


def _svg(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue().decode()


class _DataSet(NamedTuple):
    """A data set of section 5.2, and what is drawn of its scores."""

    experiment: str
    title: str
    agent: str
    measure: str

    def loss(self, runs: Table) -> Floats:
        """Of the best scores so far what is the better the lower it is: (R, T + 1)."""
        best = curves.stack(curves.of_runs(runs, "best"))
        return 1.0 - best if self.experiment == "landmine" else best

    def heading(self, letter: str, preset: str, stand_in: bool, between: str = ", ") -> str:
        title = (
            f"{self.title} (stand-in)" if stand_in and self.experiment == "glass" else self.title
        )
        return f"({letter}) {title}{between}{PRESET_NAMES[preset]}"


_DATA_SETS = (
    _DataSet("landmine", "landmine detection", "field", "1 − AUC"),
    _DataSet("glass", "Google Glass", "person", "validation error"),
    _DataSet("har", "mobile phones", "person", "validation error"),
)
_REAL = tuple(data.experiment for data in _DATA_SETS)


class _Sheet:
    """A figure with a row of panels for each preset that was run."""

    def __init__(
        self,
        material: Material,
        experiments: Sequence[str],
        columns: int,
        height: float,
        share: Any,
    ) -> None:
        presets = material.presets(*experiments)
        size = (WIDTH, 0.4 + height * len(presets))
        self.figure = Figure(figsize=size, layout="constrained")
        self.grid = self.figure.subplots(
            len(presets), columns, squeeze=False, sharex="col", sharey=share
        )
        self.rows: list[tuple[str, list[Axes]]] = [
            (preset, [*panels]) for preset, panels in zip(presets, self.grid, strict=True)
        ]

    def finish(self, *logarithmic_axes: tuple[int, Any]) -> Figure:
        """With (column, axis) logarithmic, and x labelled below the last panel with data only.

        Nothing that is drawn here can be negative, so an axis ends just below 0.
        """
        for column, which in logarithmic_axes:
            if any(axes.has_data() for axes in self.grid[:, column]):
                for axes in self.grid[:, column]:
                    logarithmic(axes, which)
        for axes in self.grid.flat:
            low, high = axes.get_ylim()
            if low < 0:
                axes.set_ylim(bottom=-0.02 * high)
        for column in self.grid.T:
            drawn = [axes for axes in column if axes.has_data()] or [*column]
            for axes in column:
                axes.tick_params(labelbottom=axes is drawn[-1])
                if axes is not drawn[-1]:
                    axes.set_xlabel("")
        return self.figure


def _fig1(material: Material) -> Figure:
    """Synthetic functions: (a) t_n = 40, (b) t_n = 100, (c) d_n = 1.2."""
    sheet = _Sheet(material, ["synthetic"], 3, 2.8, share=True)
    titles = (
        "(a) $t_n = 40$, $d_n = 0.02$",
        "(b) $t_n = 100$, $d_n = 0.02$",
        "(c) $t_n = 100$, $d_n = 1.2$",
    )
    for preset, panels in sheet.rows:
        runs = material.of("synthetic", preset)
        for axes, title in zip(panels, titles, strict=True):
            label = "simple regret" if axes is panels[0] else ""
            name(axes, f"{title}, {PRESET_NAMES[preset]}", "iteration", label)
        _regrets_by_length(panels[0], runs, 40)
        _regrets_by_length(panels[1], runs, 100)
        _regrets_by_schedule(panels[2], runs)
        for axes in panels:
            if axes.has_data():
                axes.legend(loc="upper right")
    return sheet.finish()


def _regrets_by_length(axes: Axes, runs: Table, t_n: int) -> None:
    near = where(runs, method="FTS", t_n=t_n, d_n=0.02)
    if not near.height:
        return
    _regret(axes, where(runs, method="TS"), "TS", COLOUR["TS"], STYLE["TS"])
    lengths = np.unique(near["M"]).tolist()
    for i, M in enumerate(lengths, len(_BY_LENGTH) - len(lengths)):
        towards, style = _BY_LENGTH[max(0, i)]
        _regret(axes, near.where(M=M), f"FTS, $M = {M}$", shade(COLOUR["FTS"], towards), style)


def _regrets_by_schedule(axes: Axes, runs: Table) -> None:
    far = where(runs, method="FTS", d_n=1.2, t_n=100)
    if not far.height:
        return
    _regret(axes, where(runs, method="TS"), "TS", COLOUR["TS"], STYLE["TS"])
    for power, words, towards, style in ((0.5, r"\sqrt{t}", 0.0, "-"), (2.0, "t^2", -0.45, "-.")):
        colour = shade(COLOUR["FTS"], towards)
        _regret(axes, far.where(power=power), f"FTS, $p_t = 1 - 1/{words}$", colour, style)


def _regret(axes: Axes, runs: Table, label: str, colour: str, style: Any) -> None:
    if runs.height:
        functions = curves.average(curves.of_runs(runs, "simple_regret"), lambda run: run[0])
        strokes.band(axes, curves.stack(functions), label, colour, style)


def _fig2(material: Material) -> Figure:
    """Best performance after the last iteration against parameters per peer."""
    sheet = _Sheet(material, _REAL, 3, 2.9, share="col")
    for preset, panels in sheet.rows:
        for letter, axes, data in zip("abc", panels, _DATA_SETS, strict=True):
            heading = data.heading(letter, preset, material.stand_in)
            name(axes, heading, "parameters per peer", data.measure)
            runs = where(material.of(data.experiment, preset), every=0)
            _by_length(axes, runs, data)
            if runs.height and data.experiment == "landmine" and preset == "paper":
                _published_by_length(axes, material.published)
    strokes.methods_legend(sheet.figure, published=bool(material.published))
    return sheet.finish(*((column, "x") for column in range(3)))


def _by_length(axes: Axes, runs: Table, data: _DataSet) -> None:
    """A point for each M of a method, and a level for TS, which receives nothing."""
    for method in METHODS[1:]:
        arms = where(runs, method=method)
        points = []
        for M in np.unique(arms["M"]).tolist() if arms.height else ():
            arm = arms.where(M=M)
            mean, error = mean_and_error(data.loss(arm)[:, -1])
            per_peer = arm["parameters_received"][-1] / arm["N"][-1]
            points.append((_APART[method] * per_peer, float(mean), float(error)))
        if points:
            strokes.dots(axes, np.array(points), method)
    alone = where(runs, method="TS")
    if alone.height:
        mean, error = mean_and_error(data.loss(alone)[:, -1])
        strokes.level(axes, float(mean), float(error), "TS")
    axes.margins(x=0.1, y=0.1)


def _published_by_length(axes: Axes, published: Mapping[str, PublishedCurve]) -> None:
    """The same of the authors' runs; as the paper counts, a belief has M + M² parameters."""
    for method in METHODS[1:]:
        points = []
        for M in (50, 100, 150, 200):
            curve = published.get(f"{method}-M{M}")
            if curve is not None:
                parameters = _APART[method] * (M if method == "FTS" else M + M**2)
                points.append((parameters, *_published_end(curve)))
        if points:
            strokes.dots(axes, np.array(points), method, muted=True)
    if "TS" in published:
        mean, _ = _published_end(published["TS"])
        axes.axhline(mean, color=shade(COLOUR["TS"], 0.5), linestyle=":", zorder=0)


def _published_end(curve: PublishedCurve) -> tuple[float, float]:
    return 1.0 - float(np.asarray(curve.mean)[-1]), float(np.asarray(curve.se)[-1])


def _fig3(material: Material) -> Figure:
    """Best performance against run time for target 0, and run time against the agents' number."""
    sheet = _Sheet(material, (*_REAL, "agents"), 4, 2.7, share="col")
    for preset, panels in sheet.rows:
        for letter, axes, data in zip("abc", panels, _DATA_SETS, strict=False):
            heading = data.heading(letter, preset, material.stand_in, between=",\n")
            name(axes, heading, "CPU seconds", data.measure)
            _against_time(axes, where(material.of(data.experiment, preset), target=0), data)
        heading = _DATA_SETS[0].heading("d", preset, material.stand_in, between=",\n")
        name(panels[3], heading, "number of peers", "CPU seconds of a run")
        _against_agents(panels[3], material.of("agents", preset))
    strokes.methods_legend(sheet.figure)
    return sheet.finish(*((column, "x") for column in range(4)), (3, "y"))


def _against_time(axes: Axes, runs: Table, data: _DataSet) -> None:
    """Mean best performance of the runs at each moment; one that is done keeps what it has."""
    for method in METHODS:
        arm = where(runs, method=method, every=0)
        arm = arm if method == "TS" else where(arm, M=_M)
        if not arm.height:
            continue
        times = np.maximum(curves.stack(curves.elapsed(arm)), 1e-6)
        moments = np.geomspace(times[:, 0].max(), times[:, -1].max(), _GRID)
        steps = [
            loss[np.searchsorted(time, moments, side="right") - 1]
            for time, loss in zip(times, data.loss(arm), strict=True)
        ]
        mean, error = mean_and_error(np.array(steps))
        strokes.line(axes, moments, mean, error, method, COLOUR[method], STYLE[method])


def _against_agents(axes: Axes, runs: Table) -> None:
    """Total seconds against N, and below them the part that no method can save."""
    spent: dict[int, list[float]] = {}
    for method in METHODS[1:]:
        arms = where(runs, method=method)
        points = []
        for N in np.unique(arms["N"]).tolist() if arms.height else ():
            arm = arms.where(N=N)
            mean, error = mean_and_error(curves.stack(curves.elapsed(arm))[:, -1])
            points.append((N, float(mean), float(error)))
            evaluating = curves.stack(curves.evaluating(arm))[:, -1]
            spent.setdefault(N, []).append(float(evaluating.mean()))
        if points:
            strokes.dots(axes, np.array(points), method)
    if spent:
        N, seconds = sorted(spent), [float(np.mean(spent[N])) for N in sorted(spent)]
        axes.plot(N, seconds, ":", color=strokes.GREY, linewidth=1)
        strokes.tag(axes, "evaluations alone", N[0], seconds[0])


def _fig4(material: Material) -> Figure:
    """Messages sent once, and before every iteration with growing t_n: target 0."""
    sheet = _Sheet(material, _REAL, 3, 2.8, share="col")
    for preset, panels in sheet.rows:
        for letter, axes, data in zip("abc", panels, _DATA_SETS, strict=True):
            heading = data.heading(letter, preset, material.stand_in)
            name(axes, heading, "iteration", data.measure)
            runs = where(material.of(data.experiment, preset), target=0)
            federated = where(runs, method="FTS", M=_M)
            growing, once = where(federated, every=1), where(federated, every=0)
            if not growing.height:
                continue
            for arm, label, colour, style in (
                (where(runs, method="TS"), "TS", COLOUR["TS"], STYLE["TS"]),
                (once, "FTS, sent once", COLOUR["FTS"], "-"),
                (growing, "FTS, growing $t_n$", COLOURS[2], "-."),
            ):
                if arm.height:
                    strokes.band(axes, data.loss(arm), label, colour, style)
            axes.legend(loc="upper right")
    return sheet.finish()


def _appendix(data: _DataSet) -> Callable[[Material], Figure]:
    """Targets 1 to 5 of a data set, as figure 3 has target 0."""

    def paint_targets(material: Material) -> Figure:
        sheet = _Sheet(material, [data.experiment], 5, 2.4, share="col")
        for preset, panels in sheet.rows:
            runs = material.of(data.experiment, preset)
            for target, axes in enumerate(panels, 1):
                measure = data.measure if target == 1 else ""
                name(axes, f"{data.agent} {target}, {preset}", "CPU seconds", measure)
                _against_time(axes, where(runs, target=target), data)
        strokes.methods_legend(sheet.figure)
        return sheet.finish(*((column, "x") for column in range(5)))

    return paint_targets


def _landmine_curves(material: Material) -> Figure:
    """A panel for each method: the authors' curve, and ours with each preset."""
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    panels = figure.subplots(1, len(METHODS), sharex=True, sharey=True)
    for axes, method in zip(panels, METHODS, strict=True):
        name(axes, _with_length(method), "iteration", "mean best AUC" if method == "TS" else "")
        for preset, towards, style in _OURS:
            runs = where(material.of("landmine", preset), method=method, every=0)
            runs = runs if method == "TS" else where(runs, M=_M)
            if runs.height:
                best = curves.stack(curves.of_runs(runs, "best"))
                strokes.band(axes, best, preset, shade(COLOUR[method], towards), style)
        if axes.has_data():
            _published_curve(axes, material.published, method)
    if strokes.has_data(figure):
        greys = [
            Line2D(
                [], [], color=shade("#777777", towards), linestyle=style, label=PRESET_NAMES[preset]
            )
            for preset, by, style in _OURS
        ]
        theirs = Line2D([], [], color=strokes.INK, linestyle=_THEIRS, label="published")
        figure.legend(handles=[theirs, *greys], loc="outside upper center", ncols=3)
    return figure


def _published(material: Material) -> Figure:
    """The published setting itself: TS and FTS from the published initial points."""
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharex=True)
    middle.sharey(left)
    runs = material.of("published", "paper")
    for axes, method in ((left, "TS"), (middle, "FTS")):
        name(axes, _with_length(method), "iteration", "mean best AUC" if axes is left else "")
        arm = where(runs, method=method)
        if arm.height:
            best = curves.average(curves.of_runs(arm, "best"), lambda run: run[:2])
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
    axes: Axes, best: Mapping[Any, Floats], published: Mapping[str, PublishedCurve], method: str
) -> None:
    """How far each of ours, by (field, run), is from theirs on average."""
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


def _published_curve(axes: Axes, published: Mapping[str, PublishedCurve], method: str) -> None:
    curve = published.get(_published_name(method))
    if curve is not None:
        mean, se = np.asarray(curve.mean), np.asarray(curve.se)
        strokes.line(axes, np.arange(len(mean)), mean, se, "published", strokes.INK, _THEIRS)


def _diagnostics(material: Material) -> Figure:
    """What a query is worth by where it comes from; dots, for the axis does not start at 0."""
    panels = [*dict.fromkeys(worth.panel for worth in material.worth)] or ["landmine detection"]
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    grid = figure.subplots(1, len(panels), sharex=True, squeeze=False)
    for axes, panel in zip(grid[0], panels, strict=True):
        shown = [worth for worth in material.worth if worth.panel == panel]
        name(axes, panel, "mean score of the query", "")
        for i, worth in enumerate(shown):
            colour = COLOUR["FTS"] if "message" in worth.query else strokes.GREY
            error = np.nan_to_num(worth.se)
            axes.errorbar(worth.mean, i, xerr=error, fmt="o", color=colour, capsize=3)
        if shown:
            axes.set_yticks(range(len(shown)), [worth.query for worth in shown])
            axes.set_ylim(len(shown) - 0.5, -0.5)
            axes.grid(axis="x", color="#E4E4E4", linewidth=0.8)
    return figure


_PAINTERS: dict[str, Callable[[Material], Figure]] = {
    "fig1": _fig1,
    "fig2": _fig2,
    "fig3": _fig3,
    "fig4": _fig4,
    **{f"appendix-{data.experiment}": _appendix(data) for data in _DATA_SETS},
    "landmine-curves": _landmine_curves,
    "published": _published,
    "diagnostics": _diagnostics,
}
NAMES = tuple(_PAINTERS)
