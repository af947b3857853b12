"""Draws a figure with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedbo.optuna.plots.figure import GREY, Bars, Figure, Line, Panel, Points

_SYMBOLS = {"square": "s", "circle": "o", "diamond": "D"}
_SYMBOLS |= {"triangle-up": "^", "cross": "P", "x": "X"}
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
        heights = [panel.height for panel in described.panels] or [1.0]
        rows = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
        first: Axes = rows[0, 0]
        first.set_title(described.title)
        if described.empty:
            look: dict[str, Any] = {"ha": "center", "va": "center", "color": GREY}
            first.text(0.5, 0.5, described.empty, transform=first.transAxes, **look)
            first.set(xticks=[], yticks=[])
            first.spines[:].set_visible(False)
            return first
        for axes, panel in zip(rows[:, 0], described.panels, strict=True):
            _draw_panel(axes, panel)
        handles, labels = first.get_legend_handles_labels()
        if isinstance(described.panels[0].marks[0], Bars):  # stacked from the bottom to the top
            handles, labels = handles[::-1], labels[::-1]
        if described.is_legend_inside:
            first.legend(handles, labels)
        else:
            figure.legend(handles, labels, loc="outside right upper")
    return first


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
    axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.set_xlim(panel.xlim)
    axes.set_ylim(panel.ylim)
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
        marker="o" if line.is_one_point else "",
        label=_label(line.name) if line.name else None,
    )
    if line.error is not None:
        low, high = line.y - line.error, line.y + line.error
        axes.fill_between(line.x, low, high, color=line.colour, alpha=0.18, linewidth=0)


def _draw_points(axes: Axes, points: Points) -> None:
    faces = [*np.where(points.is_hollow, "none", points.colour)]
    look: dict[str, Any] = {"marker": _SYMBOLS[points.symbol], "s": 26, "zorder": 3}
    look |= {"edgecolors": points.colour, "clip_on": False}
    axes.scatter(points.x, points.y, facecolors=faces, label=_label(points.name), **look)


def _label(name: str) -> str:
    """A name for the legend, which would leave out one that begins with an underscore."""
    return f" {name}" if name.startswith("_") else name
