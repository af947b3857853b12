"""The figure of measured regret beside the bound of `fedbo.theory`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from fedbo.insight.colours import COLOURS
from fedbo.table import Table


def regret_beside_bound(
    tables: Mapping[str, Sequence[Table]],
    bounds: Mapping[str, ArrayLike],
    path: str | os.PathLike[str],
) -> Figure:
    """Draw the mean cumulative regret, with one standard error on either side, below its bounds.

    The axis is logarithmic, because the bounds are much larger than the regret.

    Args:
        tables: Runs of each method, by its name; a run is the table of one agent from `simulate`.
        bounds: Bounds by name, as arrays over T = 1, 2, ….
        path: File to write; its ending determines the format.
    """
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for (name, runs), colour in zip(tables.items(), COLOURS, strict=False):
        curves = np.array([run["cumulative_regret"][run["iteration"] > 0] for run in runs])
        mean = curves.mean(axis=0)
        error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else 0.0 * mean
        t = np.arange(1, len(mean) + 1)
        axes.plot(t, mean, color=colour, label=name)
        axes.fill_between(t, mean - error, mean + error, color=colour, alpha=0.25, linewidth=0)
    for (name, bound), style in zip(bounds.items(), ("--", ":", "-."), strict=False):
        values = np.asarray(bound)
        axes.plot(np.arange(1, len(values) + 1), values, style, color="black", label=name)
    axes.set(xlabel="iteration T", ylabel="cumulative regret R_T", yscale="log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=150)
    return figure
