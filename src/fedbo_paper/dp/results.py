"""Tables of the comparison.

=======  ==================================================================  ================
symbol   meaning                                                             shape
=======  ==================================================================  ================
R, N, T  seeds, fields, rounds                                               scalars
loss     1 − best AUC so far, after round 0, 1, …, T; 0 is the initial       (R, N, T + 1)
         points
level    mean loss of all fields: one number for each seed                   (R, T + 1)
=======  ==================================================================  ================

The agents of a run share the server and its noise, so the unit of all intervals is a run of the
whole federation, not a field. Intervals are 95 % t-intervals over seeds: they are about other
starts and other noise on these 29 fields, not about other fields. Differences are paired by seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedbo.table import Cell, Table
from fedbo_paper.dp.comparison import CURVES, PAIRS, PUBLISHED_ROUND, Comparison
from fedbo_paper.dp.cost import DELTAS, cost
from fedbo_paper.dp.run import Job
from fedbo_paper.harness.intervals import Floats, mean, paired

#: Rounds that the summary lists, beside the last one.
LISTED = (0, 5, 10, 20, 30, 40, 50, 60)

Runs = Mapping[Job, Table]


def loss(run: Table, agents: int, rounds: int) -> Floats:
    """Return 1 − best AUC so far of each field, (N, T + 1).

    Args:
        run: The table of a run.
        agents: N.
        rounds: T.
    """
    curves = np.empty((agents, rounds + 1))
    for n in range(agents):
        own = run.where(agent=n)
        best = np.maximum.accumulate(own["score"].astype(np.float64))
        curves[n] = 1.0 - best[np.searchsorted(own["round"], np.arange(rounds + 1), "right") - 1]
    return curves


def levels(comparison: Comparison, runs: Runs) -> dict[str, Floats]:
    """Return the mean loss over fields, (R, T + 1), of each method by its name."""
    seeds = range(comparison.first_seed, comparison.first_seed + comparison.seeds)
    return {
        curve.method.name: np.array(
            [
                loss(runs[comparison.job(curve, seed)], comparison.agents, comparison.rounds).mean(
                    axis=0
                )
                for seed in seeds
            ]
        )
        for curve in CURVES
    }


def costs(comparison: Comparison) -> dict[str, list[float]]:
    """Return the accounted ε of each method by its name, one for each δ of `DELTAS`."""
    return {
        curve.method.name: [cost(curve.method, comparison.rounds, delta) for delta in DELTAS]
        for curve in CURVES
    }


def summary(comparison: Comparison, found: Mapping[str, Floats]) -> Table:
    """Summarise each method at some rounds.

    Returns:
        The mean of 1 − AUC with its interval, the paired difference to the first method with its
        interval (below 0 is better), ε for each δ, and what was published for the last round.
    """
    base = found[CURVES[0].method.name]
    epsilons = costs(comparison)
    rows: list[list[Cell]] = []
    for curve in CURVES:
        level = found[curve.method.name]
        for t in _listed(comparison):
            own = mean(level[:, t])
            lead = paired(level[:, t], base[:, t])
            known = curve.published if t == PUBLISHED_ROUND else None
            effects = (own.value, own.low, own.high, lead.value, lead.low, lead.high)
            theirs = [math.nan if x is None else x for x in (curve.published_epsilon, known)]
            paid = epsilons[curve.method.name]
            rows.append([curve.method.name, t, comparison.seeds, *effects, *paid, *theirs])
    columns = (
        *("method", "round", "seeds", "loss", "low", "high"),
        *("difference", "difference_low", "difference_high"),
        *("epsilon", "epsilon_1e-5", "published_epsilon", "published"),
    )
    return Table.from_rows(columns, rows)


def pairs(comparison: Comparison, found: Mapping[str, Floats]) -> Table:
    """Compare each method of `PAIRS` with what it is judged against, at the same rounds.

    Returns:
        The paired difference of 1 − AUC with its interval; below 0, the method is better.
    """
    rows: list[list[Cell]] = []
    for method, against in PAIRS:
        for t in _listed(comparison):
            lead = paired(found[method][:, t], found[against][:, t])
            effect = (lead.value, lead.low, lead.high)
            rows.append([method, against, t, comparison.seeds, *effect])
    columns = ("method", "against", "round", "seeds")
    return Table.from_rows((*columns, "difference", "low", "high"), rows)


def _listed(comparison: Comparison) -> list[int]:
    return [t for t in LISTED if t < comparison.rounds] + [comparison.rounds]


def every_curve(comparison: Comparison, runs: Runs) -> Table:
    """Return the curve of every field in every run: method, seed, agent, round, loss."""
    tables, names, seeds = [], [], []
    for curve in CURVES:
        for seed in range(comparison.first_seed, comparison.first_seed + comparison.seeds):
            run = runs[comparison.job(curve, seed)]
            curves = loss(run, comparison.agents, comparison.rounds)
            agent, t = np.indices(curves.shape)
            columns = {"agent": agent.ravel(), "round": t.ravel(), "loss": curves.ravel()}
            tables.append(Table(columns))
            names.append(curve.method.name)
            seeds.append(seed)
    return Table.join(tables, method=names, seed=seeds)


def rows(table: Table) -> list[dict[str, Cell | None]]:
    """Return the rows of a table for JSON; what is not finite becomes None or "inf"."""
    return [
        {name: _json(value) for name, value in zip(table, row, strict=True)}
        for row in zip(*(column.tolist() for column in table.values()), strict=True)
    ]


def _json(value: Cell) -> Cell | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return value
