"""Draw the demo: the best scores alone and together, and the trials between them."""

from __future__ import annotations

import os

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedbo.cli.screen import count
from fedbo.insight.colours import COLOURS
from fedbo_paper.demo.outcome import ALONE, EARLY, TOGETHER, Outcome

_GREY = "#555555"


def draw(outcome: Outcome, path: str | os.PathLike[str]) -> Figure:
    """Draw the picture and write it to a file; the suffix of the path sets the format."""
    figure = Figure(figsize=(7, 4.4), layout="constrained", facecolor="white")
    axes = figure.subplots()
    _draw_curves(axes, outcome)
    if outcome.needed > EARLY:
        _draw_arrow(axes, outcome)
    axes.set_xlabel("trials of each site", fontsize=12)
    axes.set_ylabel("accuracy of its best trial so far", fontsize=12)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(outcome.headline(), fontsize=12, fontweight="bold", wrap=True)
    sites, repeats = outcome.demo.agents, count(outcome.repeats, "repeat")
    title = f"bold: mean of {sites} sites and {repeats}; faint: each repeat"
    axes.set_title(title, fontsize=11, color=_GREY)
    figure.savefig(path, dpi=200)
    return figure


def _draw_curves(axes: Axes, outcome: Outcome) -> None:
    trials = range(1, outcome.demo.trials + 1)
    for mode, name, colour, style in (
        (TOGETHER, "together", COLOURS[0], "-"),
        (ALONE, "alone", _GREY, "--"),
    ):
        curves = outcome.curves[:, mode].T
        axes.plot(trials, curves, color=colour, linewidth=0.8, alpha=0.2)
        axes.plot(trials, curves.mean(axis=1), style, color=colour, linewidth=3, label=name)
    axes.legend(frameon=False, loc="lower right", fontsize=12)


def _draw_arrow(axes: Axes, outcome: Outcome) -> None:
    """Draw an arrow from together after EARLY trials to alone when it is as far, or to the end."""
    goal = outcome.curves[:, TOGETHER, EARLY - 1].mean()
    end = min(outcome.needed, outcome.demo.trials)
    low, high = axes.get_ylim()
    height = low + 0.4 * (high - low)
    axes.plot([EARLY, EARLY, end, end], [height, goal, goal, height], ":", color=_GREY)
    axes.annotate("", (end, height), (EARLY, height), arrowprops={"arrowstyle": "-|>", "lw": 2})
    saved = count(outcome.needed - EARLY, "trial") + " saved"
    label = saved if outcome.needed == end else f"at least {saved}"
    axes.text((EARLY + end) / 2, height, f"{label}\n", fontsize=13, ha="center", va="center")
