"""Initial points, before there is anything to model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedbo.agent.history import History
from fedbo.agent.settings import Settings
from fedbo.agent.streams import Stream, generator
from fedbo.model.gp import rows_of
from fedbo.model.kernel import Array
from fedbo.space import Part, Space


class InitialPoints:
    """The initial points of an agent: those that its user gave, or else a design.

    Nothing else decides where initial points lie and when they come.

    Args:
        space: The space, or the part of it that queries stay in.
        settings: The agent's settings: how many points, and which design.
        entropy: The agent's entropy, which the design is seeded with.
        given: Points (D,) of the user, which come first, all of them, instead of the design.
    """

    def __init__(
        self,
        space: Space | Part,
        settings: Settings,
        entropy: Any,
        given: Sequence[Array] | None = None,
    ) -> None:
        self._space = space
        self._settings = settings
        self._entropy = entropy
        self._given = None if given is None else list(given)

    def alone(self) -> list[Array]:
        """Return the points that an agent without peers starts with."""
        if self._given is not None:
            return list(self._given)
        return [self._design_point(i) for i in range(self._settings.n_initial)]

    def comes_next(self, history: History, first: int) -> bool:
        """Tell whether the next query is an initial point.

        Args:
            history: The agent's trials so far.
            first: How many points of the design its policy wants to start with.
        """
        if self._given is not None:
            return _asked(history) < len(self._given)
        have = sum(
            (trial.t is None and trial.state != "failed") or trial.state == "complete"
            for trial in history.trials
        )
        return have < first

    def was_skipped(self, history: History) -> bool:
        """Tell whether there were fewer initial points so far than the settings ask for."""
        told = sum(trial.source == "told" for trial in history.trials)
        return _asked(history) + told < self._settings.n_initial

    def next(self, history: History, key: int | None = None) -> Array:
        """Return the next initial point (D,); of listed points, the next that was not tried.

        Args:
            history: The agent's trials so far.
            key: The index of the point in the design, if it is not the number of those before.
        """
        asked = _asked(history)
        if self._given is not None and asked < len(self._given):
            return self._given[asked]
        i, tried = asked if key is None else key, self._tried(history)
        while self._row(x := self._design_point(i)) in tried:
            i += 1
        return x

    def _design_point(self, i: int) -> Array:
        rng = generator(self._entropy, Stream.DESIGN)
        return self._settings.design_point(self._space, i, rng)

    def _tried(self, history: History) -> set[int]:
        """Rows of the listed points that were tried; none if all were, or repeats are allowed."""
        if self._space.points is None or self._settings.repeats == "allow":
            return set()
        tried = {self._row(x) for x in history.points}
        return tried if len(tried) < len(self._space.points) else set()

    def _row(self, x: Array) -> int:
        points = self._space.points
        return -1 if points is None else int(rows_of(x[None], points)[0])


def _asked(history: History) -> int:
    return sum(trial.source == "initial" for trial in history.trials)
