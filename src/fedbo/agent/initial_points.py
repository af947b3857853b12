"""Initial points, before there is anything to model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbo.agent.settings import Settings
from fedbo.agent.streams import Stream
from fedbo.agent.trial import History
from fedbo.model.kernel import Array
from fedbo.space import Part, Space


@dataclass(eq=False, repr=False)
class InitialPoints:
    """The initial points of an agent: where they lie, and when they come."""

    space: Space | Part  # where queries may lie
    settings: Settings
    entropy: Any  # of the agent
    history: History
    given: list[Array] | None  # the user's points (D,), which replace the design

    def __len__(self) -> int:
        return self.settings.n_initial if self.given is None else len(self.given)

    def alone(self) -> list[Array]:
        """Return the points that an agent without peers starts with."""
        if self.given is not None:
            return list(self.given)
        return [self._design_point(i) for i in range(len(self))]

    @property
    def are_due(self) -> bool:
        """Whether there are fewer trials than initial points; told ones replace a design only."""
        have = sum(
            (trial.t is None and trial.state != "failed") or trial.state == "complete"
            for trial in self.history.trials
            if self.given is None or trial.source != "told"
        )
        return have < len(self) and self._left() > 0

    def next(self, key: int | None) -> Array | None:
        """Return the next initial point (D,), or None if there were enough.

        If the space lists its points, tried ones are skipped until all have been tried.

        Args:
            key: The index of the point in the design; by default, that of the next one.
        """
        if self._left() <= 0:
            return None
        asked = sum(trial.source == "initial" for trial in self.history.trials)
        if self.given is not None:
            return self.given[asked]
        i = asked if key is None else key
        points, x = self.space.points, self._design_point(i)
        if points is None or self.settings.repeats == "allow" or not self.history.points:
            return x
        tried = np.unique(np.array(self.history.points), axis=0)
        while len(tried) < len(points) and (tried == x).all(axis=1).any():
            i += 1
            x = self._design_point(i)
        return x

    def _left(self) -> int:
        """Count the points to come. In a design, told trials replace some, and failed ones none."""
        trials = self.history.trials
        if self.given is not None:
            return len(self) - sum(trial.source == "initial" for trial in trials)
        made = (trial for trial in trials if trial.state != "failed")
        return len(self) - sum(trial.source in ("initial", "told") for trial in made)

    def _design_point(self, i: int) -> Array:
        return self.settings.design_point(self.space, i, Stream.DESIGN.generator(self.entropy))
