"""An agent alone, as it is replayed: its own scores, its belief, and what it maximises next.

======  =====================================================================  ========
symbol  meaning                                                                shape
======  =====================================================================  ========
t       number of the solo agent's query, from 1                               scalar
p_t     probability that query t is Thompson sampling (as in `fedbo.EI`)       scalar
β_t     factor on the deviation of a draw (as in `fedbo.TS`)                   scalar
======  =====================================================================  ========

A solo agent queries as `fedbo.EI` or `fedbo.TS` does. Here the choice of a function is separate
from the search for its maximum, so that the functions of many solo agents are maximised at once.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from fedbo.agent.settings import Settings
from fedbo.model.argmax import SampledFunction, Taken
from fedbo.model.kernel import Array, Mask, squared_distances
from fedbo.model.surrogate import Surrogate
from fedbo.policy import EI, FTS, TS, Policy, TipsThenPool
from fedbo.policy.base import Beta, Schedule, beta_at
from fedbo.policy.improvement import ExpectedImprovement
from fedbo.policy.target import SAME
from fedbo.space import Space

_REFIT_PERCENT = 40  # of the observations must be new before a solo agent fits again


class Solo:
    """A solo agent.

    Args:
        settings: The settings of the agent that is replayed.
        space: The space.
        rng: Source of randomness.
    """

    def __init__(self, settings: Settings, space: Space, rng: np.random.Generator) -> None:
        model = msgspec.structs.replace(settings.surrogate, refit_percent=_REFIT_PERCENT)
        self.X, self.y = np.empty((0, space.dimensions)), np.empty(0)
        self.rng = rng
        self._settings, self._is_listed = settings, space.points is not None
        self._belief = Surrogate(model, space.dimensions)

    def tell(self, x: Array, score: float) -> None:
        """Learn the score of a point (D,), to be maximised."""
        self.X, self.y = np.concatenate([self.X, x[None]]), np.append(self.y, score)

    def belief(self) -> Surrogate:
        """Return the solo agent's model, fitted to all its scores."""
        self._belief.update(self.X, self._settings.scores(self.y).z, self.rng)
        return self._belief

    def best_two(self) -> Array:
        return self.X[np.argsort(self.y)[::-1][:2]]

    def is_taken_for_draw(self, X: Array) -> Mask:
        """Say which points a draw avoids: listed ones that were tried, until all of them were."""
        if not self._is_listed or self._settings.repeats == "allow":
            return np.zeros(len(X), dtype=bool)
        tried: Mask = (X[:, None] == self.X).all(axis=2).any(axis=1)
        return tried & ~tried.all()

    def is_taken_for_acquisition(self, X: Array) -> Mask:
        """Say which points an acquisition function avoids: also those close to a tried one."""
        if self._is_listed or self._settings.repeats == "allow":
            return self.is_taken_for_draw(X)
        scales = np.minimum(self._belief.hyper.length_scales, 1.0)
        return np.asarray((squared_distances(X, self.X, scales) < SAME**2).any(axis=1))


class Rule(Protocol):
    """How an agent alone chooses its queries."""

    def __call__(self, solo: Solo, t: int) -> tuple[SampledFunction, Taken]:
        """Return the function whose maximum is query t, and which points are taken."""


class Sample(msgspec.Struct, frozen=True):
    """Thompson sampling, as `fedbo.TS`."""

    beta: Beta = 1.0

    def __call__(self, solo: Solo, t: int) -> tuple[SampledFunction, Taken]:
        return solo.belief().sample(solo.rng, beta_at(self.beta, t)), solo.is_taken_for_draw


class Improve(msgspec.Struct, frozen=True):
    """Expected improvement, and Thompson sampling with probability p_t, as `fedbo.EI`."""

    schedule: Schedule = EI().schedule

    def __call__(self, solo: Solo, t: int) -> tuple[SampledFunction, Taken]:
        if solo.rng.random() < self.schedule(t) or not len(solo.X):
            return Sample()(solo, t)
        belief = solo.belief().marginal()
        best = float(belief.predict(solo.X)[0].max())
        return ExpectedImprovement(belief, best), solo.is_taken_for_acquisition


def rule_without_peers(policy: Policy) -> Rule:
    """Return how an agent with this policy would query alone.

    The paper's policies become Thompson sampling, all others expected improvement.

    >>> rule_without_peers(TipsThenPool()), rule_without_peers(FTS(beta=2.0))
    (Improve(schedule=Gradual(scale=32)), Sample(beta=2.0))
    """
    match policy:
        case TS(beta=beta) | FTS(beta=beta):
            return Sample(beta)
        case EI(schedule=schedule) | TipsThenPool(schedule=schedule):
            return Improve(schedule)
        case _:
            return Improve()
