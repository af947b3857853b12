"""A replay of an agent's trials without its peers, on functions drawn from its own belief.

======  =====================================================================  ============
symbol  meaning                                                                shape
======  =====================================================================  ============
S       draws: functions that agree with all scores of the agent, up to noise  scalar
h       trials that are replayed, at most `LONGEST`                            scalar
y       scores to be maximised, in the user's units                            (n,)
z       the same in standard units                                             (n,)
f_s     a draw of the objective in standard units; its mean is drawn, too      function
f_t     a draw from what replay s believes before its query t                  function
v       noise-free scores f_s(x), in the user's units                          (S, h)
======  =====================================================================  ============

Nobody has evaluated the objective where a solo agent would have looked. So the objective is drawn
from the agent's own belief, given all its scores. On each draw, a solo agent with the same settings
and the same initial points runs Thompson sampling and sees only its own scores. To save time it
fits its hyper-parameters less often and searches for the maximum of a draw less thoroughly.

Both sides are judged by v, the values of f_s at their queries: the best of many noisy scores would
be biased upwards. docs/lab/explain.md says how accurate the estimate is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.agent.settings import Settings
from fedbo.model.argmax import Taken, argmax_each
from fedbo.model.function import SampledFunction
from fedbo.model.gp import GP
from fedbo.model.kernel import Array
from fedbo.model.scores import Scores
from fedbo.model.surrogate import Surrogate
from fedbo.policy.base import Beta, beta_at
from fedbo.space import Space

LONGEST = 200  # trials: a longer replay would take minutes
_REFIT_PERCENT = 40  # of the observations must be new before a solo agent fits again
_MEAN_SPREAD = 1.0  # prior standard deviation of the objective's mean, in standard units


def replay(
    X: Array,
    y: Array,
    shared: NDArray[np.bool_],
    *,
    initial: Sequence[Array],
    space: Space,
    settings: Settings,
    beta: Beta,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Replay an agent's trials on functions drawn from its belief.

    Args:
        X: The agent's points in the order of its trials, (n, D).
        y: Their scores, to be maximised, (n,).
        shared: Which trials no peer influenced, (n,). The solo agents make them as well.
        initial: Points at which solo agents make their first trials that are not shared.
        space: The space.
        settings: The agent's settings.
        beta: β_t of the solo agents.
        draws: S.
        rng: Source of randomness.

    Returns:
        The best v so far of the agent and of the solo agents, (S, h) each.
    """
    truths = _truths(X, y, settings, draws, rng)
    solos = [_Solo(settings, space, rng) for _ in truths]
    more, t, h = list(initial), 0, min(len(X), LONGEST)
    for k in range(h):
        if shared[k]:
            for solo in solos:
                solo.tell(X[k], y[k])
            continue
        if more:
            places: Sequence[Array] = [more.pop(0)] * len(solos)
        else:
            t += 1
            f_t = [solo.draw(beta_at(beta, t)) for solo in solos]
            near, taken = [solo.best_two() for solo in solos], [solo.taken() for solo in solos]
            places = list(argmax_each(f_t, space, near, taken))
        for solo, truth, x in zip(solos, truths, places, strict=True):
            solo.tell(x, truth.score(x, rng))
    together = np.array([truth(X[:h]) for truth in truths])
    alone = np.array([f(solo.X) for f, solo in zip(truths, solos, strict=True)])
    return np.maximum.accumulate(together, axis=1), np.maximum.accumulate(alone, axis=1)


class _Truth:  # a function that the objective may be, in the user's units
    def __init__(self, f: SampledFunction, mean: float, noise: float, scores: Scores) -> None:
        self.f, self.mean, self.noise, self.scores = f, mean, noise, scores

    def __call__(self, X: Array, noise: float = 0.0) -> Array:
        return self.scores.unwarp(self.mean + self.f(X) + noise)

    def score(self, x: Array, rng: np.random.Generator) -> float:
        return float(self(x[None], self.noise * rng.standard_normal())[0])


def _truths(
    X: Array, y: Array, settings: Settings, draws: int, rng: np.random.Generator
) -> list[_Truth]:
    scores, fit = settings.scores(y), settings.surrogate.fit
    early = len(X) < settings.surrogate.refit_every
    hyper = fit.default(X.shape[1]) if early else fit(X, scores.z, rng)
    gp, ones = GP(hyper, X), np.ones(len(X))
    precision = float(ones @ gp.solve(ones)) + _MEAN_SPREAD**-2
    centre = float(ones @ gp.solve(scores.z)) / precision
    truths = []
    for mean in centre + rng.standard_normal(draws) / np.sqrt(precision):
        gp.set_scores(scores.z - mean)
        truths.append(_Truth(gp.sample(rng), mean, np.sqrt(hyper.noise_variance), scores))
    return truths


class _Solo:
    def __init__(self, settings: Settings, space: Space, rng: np.random.Generator) -> None:
        model = msgspec.structs.replace(settings.surrogate, refit_percent=_REFIT_PERCENT)
        self.X, self.y = np.empty((0, space.dimensions)), np.empty(0)
        self._settings, self._space, self._rng = settings, space, rng
        self._belief = Surrogate(model, space.dimensions)

    def tell(self, x: Array, score: float) -> None:
        self.X, self.y = np.concatenate([self.X, x[None]]), np.append(self.y, score)

    def best_two(self) -> Array:
        return self.X[np.argsort(self.y)[::-1][:2]]

    def taken(self) -> Taken | None:
        if self._space.points is None or self._settings.repeats == "allow":
            return None
        return lambda X: (X[:, None] == self.X).all(axis=2).any(axis=1)

    def draw(self, beta: float) -> SampledFunction:
        self._belief.update(self.X, self._settings.scores(self.y).z, self._rng)
        return self._belief.sample(self._rng, beta)
