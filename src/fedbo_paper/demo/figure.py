"""Draw the demo: the best scores of each mode, the paired lead, and what each peer adds."""

from __future__ import annotations

import os

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedbo.insight.colours import COLOURS
from fedbo_paper.demo.demo import MODES, Mode
from fedbo_paper.demo.outcome import Outcome
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect, Floats

_LOOKS: dict[Mode, tuple[str, str, str]] = {
    "together": (COLOURS[1], "-", "together"),
    "alone": (COLOURS[0], "--", "alone (EI)"),
}
_GREY = "#666666"


def draw(outcome: Outcome, path: str | os.PathLike[str]) -> Figure:
    """Draw the picture and write it to a file; the suffix of the path sets the format."""
    figure = Figure(figsize=(12, 3.9), layout="constrained", facecolor="white")
    left, middle, right = figure.subplots(1, 3, width_ratios=(6, 5, 5))
    _draw_curves(left, outcome)
    _draw_lead(middle, outcome)
    _draw_peers(right, outcome)
    for axes in (left, middle):
        axes.set_xticks(_ticks(outcome.demo.trials))
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.supxlabel(_averaged(outcome), fontsize="small", color=_GREY)
    figure.savefig(path, dpi=150)
    return figure


def _draw_curves(axes: Axes, outcome: Outcome) -> None:
    for mode in _LOOKS:
        colour, style, label = _LOOKS[mode]
        columns = outcome.curves[:, MODES.index(mode)].T
        _band(axes, [intervals.mean(column) for column in columns], colour, style, label)
    axes.set(xlabel="trial", ylabel="best validation accuracy so far")
    axes.set_title("Mean over sites", loc="left", fontsize="medium")
    axes.legend(frameon=False, loc="lower right")


def _draw_lead(axes: Axes, outcome: Outcome) -> None:
    colour, style, _ = _LOOKS["together"]
    effects = [outcome.lead(t) for t in range(1, outcome.demo.trials + 1)]
    _band(axes, effects, colour, style)
    _zero(axes)
    axes.margins(y=0.15)
    axes.set(xlabel="trial", ylabel="together − alone")
    axes.set_title("Lead of together, paired", loc="left", fontsize="medium")


def _draw_peers(axes: Axes, outcome: Outcome) -> None:
    effects = outcome.by_peers()
    peers = np.arange(len(effects))
    values = np.array([effect.value for effect in effects])
    colour = _LOOKS["together"][0]
    axes.errorbar(peers, values, _reach(effects), fmt="o", color=colour, capsize=3)
    _zero(axes)
    axes.set(xlabel="messages that the site started with", ylabel="together − alone")
    title = f"Lead of together, mean of trials 1 to {outcome.early}"
    axes.set_title(title, loc="left", fontsize="medium")


def _band(axes: Axes, effects: list[Effect], colour: str, style: str, label: str = "") -> None:
    """Draw a curve over trials from 1, with its interval if there is one."""
    trials = np.arange(1, len(effects) + 1)
    values, reach = np.array([effect.value for effect in effects]), _reach(effects)
    axes.plot(trials, values, style, color=colour, label=label, linewidth=2)
    axes.fill_between(trials, values - reach, values + reach, color=colour, alpha=0.18, linewidth=0)


def _ticks(trials: int) -> Floats:
    """Return round numbers of trials, and the first.

    >>> _ticks(15)
    array([ 1.,  5., 10., 15.])
    """
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10], integer=True).tick_values(0, trials)
    return np.unique(np.clip(ticks, 1, trials))


def _reach(effects: list[Effect]) -> Floats:
    """Return half the width of each interval, 0 where there is none."""
    widths = np.array([effect.high - effect.value for effect in effects])
    return np.where(np.isfinite(widths), widths, 0.0)


def _zero(axes: Axes) -> None:
    axes.axhline(0.0, color=_GREY, linewidth=1, zorder=0)


def _averaged(outcome: Outcome) -> str:
    sites, ei = f"{outcome.demo.agents} sites", "EI is expected improvement"
    if outcome.repeats == 1:
        return f"{sites}, one repeat, so no intervals; {ei}"
    bands = "bands and bars are 95 % intervals over repeats"
    return f"{sites}, {outcome.repeats} repeats; {bands}; {ei}"
