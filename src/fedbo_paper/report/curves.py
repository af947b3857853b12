"""The curves of runs, from the rows of a table.

========  =====================================================================
R, T      runs, iterations
curves    (R, T + 1): a column after 0, 1, …, T iterations; 0 is after the last
          initial point
========  =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbo.table import Table

Floats = NDArray[np.float64]
Run = tuple[int, int, int]  # target, repeat, seed


def by_run(runs: Table, column: str) -> dict[Run, Floats]:
    """Return the curve of a column for each run.

    >>> rows = [(0, 0, 0, 0, 3.0), (0, 0, 0, 0, 5.0), (0, 0, 0, 1, 6.0), (1, 0, 0, 0, 4.0)]
    >>> by_run(Table.from_rows(["target", "repeat", "seed", "iteration", "best"], rows), "best")
    {(0, 0, 0): array([5., 6.]), (1, 0, 0): array([4.])}
    """
    return _at_ends(runs, runs[column].astype(np.float64), lambda values: values)


def totals_by_run(runs: Table, *columns: str) -> dict[Run, Floats]:
    """Return the sum of columns since the start of each run, initial points included."""
    return _at_ends(runs, np.sum([runs[name] for name in columns], axis=0), np.cumsum)


def average(curves: Mapping[Run, Floats], group: Callable[[Run], Hashable]) -> dict[Any, Floats]:
    """Return the mean curve of each group of runs.

    >>> curves = {(7, 0, 0): np.array([1.0]), (7, 1, 0): np.array([3.0])}
    >>> average(curves, lambda run: run[0])
    {7: array([2.])}
    """
    groups: dict[Any, list[Floats]] = {}
    for run, curve in curves.items():
        groups.setdefault(group(run), []).append(curve)
    return {key: stack(dict(enumerate(some))).mean(axis=0) for key, some in groups.items()}


def stack(curves: Mapping[Any, Floats]) -> Floats:
    """Return all curves as rows, cut to the length of the shortest.

    >>> stack({0: np.array([1.0, 2.0]), 1: np.array([3.0])}).tolist()
    [[1.0], [3.0]]
    """
    length = min(map(len, curves.values()))
    return np.array([curve[:length] for curve in curves.values()])


def _at_ends(runs: Table, values: Floats, through: Callable[[Floats], Floats]) -> dict[Run, Floats]:
    """A function of each run's values, at the last row of each iteration."""
    keys = np.stack([runs[name] for name in ("target", "repeat", "seed")], axis=1)
    order = np.lexsort((runs["iteration"], *keys.T[::-1]))  # stable: initial points stay in order
    starts = np.flatnonzero(np.any(np.diff(keys[order], axis=0), axis=1)) + 1
    curves: dict[Run, Floats] = {}
    for rows in np.split(order, starts) if len(order) else ():
        target, repeat, seed = keys[rows[0]].tolist()
        ends = np.append(np.flatnonzero(np.diff(runs["iteration"][rows])), len(rows) - 1)
        curves[target, repeat, seed] = through(values[rows])[ends]
    return curves
