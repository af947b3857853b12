"""The landmine runs that the paper's authors published.

``landmine_published.json`` in the data folder has what the authors' logs contain: the best AUC
after each iteration of 13 methods on fields 0 to 5, five runs each, and the three initial points of
each field and run, which all methods share. Our runs start from the same points, so the two are
compared run by run: `beside` does so for each method, `by_field` for each field.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.errors import FileRefused
from fedbo.space.axis import Value
from fedbo.table import Cell, Table
from fedbo_paper.data import look
from fedbo_paper.experiments.sides import Runs
from fedbo_paper.harness.intervals import mean_and_error

NAME = "landmine_published.json"
#: The iterations after which runs are compared.
COMPARED = (10, 20, 30, 50)
#: What is known of the published runs.
KNOWN = (
    "The authors' RGPE and TAF used fits of mispaired data (their code logs each query twice). "
    "Their TAF compared each peer with its neighbour's incumbent, and its weights became uniform "
    "with more observations. Ours do neither. Their seconds are of a machine with 48 cores (the "
    "paper gives .76 for DIRECT alone), ours are CPU seconds of one core."
)
_C, _GAMMA = (1e-4, 10.0), (1e-2, 10.0)  # their box, searched linearly

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
            raise FileRefused(
                f"{path} does not hold the published landmine runs: {error}; replace it with a "
                "complete copy, or remove it to run without the comparison"
            ) from None

    def initial(self, field: int, run: int) -> list[dict[str, Value]]:
        """Return the initial points of a run in the units of the parameters; empty if unknown."""
        points = self.inits.get(field, {}).get(run, ())
        return [{"C": _linear(x1, _C), "gamma": _linear(x2, _GAMMA)} for x1, x2, _ in points]


def _linear(x: float, box: tuple[float, float]) -> float:
    low, high = box
    return low + x * (high - low)


def name_of(method: str, M: int) -> str:
    """Return the name of a method's published curve.

    >>> name_of("TAF", 100), name_of("TS", 0)
    ('TAF-M100', 'TS')
    """
    return f"{method}-M{M}" if M else method


def differences(arm: Table, theirs: Curve) -> Floats:
    """Return our best scores less theirs for each start that both have, (starts, T + 1).

    Ours is the mean over seeds.
    """
    pairs = _paired(arm, theirs)
    return np.array([ours - published for ours, published in pairs.values()])


def _paired(arm: Table, theirs: Curve) -> dict[tuple[int, int], tuple[Floats, Floats]]:
    """Our best scores and theirs, (T + 1,) each, by (field, run)."""
    runs = Runs("published", "", arm)
    starts: dict[tuple[int, int], list[Floats]] = {}
    for field, run, best in zip(
        runs.label("target").tolist(), runs.label("repeat").tolist(), runs.best, strict=True
    ):
        if run in theirs.runs.get(field, {}):
            starts.setdefault((field, run), []).append(best)
    length = min(runs.T + 1, len(theirs.mean))
    return {
        (field, run): (
            np.mean(of_seeds, axis=0)[:length],
            np.asarray(theirs.runs[field][run])[:length],
        )
        for (field, run), of_seeds in starts.items()
    }


def _arms(runs: Table, published: Published) -> Iterator[tuple[str, int, Table, Curve]]:
    """Each method and M that has a published curve, with its runs."""
    for method, M in dict.fromkeys(zip(runs["method"].tolist(), runs["M"].tolist(), strict=True)):
        theirs = published.curves.get(name_of(method, M))
        if theirs is not None:
            yield method, M, runs.where(method=method, M=M), theirs


def by_field(runs: Table, published: Published) -> Table:
    """Compare every method with its published curve after the last of `COMPARED`, on each field.

    Returns:
        The mean difference over the starts of a field, and its standard error.
    """
    rows: list[list[Cell]] = []
    for method, M, arm, theirs in _arms(runs, published):
        apart: dict[int, list[float]] = {}
        for (field, _), (ours, their_best) in _paired(arm, theirs).items():
            if len(ours) > COMPARED[-1]:
                apart.setdefault(field, []).append(float((ours - their_best)[COMPARED[-1]]))
        for field, of_starts in apart.items():
            difference, error = mean_and_error(np.array(of_starts))
            rows.append([method, M, field, float(difference), float(error)])
    return Table.from_rows(("method", "M", "field", "difference", "error"), rows)


def beside(runs: Table, published: Published) -> Table:
    """Compare every method with its published curve after some iterations.

    Returns:
        Our mean best AUC over the starts that both have, theirs, the mean difference with its
        standard error and their ratio, and CPU seconds an iteration (theirs: seconds).
    """
    rows: list[list[Cell]] = []
    for method, M, arm, theirs in _arms(runs, published):
        pairs = [*_paired(arm, theirs).values()]
        seconds = float(arm["seconds"][arm["iteration"] > 0].mean())
        for after in COMPARED:
            if len(pairs) < 2 or after >= len(pairs[0][0]):
                continue
            best = np.array([(ours[after], their_best[after]) for ours, their_best in pairs])
            difference, error = map(float, mean_and_error(best[:, 0] - best[:, 1]))
            levels = best.mean(axis=0).tolist()
            distance = difference / error if error else math.nan
            times = (seconds, theirs.seconds)
            rows.append([method, M, after, *levels, difference, error, distance, *times])
    columns = ("method", "M", "iteration", "ours", "published", "difference", "error", "distance")
    return Table.from_rows((*columns, "seconds", "published_seconds"), rows)
