"""An agent's trials, where they lie on the cube, and the order in which their scores came."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedbo.agent.trial import Trial
from fedbo.model.kernel import Array
from fedbo.space import Space


class History:
    """All trials of an agent in the space.

    Attributes:
        trials: All trials, by number.
        points: The point (D,) of each trial on the unit cube.
        order: Numbers of the complete trials in the order in which they were told.

    >>> from fedbo.space import Float
    >>> history = History(Space({"x": Float(0, 2)}, direction="minimize"))
    >>> trial = history.add(Trial(number=0, params={"x": 1.0}), np.array([0.5]))
    >>> history.complete(trial, 3.0)
    >>> history.X().tolist(), history.y().tolist()
    ([[0.5]], [-3.0])
    """

    def __init__(self, space: Space) -> None:
        self.trials: list[Trial] = []
        self.points: list[Array] = []
        self.order: list[int] = []
        self._space = space

    def add(self, trial: Trial, x: Array) -> Trial:
        """Enter a trial at the point x (D,) and return it."""
        self.trials.append(trial)
        self.points.append(x)
        return trial

    def complete(self, trial: Trial, score: float) -> None:
        """Record the score of a trial that was added."""
        trial.state, trial.score = "complete", score
        self.order.append(trial.number)

    @property
    def best(self) -> Trial | None:
        """The complete trial with the best score; None before any."""
        return self.trials[self.order[int(np.argmax(self.y()))]] if self.order else None

    def told(self) -> list[Trial]:
        """Return the complete trials in the order in which they were told."""
        return [self.trials[number] for number in self.order]

    def X(self, numbers: Iterable[int] | None = None) -> Array:
        """Return the points (n, D) of these trials; of the complete ones by default."""
        chosen = self.order if numbers is None else numbers
        points = [self.points[number] for number in chosen]
        return np.array(points).reshape(-1, self._space.dimensions)

    def y(self, numbers: Iterable[int] | None = None) -> Array:
        """Return the scores (n,) of these trials, to be maximised; all scores by default."""
        chosen = self.order if numbers is None else numbers
        scores = [self.trials[number].score for number in chosen]
        return self._space.sign * np.array(scores, dtype=np.float64)

    def open_points(self) -> Array:
        """Return the points (m, D) that have no score: those of pending and failed trials."""
        return self.X(trial.number for trial in self.trials if trial.score is None)

    def queries(self) -> int:
        """Count the policy's queries so far; failed ones do not count."""
        return sum(trial.t is not None and trial.state != "failed" for trial in self.trials)
