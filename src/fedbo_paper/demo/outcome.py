"""What came of a demo: best scores so far, and how many trials collaborating saved.

=======  =======================================================================
R        repeats that are finished                  ``Outcome.repeats``
N        sites                                      ``Demo.agents``
T        trials of a site in each mode and repeat   ``Demo.trials``
mode     0 alone, 1 together: ``MODES``
best     the best score so far: (R, 2, N, T)
curves   its mean over the sites: (R, 2, T)
=======  =======================================================================

A site together is always compared with the same site alone, with the same seed in the same repeat.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from fedbo.cli.screen import count
from fedbo_paper.demo.demo import MODES, N_INITIAL, Demo
from fedbo_paper.demo.site import Repeat

Floats = NDArray[np.float64]
EARLY = N_INITIAL  # trials; a site alone has only its initial points then
ALONE, TOGETHER = MODES.index("alone"), MODES.index("together")


class Outcome:
    """The results of the repeats that are finished, at least one.

    Args:
        demo: The settings.
        finished: Its finished repeats, in any order.
    """

    def __init__(self, demo: Demo, finished: Sequence[Repeat]) -> None:
        self.demo, self.finished, self.repeats = demo, finished, len(finished)
        scores = np.array([repeat.scores for repeat in finished])
        self.best: Floats = np.maximum.accumulate(scores, axis=-1)
        self.curves: Floats = self.best.mean(axis=2)
        #: The trials that alone needs to get as far as together in EARLY; T + 1 if T are too few.
        self.needed = trials_needed(self.curves.mean(axis=0))

    def shares(self, trial: int) -> tuple[float, float]:
        """Return the shares of sites that are ahead together, and behind, after so many trials."""
        gains = self.best[:, TOGETHER, :, trial - 1] - self.best[:, ALONE, :, trial - 1]
        return float(np.mean(gains > 0)), float(np.mean(gains < 0))

    def headline(self) -> str:
        """Say in one sentence how many trials collaborating saved, on average."""
        T = self.demo.trials
        if self.needed > T:
            return f"Together, sites reached in {EARLY} trials what they did not in {T} alone."
        if self.needed > EARLY:
            return f"Together, sites reached in {EARLY} trials what took them {self.needed} alone."
        alone = count(self.needed, "trial")
        return f"No gain: what sites reached together in {EARLY} trials took {alone} alone."

    def doubt(self) -> str:
        """Say in how many repeats alone needed more trials, and how their number varies."""
        T, needed = self.demo.trials, [trials_needed(curves) for curves in self.curves]
        ends = [str(n) if n <= T else f"more than {T}" for n in (min(needed), max(needed))]
        span = ends[0] if ends[0] == ends[1] else f"between {ends[0]} and {ends[1]}"
        slower = sum(n > EARLY for n in needed)
        is_clear = binomtest(slower, self.repeats).pvalue < 0.05
        repeats = count(self.repeats, "repeat")
        is_all = slower == self.repeats > 1
        where = f"In {'each of the' if is_all else f'{slower} of'} {repeats}"
        return (
            f"{where}, alone needed more than those {EARLY} trials"
            f"{':' if slower == self.repeats else '; over all repeats it needed'} {span}."
            f"{'' if is_clear else ' This may be chance: try more --repeats.'}"
        )


def trials_needed(curves: Floats) -> int:
    """Count the trials (2, T) until alone is where together was after EARLY; T + 1 if never.

    >>> trials_needed(np.array([[0.2, 0.4, 0.6, 0.7, 0.8], [0.5, 0.6, 0.7, 0.8, 0.8]]))
    4
    """
    reached = np.append(curves[ALONE] >= curves[TOGETHER, EARLY - 1], True)
    return int(reached.argmax()) + 1
