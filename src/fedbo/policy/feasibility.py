"""Where a point is likely to satisfy the constraints of its agent, which no message speaks of.

======  ====================================================================  ==========
symbol  meaning                                                               shape
======  ====================================================================  ==========
c_j     constraint j; a point is feasible if c_j ≤ 0 for all j                function
C       values of the constraints at the points of the agent's scores         (t, J)
z, h    −C_j in standard units, and 0 in the same units                       (t,), scalar
m, s    mean and standard deviation of a GP of z at a point                   (n,)
F(x)    Σ_j log Φ((m − h) / s), the log probability that x is feasible        (n,)
======  ====================================================================  ==========

Each constraint has a GP of its own, fitted as the agent's scores are. An acquisition function is a
logarithm of an expected improvement, so F is added to it: log EI + log P(feasible) [Gardner et al.,
2014]. To a draw it is added as well, so that draws avoid what is known to be infeasible. While
nothing feasible is known, F alone is maximised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr

from fedbo.model.argmax import SampledFunction, Search, Tabled
from fedbo.model.kernel import Array, Mask
from fedbo.model.surrogate import Marginal, Standardised, Surrogate
from fedbo.policy.improvement import LEAST_VARIANCE, deviation

_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)


class Feasibility:
    """What an agent knows of its constraints; ``at_X`` (t,) tells which rows of X are feasible.

    Args:
        models: A model for each constraint, which is fitted on first use.
        X: Points of the agent's scores, (t, D).
        C: Values of the constraints there, (t, J).
        standard: Brings numbers that are large where they are good to standard units.
        rng: Source of randomness for the fits.
    """

    def __init__(
        self,
        models: Sequence[Surrogate],
        X: Array,
        C: Array,
        standard: Callable[[Array], Standardised],
        rng: np.random.Generator,
    ) -> None:
        self._models, self._X, self._C, self._standard, self._rng = models, X, C, standard, rng
        self.at_X: Mask = np.asarray((C <= 0.0).all(axis=1))

    @cached_property
    def probability(self) -> LogProbability:
        """F."""
        beliefs: list[Marginal] = []
        limits: list[float] = []
        for model, c in zip(self._models, self._C.T, strict=True):
            z = self._standard(np.append(-c, 0.0)).z  # together, so that they have the same units
            model.update(self._X, z[:-1], self._rng)
            beliefs.append(model.marginal())
            limits.append(float(z[-1]))
        return LogProbability(beliefs, limits)

    def restrict(self, function: SampledFunction) -> SampledFunction:
        """Return the function plus F; F alone while nothing feasible is known."""
        if not self.at_X.any():
            return self.probability
        if isinstance(function, Tabled):
            values = function.values + self.probability(function.points)
            return Tabled(function.points, values, function.length_scales)
        return Restricted(function, self.probability)


class LogProbability:
    """F, a function on the cube, from the belief about each z, and h."""

    def __init__(self, beliefs: Sequence[Marginal], limits: Sequence[float]) -> None:
        self._beliefs, self._limits = beliefs, limits
        self.length_scales = np.min([belief.length_scales for belief in beliefs], axis=0)

    def __call__(self, X: Array) -> Array:
        total = np.zeros(len(X), dtype=X.dtype)
        for belief, h in zip(self._beliefs, self._limits, strict=True):
            mu, var = belief.predict(X)
            total += log_ndtr((mu - X.dtype.type(h)) / deviation(var))
        return total

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        total, gradient = np.zeros(len(X)), np.zeros(X.shape)
        for belief, h in zip(self._beliefs, self._limits, strict=True):
            mu, var, mu_gradient, var_gradient = belief.predict_with_gradient(X)
            s = deviation(var)
            u = (mu - h) / s
            log_p = log_ndtr(u)
            slope = np.exp(-0.5 * u * u - _HALF_LOG_2PI - log_p) / s  # of log Φ, by m
            by_var = -0.5 * slope * u / s * (var > LEAST_VARIANCE)
            total += log_p
            gradient += slope[:, None] * mu_gradient + by_var[:, None] * var_gradient
        return total, gradient


class Restricted:
    """A function plus F, to be maximised in its place."""

    def __init__(self, function: SampledFunction, probability: LogProbability) -> None:
        self._function, self._probability = function, probability
        self.length_scales = np.minimum(function.length_scales, probability.length_scales)
        self.search: Search = getattr(function, "search", Search())

    def __call__(self, X: Array) -> Array:
        return self._function(X) + self._probability(X)

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        value, gradient = self._function.value_and_gradient(X)
        log_p, slope = self._probability.value_and_gradient(X)
        return value + log_p, gradient + slope
