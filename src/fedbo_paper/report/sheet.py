"""Where figures are drawn: the runs, the real data sets, and a row of panels for each preset.

All rows share their axes, so that presets can be compared. Data sets without runs get no panels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.table import Table
from fedbo_paper.experiments.published import Curve
from fedbo_paper.experiments.sides import Floats, Runs
from fedbo_paper.experiments.spec import PRESET_NAMES
from fedbo_paper.report import strokes
from fedbo_paper.report.strokes import WIDTH, name


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
        best = curves_of(runs, "best")
        return 1.0 - best if self.experiment == "landmine" else best


DATA_SETS = (
    DataSet("landmine", "landmine detection", "field", "1 − AUC"),
    DataSet("glass", "Google Glass", "person", "validation error"),
    DataSet("har", "mobile phones", "person", "validation error"),
)


def curves_of(runs: Table, column: str) -> Floats:
    """Return a column after each iteration of each run, 0 after the initial points: (R, T + 1)."""
    return Runs("", "", runs).curve(column)


class Sheet:
    """A figure with a row of panels for each preset that was run.

    Args:
        material: What to draw.
        experiments: Their presets have a row each; of the real data sets, those with runs have a
            panel each in `data_panels`.
        columns: Number of panels in a row; one for each data set with runs by default.
        more: Number of further panels in a row.
        height: Height of a row in inches.
        share: Which panels share the y-axis.
    """

    def __init__(
        self,
        material: Material,
        experiments: Sequence[str],
        columns: int | None = None,
        *,
        more: int = 0,
        height: float,
        share: Any = "col",
    ) -> None:
        self.material = material
        run = {*material.runs["experiment"].tolist()}
        self.data_sets = [data for data in DATA_SETS if data.experiment in run]
        columns = max(1, (len(self.data_sets) if columns is None else columns) + more)
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
            for axes, data in zip(panels, self.data_sets, strict=False):
                made_up = self.material.stand_in and data.experiment == "glass"
                letter = "abc"[DATA_SETS.index(data)]
                title = f"({letter}) {data.title}{' (made-up data)' * made_up}{between}"
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
            if low < 0 and axes.get_yscale() == "linear":
                axes.set_ylim(bottom=-0.02 * high)
        for panels in self.grid.T:
            drawn = [axes for axes in panels if axes.has_data()] or [*panels]
            for axes in panels:
                axes.tick_params(labelbottom=axes is drawn[-1])
                if axes is not drawn[-1]:
                    axes.set_xlabel("")
        return self.figure
