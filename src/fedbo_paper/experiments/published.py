"""The landmine runs that the paper's authors published, and a comparison of ours with them.

``landmine_published.json`` in the data folder has what the authors' logs contain: the best AUC
after each iteration of 13 methods on fields 0 to 5, five runs each, and the three initial points of
each field and run, which all methods share. Our runs start from the same points, so the two are
compared run by run: a *pair* is a field and a run. Our seeds are averaged within a pair first.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo import files
from fedbo.space.axis import Value
from fedbo.table import Cell, Table
from fedbo_paper.data import look
from fedbo_paper.experiments.spec import LABELS, MEASURED
from fedbo_paper.harness.intervals import mean_and_error

NAME = "landmine_published.json"
#: Iterations at which the two are compared.
CHECKPOINTS = (10, 20, 30, 50)

_C, _GAMMA = (1e-4, 10.0), (1e-2, 10.0)  # their box, searched linearly
_PEERS, _OBSERVED, _POWER = 28, 50, 2.0
_NEAR = 2.0  # standard errors within which a difference counts as met
_COMPARED = ("iteration", "ours", "published", "difference", "standard_error", "pairs", "seeds")

Unit = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Point = tuple[Unit, Unit, Unit]  # x1 and x2 on the unit square, and the AUC there
Points = Annotated[tuple[Point, ...], msgspec.Meta(min_length=1)]
CurveName = Annotated[str, msgspec.Meta(pattern="^(TS|(FTS|RGPE|TAF)-M[1-9][0-9]*)$")]
Floats = NDArray[np.float64]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One method's mean best AUC after 0, 1, … iterations, with standard errors over all runs.

    ``seconds`` is how long an iteration took on the authors' machine. ``runs[field][run]`` is the
    best AUC of one run after 0, 1, … iterations.
    """

    mean: tuple[Unit, ...]
    se: tuple[float, ...]
    seconds: float
    runs: dict[int, dict[int, tuple[Unit, ...]]]

    def __post_init__(self) -> None:
        lengths = {len(run) for runs in self.runs.values() for run in runs.values()}
        if {len(self.mean), len(self.se), *lengths} != {len(self.mean)} or not self.mean:
            raise ValueError(
                f"mean has {len(self.mean)} numbers, se {len(self.se)} and runs {sorted(lengths)}; "
                "expected the same number in each, one for each iteration from 0"
            )


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The authors' runs. ``curves`` are named "TS", "FTS-M100", "RGPE-M50", …

    >>> curve = Curve(mean=(0.6, 0.7), se=(0.0, 0.0), seconds=1.2, runs={0: {0: (0.6, 0.7)}})
    >>> theirs = Published(curves={"TS": curve}, inits={0: {0: ((0.0, 0.5, 0.6),)}})
    >>> theirs.initial(field=0, run=0)
    [{'C': 0.0001, 'gamma': 5.005}]
    """

    curves: dict[CurveName, Curve]
    inits: dict[int, dict[int, Points]]

    @classmethod
    def load(cls, folder: Path | None = None) -> Published | None:
        """Read the file in the data folder.

        Returns:
            The runs, or None if there is no such file.

        Raises:
            FileRefused: The file is damaged, or has other contents.
        """
        path = look([NAME], folder)
        if path is None:
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise files.FileRefused(
                f"{path} does not hold the published landmine runs: {error}; replace it with a "
                "complete copy, or remove it to run without the comparison"
            ) from None

    def initial(self, field: int, run: int) -> list[dict[str, Value]]:
        """Return the initial points of a run in the units of the parameters; empty if unknown."""
        points = self.inits.get(field, {}).get(run, ())
        return [{"C": _linear(x1, _C), "gamma": _linear(x2, _GAMMA)} for x1, x2, _ in points]

    def curve(self, method: str, M: int) -> Curve | None:
        """Return the curve of a method with M features; TS has no features."""
        return self.curves.get(method if method == "TS" else f"{method}-M{M}")

    def table(self) -> Table:
        """Return the runs in our columns, as the preset "published" of the experiment "landmine".

        What the logs do not contain is NaN or empty, as are seconds, known only as a mean.
        """
        rows = [
            _row(name, curve, field, run, iteration)
            for name, curve in self.curves.items()
            for field, runs in curve.runs.items()
            for run in runs
            for iteration in range(len(curve.mean))
        ]
        return Table.from_rows((*LABELS, *MEASURED), rows)


def compare(runs: Table, published: Published) -> Table:
    """Compare our runs with the published ones at some iterations.

    Returns:
        The mean best AUC of both, and the mean of their paired difference. ``met`` says that it is
        within two standard errors of 0. There is no row for fewer than two pairs.
    """
    ours = runs.where(experiment="published", preset="paper")
    arms = dict.fromkeys(zip(ours["method"].tolist(), ours["M"].tolist(), strict=True))
    rows = [[method, *row] for method, M in arms for row in _rows(ours, published, method, M)]
    return Table.from_rows(["method", *_COMPARED, "met"], rows)


def _rows(runs: Table, published: Published, method: str, M: int) -> list[list[Cell]]:
    """One arm of ours and of theirs, a row for each checkpoint that both have reached."""
    curve = published.curve(method, M)
    if curve is None:
        return []
    arm = runs.where(method=method, M=M)
    rows: list[list[Cell]] = []
    for iteration in CHECKPOINTS:
        ours, theirs, seeds = _pairs(arm.where(iteration=iteration), curve, iteration)
        if len(ours) < 2:
            continue
        difference, error = map(float, mean_and_error(ours - theirs))
        means = (float(ours.mean()), float(theirs.mean()), difference, error)
        rows.append([iteration, *means, len(ours), seeds, abs(difference) <= _NEAR * error])
    return rows


def _pairs(runs: Table, curve: Curve, iteration: int) -> tuple[Floats, Floats, int]:
    """The best AUC of each pair, ours (the mean over seeds) and theirs, and the fewest seeds."""
    best: dict[tuple[int, int], list[float]] = {}
    columns = (runs[name].tolist() for name in ("target", "repeat", "best"))
    for field, run, value in zip(*columns, strict=True):
        theirs = curve.runs.get(field, {}).get(run)
        if theirs is not None and iteration < len(theirs):
            best.setdefault((field, run), []).append(value)
    return (
        np.array([np.mean(values) for values in best.values()]),
        np.array([curve.runs[field][run][iteration] for field, run in best]),
        min(map(len, best.values()), default=0),
    )


def _row(name: str, curve: Curve, field: int, run: int, iteration: int) -> list[Cell]:
    method, _, length = name.partition("-M")
    alone, M = method == "TS", int(length or 0)
    cells: dict[str, Cell] = {
        "experiment": "landmine",
        "preset": "published",
        "method": method,
        "M": M,
        "N": 0 if alone else _PEERS,
        "t_n": 0 if alone else _OBSERVED,
        "power": _POWER if method == "FTS" else math.nan,
        "every": 0,
        "target": field,
        "repeat": run,
        "seed": 0,
        "iteration": iteration,
        "source": "",
        "peer": "",
        "best": curve.runs[field][run][iteration],
    }
    return [cells.get(column, math.nan) for column in (*LABELS, *MEASURED)]


def _linear(x: float, box: tuple[float, float]) -> float:
    low, high = box
    return low + x * (high - low)
