"""How an agent starts and models its objective: its settings, initial points, random streams."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import msgspec
import numpy as np

from fedbo.agent.trial import History, Trial
from fedbo.model.argmax import argmax
from fedbo.model.kernel import Array
from fedbo.model.surrogate import Standardised, Surrogate, SurrogateSettings, SurrogateState
from fedbo.policy.target import Maximiser
from fedbo.space.space import Part, Space


class Stream(Enum):
    """What a stream of random numbers is for; its value is the spawn key of the stream.

    The agent's queries have the root stream. Everything else has a stream of its own, so that
    handing out a message, say, does not change the next query.
    """

    DESIGN = (1,)
    MESSAGE = (2,)
    QUERY = (3,)
    COMPACT = tuple(b"compact")
    TIP = tuple(b"tip")
    EXPLAIN = tuple(b"explain")
    VOTE = tuple(b"vote")

    def generator(self, entropy: Any, *key: int) -> np.random.Generator:
        """Return this stream of an agent from its beginning; a key selects one of several."""
        seed = np.random.SeedSequence(entropy, spawn_key=(*self.value, *key))
        return np.random.default_rng(seed)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent starts and models its objective.

    A subclass may replace the parts that an agent is built from, the methods below;
    `fedbo_paper.preset` does so to follow the paper's experiments.

    Args:
        n_initial: Number of initial points before the policy's first query.
        surrogate: How the agent models its own objective.
        repeats: ``"avoid"`` (the default) keeps acquisition functions from points that were tried,
            draws from pending and failed ones, and both from listed points until all were tried;
            ``"allow"`` does not, which suits very noisy scores.
        tips: Whether messages name a tip, roughly the agent's best point (default True).

    >>> Settings(n_initial=5).n_initial
    5
    """

    n_initial: int = 3
    surrogate: SurrogateSettings = SurrogateSettings()
    repeats: Literal["avoid", "allow"] = "avoid"
    tips: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.n_initial, int) or self.n_initial < 0:
            raise ValueError(f"n_initial is {self.n_initial!r}, expected an int of 0 or more")
        if self.repeats not in ("avoid", "allow"):
            raise ValueError(f"repeats is {self.repeats!r}, expected 'avoid' or 'allow'")

    def design_point(self, space: Space | Part, i: int, rng: np.random.Generator) -> Array:
        """Return the i-th initial point (D,), i ≥ 0; rng is in the same state for each i."""
        return space.design_point(i, rng)

    def scores(self, y: Array) -> Standardised:
        """Return scores (n,) in the units that models are fitted in and messages are made of."""
        return Standardised(y)

    def model(self, dimensions: int, state: SurrogateState | None = None) -> Surrogate:
        """Return the model of the agent's own objective: a new one, or a saved one's state."""
        return Surrogate(self.surrogate, dimensions, state)

    @property
    def maximiser(self) -> Maximiser:
        """The search for the point where a function is largest."""
        return argmax

    def revise(
        self, x: Array, tried: Array, space: Space | Part, rng: np.random.Generator
    ) -> Array:
        """Return the point (D,) to query instead of the policy's x; ``tried`` are all trials'."""
        return x

    def informs(self, trial: Trial) -> bool:
        """Tell whether the score of this trial goes into the agent's messages."""
        return True


@dataclass(eq=False, repr=False)
class InitialPoints:
    """The initial points of an agent: where they lie, and when they come."""

    space: Space | Part  # where queries may lie
    settings: Settings
    entropy: Any  # of the agent
    history: History
    points: list[Array] | None  # the user's points (D,), which replace the design

    def __len__(self) -> int:
        return self.settings.n_initial if self.points is None else len(self.points)

    def alone(self, seed: int) -> list[Array]:
        """Return the points that an agent without peers starts with: the user's, or a design."""
        if self.points is not None:
            return list(self.points)
        return [self._design_point(i, seed) for i in range(len(self))]

    @property
    def are_due(self) -> bool:
        """Whether there are fewer trials than initial points; told ones replace a design only."""
        have = sum(
            (trial.t is None and trial.state != "failed") or trial.state == "complete"
            for trial in self.history.trials
            if self.points is None or trial.source != "told"
        )
        return have < len(self) and self._left() > 0

    def next(self, key: int | None) -> Array | None:
        """Return the next initial point (D,), or the one with this index in the design.

        None if there were enough. Listed points are skipped if they were tried, until all were.
        """
        if self._left() <= 0:
            return None
        asked = sum(trial.source == "initial" for trial in self.history.trials)
        if self.points is not None:
            return self.points[asked]
        i = asked if key is None else key
        listed, x = self.space.points, self._design_point(i)
        if listed is None or self.settings.repeats == "allow" or not self.history.points:
            return x
        tried = np.unique(np.array(self.history.points), axis=0)
        while len(tried) < len(listed) and (tried == x).all(axis=1).any():
            i += 1
            x = self._design_point(i)
        return x

    def _left(self) -> int:
        """Count the points to come. In a design, told trials replace some, and failed ones none."""
        trials = self.history.trials
        if self.points is not None:
            return len(self) - sum(trial.source == "initial" for trial in trials)
        made = (trial for trial in trials if trial.state != "failed")
        return len(self) - sum(trial.source in ("initial", "told") for trial in made)

    def _design_point(self, i: int, seed: int | None = None) -> Array:
        entropy = self.entropy if seed is None else seed
        return self.settings.design_point(self.space, i, Stream.DESIGN.generator(entropy))
