"""Draws a figure with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedbo.optuna.plots.figure import GREY, Bars, Figure, Line, Panel, Points

_SYMBOLS = {
    **{"square": "s", "circle": "o", "diamond": "D", "triangle-up": "^", "cross": "P"},
    **{"x": "X", "line-ns-open": "|", "x-thin-open": "x"},
}
_STYLE: dict[Any, Any] = {  # what another style, such as Optuna's, would make hard to read
    **dict.fromkeys(("axes.facecolor", "figure.facecolor"), "white"),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "black"),
    **dict.fromkeys(("axes.grid", "axes.spines.right", "axes.spines.top", "legend.frameon"), False),
    **dict.fromkeys(("axes.labelsize", "axes.titlesize"), "medium"),
    **{"axes.titlelocation": "left", "font.size": 10, "legend.fontsize": "small"},
    "text.parse_math": False,  # a name may have a $ in it
}


def draw(described: Figure) -> Axes:
    """Draw a figure, and return the axes of its first panel."""
    with pyplot.rc_context(_STYLE):
        figure = pyplot.figure(figsize=described.size, layout="constrained")
        if described.empty:
            return _say(figure.subplots(), described)
        heights = [panel.height for panel in described.panels]
        rows = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
        for axes, panel in zip(rows[:, 0], described.panels, strict=True):
            _draw_panel(axes, panel)
        first: Axes = rows[0, 0]
        marks = described.panels[0].marks
        has_row_above = any(isinstance(mark, Points) and mark.is_above for mark in marks)
        first.set_title(described.title, pad=16 if has_row_above else 8)
        handles, labels = first.get_legend_handles_labels()
        if isinstance(marks[0], Bars):  # stacked from the bottom to the top
            handles, labels = handles[::-1], labels[::-1]
        if described.is_legend_inside:
            first.legend(handles, labels)
        else:
            figure.legend(handles, labels, loc="outside right upper")
    return first


def _say(axes: Axes, described: Figure) -> Axes:
    axes.set_title(described.title)
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": GREY}
    axes.text(0.5, 0.5, described.empty, transform=axes.transAxes, **look)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes


def _draw_panel(axes: Axes, panel: Panel) -> None:
    if panel.has_zero:
        axes.axhline(0.0, color=GREY, linewidth=0.8)
    for mark in panel.marks:
        if isinstance(mark, Line):
            _draw_line(axes, mark)
        elif isinstance(mark, Points):
            _draw_points(axes, mark)
        else:
            edges, ground = np.arange(len(mark.high) + 1) - 0.5, np.nan_to_num(mark.low)
            look: dict[str, Any] = {"fill": True, "color": mark.colour, "linewidth": 0}
            axes.stairs(mark.high, edges, baseline=ground, label=_label(mark.name), **look)
    axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel, ylim=panel.ylim)
    if panel.xlim is not None:
        axes.set_xlim(panel.xlim)
    if panel.is_percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


def _draw_line(axes: Axes, line: Line) -> None:
    axes.plot(
        line.x,
        line.y,
        color=line.colour,
        linestyle="--" if line.is_dashed else "-",
        drawstyle="steps-post" if line.is_stepped else "default",
        linewidth=1.5 if line.is_stepped else 1.8,
        marker="o" if line.is_one_point else "",
        label=_label(line.name) if line.name else None,
    )
    if line.error is not None:
        low, high = line.y - line.error, line.y + line.error
        axes.fill_between(line.x, low, high, color=line.colour, alpha=0.18, linewidth=0)


def _draw_points(axes: Axes, points: Points) -> None:
    look: dict[str, Any] = {"marker": _SYMBOLS[points.symbol], "zorder": 3}
    look |= {"s": 9 if points.is_small else 26, "color": points.colour}
    y = points.y
    if points.is_above:
        y = np.full(len(points.x), 1.03)  # of the panel's height
        size = 9 if points.symbol == "circle" else 25
        look |= {"s": size, "transform": axes.get_xaxis_transform(), "linewidths": 1.0}
    hollow = {**look, "color": None, "facecolors": "none", "edgecolors": points.colour}
    hollow["linewidths"] = 1.0  # so that the hole of a small symbol stays visible
    look = look if len(points.x) else hollow
    here, name = ~points.is_hollow, _label(points.name)
    axes.scatter(points.x[here], y[here], label=name, clip_on=not points.is_above, **look)
    if not here.all():
        axes.scatter(points.x[~here], y[~here], clip_on=False, **hollow)


def _label(name: str) -> str:
    """A name for the legend, which would leave out one that begins with an underscore."""
    return f" {name}" if name.startswith("_") else name
