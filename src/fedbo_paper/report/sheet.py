"""What figures are drawn from, and the sheet of panels that most of them share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.table import Table
from fedbo_paper.experiments.published import Curve
from fedbo_paper.experiments.spec import PRESET_NAMES
from fedbo_paper.report import curves
from fedbo_paper.report.curves import Floats
from fedbo_paper.report.strokes import WIDTH, logarithmic, name


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What figures are drawn from.

    Args:
        runs: The table of all trials.
        published: The authors' curves by name ("TS", "FTS-M100", …).
        worth: A title and a table of `diagnostics.worth` for each panel of the last figure.
        stand_in: Whether the runs of "glass" used made-up data.

    >>> Material(runs=Table({"experiment": ["har"], "preset": ["default"]})).presets("har")
    ['default']
    """

    runs: Table
    published: Mapping[str, Curve] = {}
    worth: tuple[tuple[str, Table], ...] = ()
    stand_in: bool = False

    def select(self, experiment: str, preset: str) -> Table:
        """Return the runs of an experiment with a preset."""
        return self.runs.where(experiment=experiment, preset=preset)

    def presets(self, *experiments: str) -> list[str]:
        """Return the presets of these experiments; ["paper"], for an empty row, if none was run."""
        found = {*self.runs["preset"][np.isin(self.runs["experiment"], experiments)].tolist()}
        return [preset for preset in PRESET_NAMES if preset in found] or ["paper"]


class DataSet(NamedTuple):
    """A data set of section 5.2, and what is drawn of its scores."""

    experiment: str
    title: str
    agent: str
    measure: str

    def loss(self, runs: Table) -> Floats:
        """The best scores so far, turned so that lower is better: (R, T + 1)."""
        best = curves.stack(curves.by_run(runs, "best"))
        return 1.0 - best if self.experiment == "landmine" else best


DATA_SETS = (
    DataSet("landmine", "landmine detection", "field", "1 − AUC"),
    DataSet("glass", "Google Glass", "person", "validation error"),
    DataSet("har", "mobile phones", "person", "validation error"),
)


class Sheet:
    """A figure with a row of panels for each preset that was run."""

    def __init__(
        self,
        material: Material,
        experiments: Sequence[str],
        columns: int,
        height: float,
        share: Any = "col",
    ) -> None:
        self.material = material
        presets = material.presets(*experiments)
        size = (WIDTH, 0.4 + height * len(presets))
        self.figure = Figure(figsize=size, layout="constrained")
        self.grid = self.figure.subplots(
            len(presets), columns, squeeze=False, sharex="col", sharey=share
        )
        self.rows: list[tuple[str, list[Axes]]] = [
            (preset, [*panels]) for preset, panels in zip(presets, self.grid, strict=True)
        ]

    def data_panels(
        self, x: str, between: str = ", "
    ) -> Iterator[tuple[Axes, DataSet, str, Table]]:
        """The panels of the real data sets, named, each with its preset and its runs."""
        for preset, panels in self.rows:
            for letter, axes, data in zip("abc", panels, DATA_SETS, strict=False):
                made_up = self.material.stand_in and data.experiment == "glass"
                title = f"({letter}) {data.title}{' (stand-in)' * made_up}{between}"
                name(axes, title + PRESET_NAMES[preset], x, data.measure)
                yield axes, data, preset, self.material.select(data.experiment, preset)

    def finish(self, log_x: Sequence[int] = (), log_y: Sequence[int] = ()) -> Figure:
        """Make axes of some columns logarithmic, and label x only below the last panel with data.

        Nothing that is drawn here can be negative, so an axis ends just below 0.
        """
        for column, panels in enumerate(self.grid.T):
            for axes in panels if any(axes.has_data() for axes in panels) else ():
                if column in log_x:
                    logarithmic(axes, "x")
                if column in log_y:
                    logarithmic(axes, "y")
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
