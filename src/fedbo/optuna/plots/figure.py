"""What a figure shows, described without any plotting library, and what it reads from studies.

All arrays have shape (trials,), and NaN is a gap. Colours are written as ``#rrggbb``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fedbo.optuna import private

Floats = NDArray[np.float64]

GREY = "#666666"
MARGIN = 0.06  # of the height of a panel, above and below
ENDLESS = 1e300  # larger values count as infinite: they cannot be drawn
_LONGEST_NAME = 24


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


def sign_of(studies: Sequence[Study]) -> float:
    """Return 1 if all studies maximise and -1 if all minimise; refuse any others."""
    for study in studies:
        if len(study.directions) != 1:
            raise ValueError(
                f"study {study.study_name!r} has {len(study.directions)} objectives, expected one"
            )
    names = {study.direction: study.study_name for study in studies}
    if len(names) > 1:
        raise ValueError(
            f"study {names[StudyDirection.MAXIMIZE]!r} maximises and "
            f"{names[StudyDirection.MINIMIZE]!r} minimises, so they cannot be compared: give "
            "studies with the same direction"
        )
    return 1.0 if StudyDirection.MAXIMIZE in names else -1.0


def begun_trials(study: Study) -> list[FrozenTrial]:
    """Return all trials up to the last that was begun; the n-th has number n."""
    trials = study.get_trials(deepcopy=False)
    while trials and trials[-1].state == TrialState.WAITING:
        trials = trials[:-1]
    return trials


def best_so_far(trials: Sequence[FrozenTrial], sign: float) -> Floats:
    """Return the best value after each of the trials; NaN before there is one."""
    values = np.array([countable(trial) for trial in trials], dtype=np.float64)
    return sign * np.fmax.accumulate(sign * values) + 0.0  # no −0


def countable(trial: FrozenTrial) -> float:
    """Return a trial's value; NaN if it is infinite, breaks a constraint, or does not exist."""
    if trial.state != TrialState.COMPLETE or any(c > 0.0 for c in trial.constraints.values()):
        return math.nan
    value = trial.value
    return value if value is not None and abs(value) < ENDLESS else math.nan


def metric_of(study: Study) -> str:
    names = study.metric_names
    return shorten(names[0]) if names else "objective value"


def titled(study: Study, text: str) -> str:
    """Put the study's name in front of a title, unless Optuna made it up."""
    if private.is_unnamed(study):
        return text[:1].upper() + text[1:]
    return f"{shorten(study.study_name)}: {text}"


def shorten(name: str) -> str:
    """Cut a name that is too long for a figure."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
