"""An agent's settings beside its policy, and the parts that an agent is built from."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np

from fedbo.agent.trial import Trial
from fedbo.model.argmax import argmax
from fedbo.model.kernel import Array
from fedbo.model.surrogate import Scores, Standardised, Surrogate, SurrogateSettings, SurrogateState
from fedbo.policy.target import Maximiser
from fedbo.space import Part, Space


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
        local_epsilon: For an agent that does not trust the party that makes private releases: ε of
            local privacy. It then contributes a randomised vote and nothing else, see
            `fedbo.privacy.local`. Give the agent no seed then: whoever guesses it can read the
            vote. None (default) if it trusts that party.

    >>> Settings(n_initial=5).n_initial
    5
    """

    n_initial: int = 3
    surrogate: SurrogateSettings = SurrogateSettings()
    repeats: Literal["avoid", "allow"] = "avoid"
    tips: bool = True
    local_epsilon: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.n_initial, int) or self.n_initial < 0:
            raise ValueError(f"n_initial is {self.n_initial!r}, expected an int of 0 or more")
        if self.repeats not in ("avoid", "allow"):
            raise ValueError(f"repeats is {self.repeats!r}, expected 'avoid' or 'allow'")
        if self.local_epsilon is not None and not 0.0 < self.local_epsilon < math.inf:
            raise ValueError(
                f"local_epsilon is {self.local_epsilon!r}, expected a number above 0, not infinite"
            )

    def design_point(self, space: Space | Part, i: int, rng: np.random.Generator) -> Array:
        """Return the i-th initial point (D,); the same generator state gives the same design.

        Args:
            space: Where queries may lie.
            i: Number of the point, from 0.
            rng: The source of randomness, in the same state for each i.
        """
        return space.design_point(i, rng)

    def scores(self, y: Array) -> Scores:
        """Return scores (n,) in the units that models are fitted in and messages are made of.

        Args:
            y: Scores in the agent's own units, (n,), to be maximised.
        """
        return Standardised(y)

    def model(self, dimensions: int, state: SurrogateState | None = None) -> Surrogate:
        """Return the model of the agent's own objective on a cube with this many dimensions.

        Args:
            dimensions: D, the dimensions of the cube.
            state: The state of a saved model (default: a new model).
        """
        return Surrogate(self.surrogate, dimensions, state)

    @property
    def maximiser(self) -> Maximiser:
        """The search for the point where a function is largest."""
        return argmax

    def revise(
        self, x: Array, tried: Array, space: Space | Part, rng: np.random.Generator
    ) -> Array:
        """Return the point (D,) to query instead of the policy's x; by default x itself.

        Args:
            x: The policy's choice.
            tried: The points (n, D) of all trials so far.
            space: Where queries may lie.
            rng: The source of randomness of this query.
        """
        return x

    def informs(self, trial: Trial) -> bool:
        """Tell whether the score of this trial goes into the agent's messages.

        Args:
            trial: A trial that has a score.
        """
        return True
