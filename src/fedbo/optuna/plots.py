"""Pictures of studies, drawn with matplotlib, beside those of `optuna.visualization.matplotlib`.

As there, each function gives the `Axes`: ``plot_history(study).figure.savefig("history.png")``
writes a file, and ``matplotlib.pyplot.show()`` opens a window. `fedbo.optuna.plotly` draws the same
with plotly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from optuna.study import Study

from fedbo.optuna import curves
from fedbo.optuna.curves import COLOURS, ITSELF, PEER_COLOURS

try:
    from matplotlib import pyplot
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator, PercentFormatter
except ImportError as error:
    raise ImportError(
        "These pictures need matplotlib, which fedbo does not bring along by itself: "
        "pip install matplotlib. With plotly installed, fedbo.optuna.plotly draws the same."
    ) from error

_MARKERS = {"initial": "s", "own": "o", "pool": "D", "peer": "^", "told": "X"}
_VALUELESS = {"pruned": "|", "failed": "x", "running": "."}
_GREY = "#666666"
_RC: dict[Any, Any] = {  # what another style, such as Optuna's, would make hard to read
    "axes.facecolor": "white",
    "axes.edgecolor": "black",
    "axes.labelcolor": "black",
    "axes.labelsize": "medium",
    "axes.grid": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "figure.facecolor": "white",
    "font.size": 10,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "text.parse_math": False,  # a name may have a $ in it
    "xtick.color": "black",
    "ytick.color": "black",
}


def plot_history(study: Study, baseline: Study | None = None) -> Axes:
    """Draw the value of every trial by the source of its query, and the best one so far.

    ``baseline`` is a study of the same objective that was run alone: its best value so far is drawn
    too. Values that are infinite, or so far off that nothing else could be seen, are hollow at the
    edge. Trials without a value are above the picture.
    """
    drawn = curves.history(study, baseline)
    with _figure(7.5, 4.2) as figure:
        axes = figure.subplots()
        axes.set_title(drawn.title, pad=16 if drawn.valueless else 8)
        if drawn.empty:
            return _say(axes, drawn.empty)
        _draw_best(axes, drawn)
        _draw_dots(axes, drawn)
        _draw_valueless(axes, drawn)
        last = max(len(drawn.best), 0 if drawn.baseline is None else len(drawn.baseline)) - 1
        axes.set_xlim(-0.6, last + 0.6)
        axes.set_ylim(drawn.low, drawn.high)
        _whole(axes)
        axes.set(xlabel="trial", ylabel=drawn.metric)
        handles, labels = axes.get_legend_handles_labels()
        if drawn.outside:
            look: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "color": _GREY}
            handles.append(Line2D([], [], linestyle="none", markersize=5, **look))
            labels.append(f"far off, at the edge ({drawn.outside})")
        figure.legend(handles, labels, loc="outside right upper")
    return axes


def plot_peers(study: Study) -> Axes:
    """Draw how much the policy counted on each peer when it chose each trial.

    The weights of the peers are stacked; what is missing to 1 counted on the agent itself. Trials
    that weighed no peers are left white.
    """
    drawn = curves.peers(study)
    with _figure(7.5, 3.8) as figure:
        axes = figure.subplots()
        axes.set_title(drawn.title)
        if drawn.empty:
            return _say(axes, drawn.empty)
        edges = np.arange(drawn.weights.shape[1] + 1) - 0.5
        floor = np.where(np.isnan(drawn.weights[0]), np.nan, 0.0)
        tops = np.vstack([floor, np.cumsum(drawn.weights, axis=0), floor + 1.0])
        colours = [*PEER_COLOURS[: len(drawn.names)], ITSELF]
        for low, high, colour in zip(tops[:-1], tops[1:], colours, strict=True):
            low = np.where(np.isnan(low), 0.0, low)
            axes.stairs(high, edges, baseline=low, fill=True, color=colour, linewidth=0)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0.0, 1.0)
        _whole(axes)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        white = bool(np.isnan(floor).any())
        axes.set(xlabel=f"trial{' (white: it weighed no peers)' if white else ''}", ylabel="weight")
        names = [*drawn.names, drawn.itself]
        patches = [Patch(color=colour) for colour in colours]
        figure.legend(patches[::-1], _labels(names)[::-1], loc="outside right upper")
    return axes


def plot_together(studies: Sequence[Study], baselines: Sequence[Study]) -> Axes:
    """Draw the mean of several studies' best values so far, together and alone.

    ``studies`` are those that collaborated and ``baselines`` the same ones run alone; where there
    are as many of either, the n-th of one is compared to the n-th of the other. Bands are standard
    errors. Below, in the same figure, is how much better together was.
    """
    drawn = curves.together(studies, baselines)
    with _figure(6.5, 5.2) as figure:
        upper: Axes
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        upper.set_title(drawn.title)
        if drawn.empty:
            lower.set_axis_off()
            return _say(upper, drawn.empty)
        for name, band, label, style in (
            ("together", drawn.together, drawn.labels[0], "-"),
            ("alone", drawn.alone, drawn.labels[1], "--"),
        ):
            _draw_band(upper, band, COLOURS[name], style, label)
        lower.axhline(0.0, color=_GREY, linewidth=0.8)
        _draw_band(lower, drawn.gain, "black", "-", None)
        _whole(lower)
        upper.set(ylim=drawn.ends, ylabel=f"mean best {drawn.metric}")
        upper.legend()
        lower.set(ylim=drawn.gain_ends, xlabel="finished trials", ylabel="gain")
    return upper


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    with pyplot.rc_context(_RC):
        yield pyplot.figure(figsize=(width, height), layout="constrained")


def _say(axes: Axes, sentence: str) -> Axes:
    """For a picture without data."""
    axes.text(0.5, 0.5, sentence, transform=axes.transAxes, ha="center", va="center", color=_GREY)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes


def _whole(axes: Axes) -> None:
    """Only whole numbers of trials."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


def _labels(names: Sequence[str]) -> list[str]:
    """Names as a legend shows them: it would leave out what begins with an underscore."""
    return [f" {name}" if name.startswith("_") else name for name in names]


def _draw_best(axes: Axes, drawn: curves.History) -> None:
    trials = np.arange(len(drawn.best))
    axes.step(trials, drawn.best, where="post", color="black", label="best so far", zorder=2)
    if drawn.baseline is not None:
        trials = np.arange(len(drawn.baseline))
        look: dict[str, Any] = {"color": COLOURS["alone"], "label": "best so far, alone"}
        axes.step(trials, drawn.baseline, "--", where="post", **look)


def _draw_dots(axes: Axes, drawn: curves.History) -> None:
    size = 26 if len(drawn.best) <= curves.MANY else 9
    for dots in drawn.dots:
        colour, here = COLOURS[dots.source], dots.inside
        look: dict[str, Any] = {"s": size, "marker": _MARKERS[dots.source], "zorder": 3}
        label = f"{dots.source} ({len(dots.number)})"
        axes.scatter(dots.number[here], dots.shown[here], color=colour, label=label, **look)
        if not here.all():
            look |= {"facecolors": "none", "edgecolors": colour, "clip_on": False}
            axes.scatter(dots.number[~here], dots.shown[~here], **look)


def _draw_valueless(axes: Axes, drawn: curves.History) -> None:
    """In a row above the picture."""
    for name, numbers in drawn.valueless.items():
        axes.plot(
            *(numbers, np.full(len(numbers), 1.03)),
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            color=_GREY,
            marker=_VALUELESS[name],
            markersize=5,
            clip_on=False,
            label=f"{name} ({len(numbers)})",
        )


def _draw_band(axes: Axes, band: curves.Band, colour: str, style: str, label: str | None) -> None:
    trials = np.arange(1, len(band.mean) + 1)
    marker = "o" if np.isfinite(band.mean).sum() == 1 else ""
    axes.plot(trials, band.mean, style, color=colour, marker=marker, linewidth=1.8, label=label)
    low, high = band.mean - band.error, band.mean + band.error
    axes.fill_between(trials, low, high, color=colour, alpha=0.18, linewidth=0)
