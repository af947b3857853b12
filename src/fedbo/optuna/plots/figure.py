"""What a figure shows, described without any plotting library.

All arrays have shape (trials,), and NaN is a gap. Colours are written as ``#rrggbb``.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GREY = "#666666"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line, and a band of standard errors around it."""

    name: str  # in the legend; empty for a line that is not listed
    x: Floats
    y: Floats
    colour: str
    is_dashed: bool = False
    is_stepped: bool = False
    error: Floats | None = None

    @property
    def is_one_point(self) -> bool:
        """Whether only one of its points can be drawn, so that no line is visible."""
        return not self.is_stepped and int(np.isfinite(self.y).sum()) == 1


class Points(msgspec.Struct, frozen=True, kw_only=True):
    """Points; if there are none, only the legend shows them."""

    name: str
    x: Floats
    y: Floats
    colour: str
    symbol: str  # one of plotly's
    notes: list[str]  # what the mouse shows for each of them
    is_hollow: NDArray[np.bool_]
    is_above: bool = False  # in a row above the panel; y is ignored
    is_small: bool = False


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """A bar for each trial, from ``low`` to ``high``."""

    name: str
    low: Floats
    high: Floats
    colour: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of axes, with its marks from back to front."""

    marks: list[Line | Points | Bars]
    xlabel: str = ""
    ylabel: str
    xlim: tuple[float, float] | None = None  # None fits the marks
    ylim: tuple[float, float]
    height: float = 1.0  # relative to other panels
    is_percent: bool = False
    has_zero: bool = False  # whether a line marks y = 0


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Panels from top to bottom; without any, ``empty`` says why."""

    title: str
    size: tuple[float, float]  # inches
    panels: list[Panel] = []
    empty: str = ""
    is_legend_inside: bool = False  # inside the first panel, instead of beside it
