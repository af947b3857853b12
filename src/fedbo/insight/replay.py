"""A replay of an agent's trials without its peers, on functions drawn from its own belief.

======  =====================================================================  ============
symbol  meaning                                                                shape
======  =====================================================================  ============
S       draws: functions that agree with all scores of the agent, up to noise  scalar
h       trials that are replayed, at most `LONGEST`                            scalar
y       scores to be maximised, in the user's units                            (n,)
z       the same in standard units                                             (n,)
f_s     a draw of the objective in standard units; its mean is drawn, too      function
f_t     what solo agent s maximises in its query t: expected improvement, or   function
        a draw from its belief
v       noise-free scores f_s(x), in standard units                            (S, h)
t       number of the solo agent's query, from 1                               scalar
p_t     probability that query t is Thompson sampling (as in `fedbo.EI`)       scalar
β_t     factor on the deviation of a draw (as in `fedbo.TS`)                   scalar
======  =====================================================================  ============

Nobody has evaluated the objective where a solo agent would have looked. So the objective is drawn
from the agent's own belief, given all its scores. On each draw, a solo agent with the same settings
and an initial design of its own sees only its own scores, and queries as the agent would without
peers: by expected improvement, or by Thompson sampling if the agent follows the paper. To save time
it fits its hyper-parameters less often and searches for a maximum less thoroughly.

Both sides are judged by v, the values of f_s at their queries: the best of many noisy scores would
be biased upwards. So would be the maximum of f_s where nobody has looked, and an error could become
negative: no value counts as better than the agent's best score. docs/lab/explain.md says how
accurate the estimate is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.agent.settings import Settings
from fedbo.model.argmax import SampledFunction, Search, Taken, argmax
from fedbo.model.gp import GP
from fedbo.model.kernel import Array, Mask, squared_distances
from fedbo.model.surrogate import Standardised, Surrogate
from fedbo.policy import EI, FTS, TS, Policy
from fedbo.policy.base import beta_at
from fedbo.policy.improvement import ExpectedImprovement
from fedbo.policy.target import SAME
from fedbo.space import Space

LONGEST = 200  # trials: a longer replay would take minutes
_MEAN_SPREAD = 1.0  # prior standard deviation of the objective's mean, in standard units
_QUICK = Search(screened=512, starts=3, gain=1e-4, rounds=0)
_REFIT_PERCENT = 40  # of the observations must be new before a solo agent fits again


def replay(
    X: Array,
    y: Array,
    shared: NDArray[np.bool_],
    *,
    initial: Sequence[Sequence[Array]],
    space: Space,
    settings: Settings,
    policy: EI | TS,
    t: int = 1,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Replay an agent's trials on functions drawn from its belief, one for each solo agent.

    Args:
        X: The agent's points in the order of its trials, (n, D).
        y: Their scores, to be maximised, (n,).
        shared: Which trials no peer influenced, (n,). The solo agents make them as well.
        initial: Points at which each solo agent makes its first trials that are not shared.
        space: The space.
        settings: The agent's settings.
        policy: How the solo agents choose their queries.
        t: The number of the solo agents' first query of their own (default 1).
        rng: Source of randomness.

    Returns:
        The best v so far of the agent and of the solo agents, (S, h) each.
    """
    truths = _truths(X, y, settings, len(initial), rng)
    solos = [Solo(settings, space, rng) for _ in truths]
    first, h = list(zip(*initial, strict=True)), min(len(X), LONGEST)
    for k in range(h):
        if shared[k]:
            for solo in solos:
                solo.tell(X[k], y[k])
            continue
        if first:
            places = np.array(first.pop(0))
        else:
            places = _queries(solos, policy, t, space)
            t += 1
        for solo, truth, x in zip(solos, truths, places, strict=True):
            solo.tell(x, truth.score(x, rng))
    together = np.array([truth.value(X[:h]) for truth in truths])
    alone = np.array([f.value(solo.X) for f, solo in zip(truths, solos, strict=True)])
    return np.maximum.accumulate(together, axis=1), np.maximum.accumulate(alone, axis=1)


def _queries(solos: Sequence[Solo], policy: EI | TS, t: int, space: Space) -> Array:
    """Return query t of each solo agent, (S, D).

    As in an agent, a draw decides where the search has found only taken points.
    """
    places, taken = _maximise(solos, policy, t, space)
    again = [i for i, is_taken in enumerate(taken) if is_taken(places[i][None])[0]]
    if again:
        places[again], _ = _maximise([solos[i] for i in again], TS(), t, space)
    return places


def _maximise(
    solos: Sequence[Solo], policy: EI | TS, t: int, space: Space
) -> tuple[Array, Sequence[Taken]]:
    f_t, taken = zip(*(solo.function(policy, t) for solo in solos), strict=True)
    tasks = zip(f_t, solos, taken, strict=True)
    return np.array([argmax(f, space, solo.best_two(), t, _QUICK) for f, solo, t in tasks]), taken


class _Truth:  # a function that the objective may be
    def __init__(self, f: SampledFunction, mean: float, noise: float, scores: Standardised) -> None:
        self.f, self.mean, self.noise, self.scores = f, mean, noise, scores

    def value(self, X: Array) -> Array:
        """Return v (n,), in standard units: at most the best score."""
        return np.asarray(np.minimum(self.mean + self.f(X), self.scores.z.max()))

    def score(self, x: Array, rng: np.random.Generator) -> float:
        """Return a noisy score in the user's units."""
        z = self.value(x[None]) + self.noise * rng.standard_normal()
        return float(self.scores.unwarp(z)[0])


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


class Solo:
    """An agent alone, as it is replayed: its own scores, and its belief.

    It queries as `fedbo.EI` or `fedbo.TS` does.
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

    def function(self, policy: EI | TS, t: int) -> tuple[SampledFunction, Taken]:
        """Return the function whose maximum is query t, and which points are taken."""
        if isinstance(policy, EI) and not self.rng.random() < policy.schedule(t) and len(self.X):
            belief = self.belief().marginal()
            best = float(belief.predict(self.X)[0].max())
            return ExpectedImprovement(belief, best), self.is_taken_for_acquisition
        beta = beta_at(policy.beta, t) if isinstance(policy, TS) else 1.0
        return self.belief().sample(self.rng, beta), self.is_taken_for_draw

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


def without_peers(policy: Policy) -> EI | TS:
    """Return how an agent with this policy would query alone.

    The paper's policies become Thompson sampling, all others expected improvement.

    >>> from fedbo.policy import TipsThenPool
    >>> without_peers(TipsThenPool()), without_peers(FTS(beta=2.0))
    (EI(schedule=Gradual(scale=32)), TS(beta=2.0))
    """
    match policy:
        case TS(beta=beta) | FTS(beta=beta):
            return TS(beta)
        case EI(schedule=schedule):
            return EI(schedule)
        case _:
            return EI()
