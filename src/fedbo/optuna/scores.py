"""The score that the agent is told for each way in which a trial can end.

==================  ==================================================================
complete, finite    its value
complete, infinite  the best or the worst finite value so far
pruned              its last value, or the median of the complete ones if that is worse
failed              none
==================  ==================================================================

A pruned trial was stopped because it looked worse, so it counts as no better than half of the
others. Without a score, a region where every trial is pruned would stay unknown and attractive.
"""

from __future__ import annotations

import math
import statistics
from datetime import datetime

from optuna.trial import FrozenTrial, TrialState


class StudyChanged(Exception):
    """The study contradicts what the agent was told, so the agent must be built anew."""


def end_of(trial: FrozenTrial) -> tuple[datetime, int]:
    """A key that sorts trials in the order in which they ended."""
    return trial.datetime_complete or datetime.min, trial.number


class Scores:
    """The scores of a study's trials, in the order in which the trials ended."""

    def __init__(self, sign: float) -> None:
        self._worse = min if sign > 0 else max
        self._values: list[float] = []  # of complete trials, if finite
        self._is_relative = False  # whether any score depends on those before it
        self._last = (datetime.min, -1)

    def add(self, trial: FrozenTrial) -> float | None:
        """Return the score of the next trial; None if it has none.

        Raises `StudyChanged` if it ended before another, and any score depends on the order.
        """
        value = trial.value if trial.value is not None else math.nan
        is_complete = trial.state is TrialState.COMPLETE
        is_pruned = trial.state is TrialState.PRUNED
        self._is_relative |= is_pruned or (is_complete and not math.isfinite(value))
        if self._is_relative and end_of(trial) < self._last:
            raise StudyChanged(f"trial {trial.number} ended before one that was told")
        self._last = max(self._last, end_of(trial))
        if is_pruned:
            known = [value] if math.isfinite(value) else []
            known += [statistics.median(self._values)] if self._values else []
            return self._worse(known, default=None)
        if not is_complete:
            return None
        if math.isfinite(value):
            self._values.append(value)
            return value
        return (max if value > 0 else min)(self._values, default=None)
