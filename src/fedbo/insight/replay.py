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

Nobody knows what a solo agent would have found, because nobody has evaluated the objective where it
would have looked. So the objective is drawn from the agent's own belief, given all its scores. On
each draw, a solo agent with the same settings and the same initial points runs Thompson sampling
and sees only its own scores. To save time it fits its hyper-parameters less often and searches for
the maximum of a draw less thoroughly.

Both sides are judged by v, the values of f_s at their queries. The best of many noisy scores is
biased upwards, so told scores on one side and simulated ones on the other could not be compared.

Accuracy was measured on functions drawn from a GP with a different kernel, where real solo agents
can be run: 88 federations with D = 2 and 40 with D = 4, half of them with good peers and half with
useless ones, half with noise, and five real solo runs for each. The 90 % interval of trials saved
contained 93 % (D = 2) and 92 % (D = 4) of the real runs; it was 21 and 28 trials wide. Its median
was 0.2 ± 0.5 trials below that of the real runs (D = 2) and 2.9 ± 1.1 above it (D = 4). On the true
function a replayed agent needs as many trials as a real one (D = 2: 0.2 ± 0.9 more), so the drawn
functions may be slightly too hard. No federation with useless peers had an interval entirely above
0. All of this was measured with FTS and 30 to 40 trials, before low scores were compressed. The
accuracy for longer runs is unknown.
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
        shared: Trials that no peer influenced, (n,). The solo agents make them as well.
        initial: Points that solo agents take before their own queries, in the place of the first
            trials that are not shared.
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
            near, taken = [solo.best() for solo in solos], [solo.taken() for solo in solos]
            places = list(argmax_each(f_t, space, near, taken))
        for solo, truth, x in zip(solos, truths, places, strict=True):
            solo.tell(x, truth.score(x, rng))
    together = np.array([truth(X[:h]) for truth in truths])
    alone = np.array([f(solo.X) for f, solo in zip(truths, solos, strict=True)])
    return np.maximum.accumulate(together, axis=1), np.maximum.accumulate(alone, axis=1)


class _Truth:
    """A function that the objective may be, in the user's units."""

    def __init__(self, f: SampledFunction, mean: float, noise: float, scores: Scores) -> None:
        self.f, self.mean, self.noise, self.scores = f, mean, noise, scores

    def __call__(self, X: Array, noise: float = 0.0) -> Array:
        """Return v at the rows of X; ``noise`` is added in standard units."""
        return self.scores.unwarp(self.mean + self.f(X) + noise)

    def score(self, x: Array, rng: np.random.Generator) -> float:
        """Return a score at x, as noisy as the agent believes its scores to be."""
        return float(self(x[None], self.noise * rng.standard_normal())[0])


def _truths(
    X: Array, y: Array, settings: Settings, draws: int, rng: np.random.Generator
) -> list[_Truth]:
    """Draw functions from the agent's belief, given all its scores."""
    scores, fit = settings.scores(y), settings.surrogate.fit
    early = len(X) < settings.surrogate.refit_every
    hyper = fit.default(X.shape[1]) if early else fit(X, scores.z, rng)
    gp = GP(hyper, X)
    ones = np.ones(len(X))
    precision = float(ones @ gp.solve(ones)) + _MEAN_SPREAD**-2
    centre = float(ones @ gp.solve(scores.z)) / precision
    truths = []
    for mean in centre + rng.standard_normal(draws) / np.sqrt(precision):
        gp.set_scores(scores.z - mean)
        truths.append(_Truth(gp.sample(rng), mean, np.sqrt(hyper.noise_variance), scores))
    return truths


class _Solo:
    """A solo agent: its trials and its belief."""

    def __init__(self, settings: Settings, space: Space, rng: np.random.Generator) -> None:
        model = msgspec.structs.replace(settings.surrogate, refit_percent=_REFIT_PERCENT)
        self.X = np.empty((0, space.dimensions))
        self.y = np.empty(0)
        self._settings, self._space, self._rng = settings, space, rng
        self._belief = Surrogate(model, space.dimensions)

    def tell(self, x: Array, score: float) -> None:
        self.X, self.y = np.concatenate([self.X, x[None]]), np.append(self.y, score)

    def best(self) -> Array:
        """Return its two best points."""
        return self.X[np.argsort(self.y)[::-1][:2]]

    def taken(self) -> Taken | None:
        """Say which listed points it has tried, if its settings avoid repetitions."""
        if self._space.points is None or self._settings.repeats == "allow":
            return None
        return lambda X: (X[:, None] == self.X).all(axis=2).any(axis=1)

    def draw(self, beta: float) -> SampledFunction:
        """Draw f_t."""
        self._belief.update(self.X, self._settings.scores(self.y).z, self._rng)
        return self._belief.sample(self._rng, beta)
