"""The look of the paper's figures: colours and line styles of the methods, and how to draw them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from fedbo.insight.colours import COLOURS
from fedbo_paper.harness.intervals import Floats, mean_and_error

METHODS = ("TS", "FTS", "RGPE", "TAF")
COLOUR = dict(zip(METHODS, COLOURS, strict=False))
STYLE: dict[str, Any] = dict(zip(METHODS, ("--", "-", "-.", (0, (1, 1.2))), strict=True))
MARKER = dict(zip(METHODS, ("", "o", "s", "^"), strict=True))
GREY = "#707070"
INK = "#333333"
WIDTH = 11.0  # inches
RC: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "font.size": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "svg.hashsalt": "fedbo",  # the same runs give the same file; see also `metadata` in `draw`
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
}


def name(axes: Axes, title: str, x: str, y: str) -> None:
    """Set the title and the labels of axes."""
    axes.set(title=title, xlabel=x, ylabel=y)
    if x == "iteration":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def has_data(figure: Figure) -> bool:
    """Return whether anything is drawn on the figure."""
    return any(axes.has_data() for axes in figure.axes)


def band(
    axes: Axes, curves: Floats, label: str, colour: str, style: Any, *, start: int = 0
) -> None:
    """Draw the mean of curves (R, n) at iterations from ``start`` on; the band is one error."""
    mean, error = mean_and_error(curves)
    line(axes, start + np.arange(len(mean)), mean, error, label, colour, style)


def line(
    axes: Axes, x: NDArray[Any], mean: Floats, error: Floats, label: str, colour: str, style: Any
) -> None:
    """Draw a curve and a band; an error that is NaN, for a single run, gives no band."""
    error = np.nan_to_num(error)
    axes.plot(x, mean, linestyle=style, color=colour, label=label, linewidth=1.6)
    axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.14, linewidth=0)


def dots(axes: Axes, points: Floats, method: str) -> None:
    """Draw the points (x, mean, error) of a method, joined."""
    x, mean, error = points.T
    axes.errorbar(
        *(x, mean, np.nan_to_num(error)),
        color=COLOUR[method],
        marker=MARKER[method],
        markersize=5,
        linestyle=STYLE[method],
        linewidth=1.5,
        capsize=2,
        elinewidth=0.9,
    )


def level(axes: Axes, mean: float, error: float, method: str) -> None:
    """Draw a mean that does not depend on x, with a band of one standard error."""
    half = float(np.nan_to_num(error))
    axes.axhline(mean, color=COLOUR[method], linestyle=STYLE[method], zorder=1)
    axes.axhspan(mean - half, mean + half, color=COLOUR[method], alpha=0.12, linewidth=0)


def logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, with plain numbers as labels; call this after drawing the data."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 40 * low else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def methods_legend(figure: Figure) -> None:
    """Draw one legend of the methods above all panels."""
    if not has_data(figure):
        return
    handles = [
        Line2D([], [], color=COLOUR[m], linestyle=STYLE[m], marker=MARKER[m], markersize=5, label=m)
        for m in METHODS
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))


def shade(colour: str, towards: float) -> str:
    """Return the colour mixed with white (towards 1) or with black (towards −1).

    >>> shade("#000000", 1.0), shade("#FFFFFF", -0.5)
    ('#ffffff', '#808080')
    """
    end = np.ones(3) if towards > 0 else np.zeros(3)
    r, g, b = (1 - abs(towards)) * np.array(to_rgb(colour)) + abs(towards) * end
    return to_hex((float(r), float(g), float(b)))
