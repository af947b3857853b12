"""The runs of an experiment as arrays, and pairs of runs that start from the same points.

A *side* is the runs of one method in some setting. Two sides are paired by target, repeat and seed,
because such runs start from the same points.

=====  ========================================================================================
T      last iteration; runs that stopped earlier are ignored
unit   a target with a repeat and a seed
=====  ========================================================================================
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.table import Table
from fedbo_paper.experiments.spec import ARM

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

UNIT = ("target", "repeat", "seed")
#: 1 / (1 − p_t) by the power in p_t = 1 − 1/t^power.
ROOTS = {0.5: "√t", 2.0: "t²"}


class Runs:
    """The complete runs of one experiment with one preset, as arrays with a row for each run."""

    def __init__(self, experiment: str, preset: str, table: Table) -> None:
        self.experiment = experiment
        self.preset = preset
        self._table = table
        codes = [np.unique(table[name], return_inverse=True)[1] for name in (*ARM, *UNIT)]
        _, first, run = np.unique(
            np.stack(codes, axis=1), axis=0, return_index=True, return_inverse=True
        )
        self._at = (run.reshape(-1), table["iteration"].astype(np.intp))
        self.T = int(self._at[1].max())
        done = np.zeros((len(first), self.T + 1), dtype=np.bool_)
        done[self._at] = True
        self._complete: NDArray[np.bool_] = np.all(done[:, 1:], axis=1)
        self._first = first[self._complete]

    def __len__(self) -> int:
        return len(self._first)

    def label(self, name: str) -> NDArray[Any]:
        """Return a column that describes each run: (runs,)."""
        labels: NDArray[Any] = self._table[name][self._first]
        return labels

    def curve(self, name: str) -> Floats:
        """Return a column after each iteration; 0 is after the initial points: (runs, T + 1)."""
        curves = np.full((len(self._complete), self.T + 1), np.nan)
        curves[self._at] = self._table[name]  # the last initial point wins
        complete: Floats = curves[self._complete]
        return complete

    @cached_property
    def units(self) -> NDArray[np.intp]:
        """Equal numbers for runs that start from the same points: (runs,)."""
        columns = np.stack([self.label(name) for name in UNIT], axis=1)
        return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)

    @cached_property
    def clusters(self) -> NDArray[Any]:
        """The unit of analysis of each run: (runs,)."""
        return self.label("target") if self.experiment == "synthetic" else self.units

    @cached_property
    def followed(self) -> NDArray[np.int64]:
        """How many peers' messages each run followed: (runs,)."""
        counts = np.bincount(self._at[0], self._table["source"] == "peer", len(self._complete))
        return counts[self._complete].astype(np.int64)

    @cached_property
    def best(self) -> Floats:
        return self.curve("best")

    @cached_property
    def clock(self) -> Floats:
        """CPU seconds without evaluations, from the initial points on: (runs, T + 1)."""
        return self._since_start("seconds")

    @cached_property
    def elapsed(self) -> Floats:
        """CPU seconds with evaluations, from the initial points on: (runs, T + 1)."""
        return self.clock + self._since_start("seconds_evaluation")

    def _since_start(self, name: str) -> Floats:
        seconds = self.curve(name)
        seconds[:, 0] = 0.0
        clock: Floats = np.cumsum(seconds, axis=1)
        return clock

    @cached_property
    def sent(self) -> Floats:
        """How many numbers each peer has sent in total: (runs,)."""
        received = self.curve("parameters_received")[:, -1]
        sent: Floats = received / np.maximum(self.label("N"), 1)
        return sent


def groups_of(runs: Table) -> list[Runs]:
    """Split a table of all trials by experiment and preset."""
    names = dict.fromkeys(zip(runs["experiment"].tolist(), runs["preset"].tolist(), strict=True))
    groups = [Runs(e, p, runs.where(experiment=e, preset=p)) for e, p in names]
    return [group for group in groups if group.T and len(group)]


class Side(msgspec.Struct, frozen=True):
    """The runs that one side of a claim is about; a setting of None may have any value.

    >>> Side("FTS", M=100, every=1).name
    'FTS (M = 100) with growing t_n'
    """

    method: str
    M: int | None = None
    t_n: int | None = None
    d_n: float | None = None
    power: float | None = None
    every: int | None = 0
    fewest: int = 0  # features

    def select(self, runs: Runs) -> Rows:
        """Return the rows of the side's runs."""
        wanted = [(name, getattr(self, name)) for name in self.__struct_fields__[:-1]]
        keep = [runs.label(name) == value for name, value in wanted if value is not None]
        return np.flatnonzero(np.logical_and.reduce([runs.label("M") >= self.fewest, *keep]))

    @property
    def name(self) -> str:
        shown = (("M", self.M), ("t_n", self.t_n), ("d_n", self.d_n))
        details = [f"{what} = {value:g}" for what, value in shown if value is not None]
        if self.power is not None:
            details.append(f"p_t = 1 − 1/{ROOTS[self.power]}")
        settings = f" ({', '.join(details)})" if details else ""
        repeated = " with growing t_n" if self.d_n is None else " with new messages every iteration"
        return self.method + settings + repeated * bool(self.every)

    @property
    def has_one_m(self) -> bool:
        return self.M is not None or self.method == "TS"


class Pairs(NamedTuple):
    """Rows of runs of two sides that start from the same points, and their M."""

    ours: Rows
    theirs: Rows
    features: NDArray[np.int64]

    def only(self, keep: NDArray[np.bool_]) -> Pairs:
        return Pairs(self.ours[keep], self.theirs[keep], self.features[keep])


def pairs_of(runs: Runs, ours: Side, theirs: Side) -> Pairs:
    """Return all pairs of the two sides, at each M that both have."""
    a, b, M = ours.select(runs), theirs.select(runs), runs.label("M")
    pairs = []
    for m in np.unique(np.concatenate([M[side] for side in (a, b)])):
        of_a = a if ours.has_one_m else a[M[a] == m]
        of_b = b if theirs.has_one_m else b[M[b] == m]
        for side, rows in ((ours, of_a), (theirs, of_b)):
            if len(np.unique(runs.units[rows])) < len(rows):
                raise ValueError(
                    f"{runs.experiment}, preset {runs.preset}: {side.name} has two runs of the "
                    "same target, repeat and seed, expected one; narrow the side down"
                )
        _, i, j = np.intersect1d(runs.units[of_a], runs.units[of_b], return_indices=True)
        pairs.append(Pairs(of_a[i], of_b[j], np.full(len(i), m)))
        if ours.has_one_m and theirs.has_one_m:
            break
    if not pairs:
        return Pairs(*np.zeros((3, 0), dtype=np.intp))
    return Pairs(*(np.concatenate(parts) for parts in zip(*pairs, strict=True)))
