"""Draw the demo: best scores alone and together, and the sources of the queries."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedbo.insight.colours import COLOURS
from fedbo_paper.demo.demo import FEDERATED, MODES, N_INITIAL, Outcome
from fedbo_paper.harness.averages import mean_and_error

_ALONE, _TOGETHER = COLOURS[:2]
_GREY = "#CCCCCC"
_NOTE: dict[str, Any] = {"textcoords": "offset points"}


def draw(outcome: Outcome, path: str | os.PathLike[str]) -> Figure:
    """Draw the picture and write it to a file; the suffix of the path sets the format."""
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_curves(left, outcome)
    _draw_sources(right, outcome)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.set_xlabel("trial")
    figure.savefig(path, dpi=150)
    return figure


def _draw_curves(axes: Axes, outcome: Outcome) -> None:
    """Draw best scores from the last initial point on: before it, both modes are the same."""
    trials = np.arange(N_INITIAL, outcome.demo.trials + 1)
    means, errors = mean_and_error(outcome.curves[..., N_INITIAL - 1 :])
    looks = ((_TOGETHER, "-"), (_ALONE, "--"))  # together first: it is usually the upper curve
    for m, (colour, style) in zip((1, 0), looks, strict=True):
        mean, error = means[m], np.nan_to_num(errors[m])
        axes.plot(trials, mean, style, color=colour, label=MODES[m], linewidth=2)
        axes.fill_between(trials, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
    axes.set_ylabel("best validation accuracy so far")
    axes.set_title(_averaged(outcome), loc="left", fontsize="medium")
    axes.legend(frameon=False, loc="lower right")


def _draw_sources(axes: Axes, outcome: Outcome) -> None:
    """Draw the share of each source in the queries of each trial, and the expected share."""
    T = outcome.demo.trials
    trials = np.arange(1, T + 1)
    peers = outcome.from_peers.mean(axis=(0, 1))
    initial = (trials <= N_INITIAL).astype(np.float64)
    axes.bar(trials, initial, 1.0, color=_GREY)
    axes.bar(trials, 1.0 - peers - initial, 1.0, peers, color=_ALONE, alpha=0.45)
    axes.bar(trials, peers, 1.0, color=_TOGETHER, alpha=0.85)
    expected = [1.0 - FEDERATED.schedule(t) for t in range(1, T - N_INITIAL + 1)]
    axes.plot(trials[N_INITIAL:], expected, ":", color="black", linewidth=1.5)
    third = len(expected) // 3
    axes.annotate("$1 - p_t$", (trials[N_INITIAL + third], expected[third]), (8, 12), **_NOTE)
    axes.annotate("own posterior", (T + 0.2, 0.92), (0, 0), **_NOTE, ha="right")
    axes.annotate("peers' messages", (T + 0.2, 0.04), (0, 0), **_NOTE, ha="right")
    axes.annotate(
        "initial points", (2, 0.5), (0, 0), **_NOTE, rotation=90, ha="center", va="center"
    )
    axes.set_ylim(0.0, 1.0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("Sources of the queries (together)", loc="left", fontsize="medium")


def _averaged(outcome: Outcome) -> str:
    if outcome.repeats == 1:
        return f"Mean of {outcome.demo.agents} agents, one repeat"
    return f"Mean of {outcome.demo.agents} agents × {outcome.repeats} repeats ± standard error"
