"""What came of a demo: best scores so far, and the paired differences with their intervals.

=======  =======================================================================
R        repeats that are finished                  ``Outcome.repeats``
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

import numpy as np

from fedbo_paper.demo.demo import MODES, Demo
from fedbo_paper.demo.site import Repeat
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect, Floats

EARLY = 5  # trials; the first ones are where peers help


class Outcome:
    """The results of the repeats that are finished, at least one.

    Args:
        demo: The settings.
        finished: Its finished repeats, in any order.
    """

    def __init__(self, demo: Demo, finished: Sequence[Repeat]) -> None:
        self.demo, self.finished = demo, sorted(finished, key=lambda repeat: repeat.number)
        scores = np.array([repeat.scores for repeat in self.finished])
        self.best: Floats = np.maximum.accumulate(scores, axis=-1)
        self.repeats = len(finished)
        #: The number of trials at which the early lead is reported.
        self.early = min(EARLY, demo.trials)
        #: The mean over sites of the best score so far: (R, 2, T).
        self.curves: Floats = self.best.mean(axis=2)

    def lead(self, trial: int) -> Effect:
        """Estimate how far together is ahead of alone after so many trials."""
        return estimate(self._gains(trial).mean(axis=1))

    def by_peers(self) -> list[Effect]:
        """Estimate the lead of the first site to arrive, the second, and so on.

        It is the mean lead after 1, 2, … and `early` trials: one moment alone is too uncertain.
        """
        gains = np.mean([self._gains(trial) for trial in range(1, self.early + 1)], axis=0)
        orders = np.array([self.demo.order(repeat.number) for repeat in self.finished])
        return [estimate(column) for column in np.take_along_axis(gains, orders, axis=1).T]

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


def estimate(differences: Floats) -> Effect:
    """Estimate a mean difference with its interval; one repeat has no interval.

    >>> estimate(np.array([0.1, 0.3])).n
    2
    """
    return intervals.paired(differences, np.zeros_like(differences))
