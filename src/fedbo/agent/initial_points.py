"""Initial points, before there is anything to model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbo.agent.settings import Settings
from fedbo.agent.streams import Stream
from fedbo.agent.trial import History
from fedbo.model.kernel import Array
from fedbo.policy.query import Source
from fedbo.space import Part, Space


@dataclass(eq=False, repr=False)
class InitialPoints:
    """The initial points of an agent: where they lie, and when they come."""

    space: Space | Part  # where queries may lie
    settings: Settings
    entropy: Any  # of the agent
    history: History
    given: list[Array] | None  # the user's points (D,), which replace the design
    voted: list[Array] = field(default_factory=list)  # (D,) of a release, which come first

    def alone(self) -> list[Array]:
        """Return the points that an agent without peers starts with."""
        if self.given is not None:
            return list(self.given)
        return [self._design_point(i) for i in range(self.settings.n_initial)]

    def comes_next(self, first: int) -> bool:
        """Tell whether an initial point comes next; the policy wants ``first`` design points."""
        if self.given is not None:
            return self._count("initial") < len(self.given)
        have = sum(
            (trial.t is None and trial.state != "failed") or trial.state == "complete"
            for trial in self.history.trials
        )
        return have < max(first, len(self.voted))

    def skipped(self, key: int | None) -> Array | None:
        """Return the next point if there were fewer so far than the settings ask for, else None."""
        enough = self._count("initial") + self._count("told") >= self.settings.n_initial
        return None if enough else self.next(key)

    def next(self, key: int | None) -> Array:
        """Return the next initial point (D,), or the one with this index in the design.

        If the space lists its points, tried ones are skipped until all have been tried.
        """
        asked = self._count("initial")
        if self.given is not None and asked < len(self.given):
            return self.given[asked]
        i = asked if key is None else key
        if self.given is None and i < len(self.voted):
            return self.voted[i]
        points, x = self.space.points, self._design_point(i)
        if points is None or self.settings.repeats == "allow" or not self.history.points:
            return x
        tried = np.unique(np.array(self.history.points), axis=0)
        while len(tried) < len(points) and (tried == x).all(axis=1).any():
            i += 1
            x = self._design_point(i)
        return x

    def _count(self, source: Source) -> int:
        return sum(trial.source == source for trial in self.history.trials)

    def _design_point(self, i: int) -> Array:
        return self.settings.design_point(self.space, i, Stream.DESIGN.generator(self.entropy))
