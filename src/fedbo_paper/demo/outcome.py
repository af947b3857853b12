"""What came of a demo: best scores so far, and the paired differences with their intervals.

=======  =======================================================================
R        repeats that every site has finished       ``Outcome.repeats``
N        sites                                      ``Demo.agents``
T        trials of a site in each mode and repeat   ``Demo.trials``
mode     0 alone, 1 together: ``MODES``
best     the best score so far: (R, 2, N, T)
lead     together − alone after so many trials, the mean over sites in each repeat: (R,)
=======  =======================================================================

A difference is always between the same site with the same seed in the same repeat. Intervals are
95 % t-intervals over repeats: they say how sure the result is for these sites and their images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbo.table import Table
from fedbo_paper.demo.demo import MODES, Demo
from fedbo_paper.demo.site import Tried
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect

EARLY = 5  # trials; the first ones are where peers help

Floats = NDArray[np.float64]


class Outcome:
    """The results of all repeats that every site has finished.

    Args:
        demo: The settings.
        tried: The site, from 0, and the report of each trial, in any order.

    >>> demo = Demo(agents=2, trials=4, repeats=1)
    >>> Outcome(demo, []).repeats
    0
    """

    def __init__(self, demo: Demo, tried: Sequence[tuple[int, Tried]]) -> None:
        self.demo = demo
        scores = np.full((demo.repeats, len(MODES), demo.agents, demo.trials), np.nan)
        for site, each in tried:
            scores[each.repeat, MODES.index(each.mode), site, each.trial - 1] = each.score
        finished = ~np.isnan(scores).any(axis=(1, 2, 3))
        self.best: Floats = np.maximum.accumulate(scores[finished], axis=-1)
        self.repeats = int(finished.sum())
        self._places = [demo.order(int(repeat)) for repeat in np.flatnonzero(finished)]
        self._tried = [(site, each) for site, each in tried if finished[each.repeat]]

    @property
    def early(self) -> int:
        """The number of trials at which the early lead is reported."""
        return min(EARLY, self.demo.trials)

    @property
    def curves(self) -> Floats:
        """The mean over sites of the best score so far: (R, 2, T)."""
        curves: Floats = self.best.mean(axis=2)
        return curves

    def lead(self, trial: int) -> Effect:
        """Estimate how far together is ahead of alone after so many trials."""
        return estimate(self._gains(trial).mean(axis=1))

    def by_peers(self) -> list[Effect]:
        """Estimate the lead of the first site to arrive, the second, and so on.

        It is the mean lead after 1, 2, … and `early` trials: one moment alone is too uncertain.
        """
        gains = np.mean([self._gains(trial) for trial in range(1, self.early + 1)], axis=0)
        placed = np.take_along_axis(gains, np.array(self._places), axis=1)
        return [estimate(column) for column in placed.T]

    def _gains(self, trial: int) -> Floats:
        """Compute together − alone after so many trials: (R, N)."""
        alone, together = MODES.index("alone"), MODES.index("together")
        gains: Floats = self.best[:, together, :, trial - 1] - self.best[:, alone, :, trial - 1]
        return gains

    def catches_up(self, trial: int) -> int | None:
        """Return when the mean alone is where together was after so many trials, None if never."""
        curves = self.curves.mean(axis=0)
        goal = curves[MODES.index("together"), trial - 1]
        reached = np.flatnonzero(curves[MODES.index("alone")] >= goal)
        return int(reached[0]) + 1 if len(reached) else None

    @property
    def table(self) -> Table:
        """All trials of the finished repeats."""
        tried = sorted(
            self._tried, key=lambda row: (row[1].repeat, MODES.index(row[1].mode), row[0])
        )
        names = list(tried[0][1].params)
        rows: list[list[Any]] = [
            [
                *(each.repeat, each.mode, self.demo.sites[site], self._places_of(each, site)),
                *(each.trial, each.source, *each.params.values(), each.score),
            ]
            for site, each in tried
        ]
        columns = ["repeat", "mode", "site", "peers", "trial", "source"]
        return Table.from_rows([*columns, *(f"param_{name}" for name in names), "score"], rows)

    def _places_of(self, each: Tried, site: int) -> int:
        return self.demo.order(each.repeat).index(site) if each.mode == "together" else 0


def estimate(differences: Floats) -> Effect:
    """Estimate a mean difference with its interval; one repeat has no interval.

    >>> estimate(np.array([0.1, 0.3])).n
    2
    """
    return intervals.paired(differences, np.zeros_like(differences))
