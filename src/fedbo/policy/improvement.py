"""The logarithm of the expected improvement, without underflow or vanishing gradients.

======  =================================================================  =======
symbol  meaning                                                            shape
======  =================================================================  =======
mu, s   mean and standard deviation of a belief at points                  any
best    value to improve on                                                any
z       (mu − best) / s                                                    any
h(z)    pdf(z) + z cdf(z), so that EI = E[max(f − best, 0)] = s h(z)       any
m(x)    Mills' ratio cdf(−x) / pdf(x) = √(π/2) erfcx(x / √2)               any
g(x)    1 − x m(x), so that h(−x) = pdf(x) g(x) and h(x) = x + h(−x)       any
======  =================================================================  =======

In double precision EI itself is 0 for z < −39. Once a good point is known, this is most of the
cube, and an optimiser finds no slope there. log EI is computed from x = |z| and the identities
above instead. For large x the difference g loses digits, and beyond `_FAR` the asymptotic series
1/x² − 3/x⁴ + 15/x⁶ − … is more accurate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx

from fedbo.model.argmax import Search
from fedbo.model.kernel import Array
from fedbo.model.surrogate import Marginal

_FAR = {np.dtype(np.float64): 30.0, np.dtype(np.float32): 10.0}
_SERIES = (-10395.0, 945.0, -105.0, 15.0, -3.0, 1.0)
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)
_BLOCK = 1024  # rows processed at a time: (1024, t) stays in the cache

#: Points to screen for the largest improvement, which has fewer maxima than a draw.
SCREENED = 4096
#: The smallest variance that differs from 0, in standard units.
LEAST_VARIANCE = 1e-10


def log_ei(mu: Array, s: Array, best: ArrayLike) -> Array:
    """Return log E[max(f − best, 0)] for f ~ N(mu, s²) with s > 0, in the precision of mu.

    >>> log_ei(np.array([0.0, -40.0]), np.ones(2), 0.0).round(3).tolist()
    [-0.919, -808.299]
    """
    z = (mu - np.asarray(best, dtype=mu.dtype)) / s
    return _log_h(z)[0] + np.log(s)


def log_ei_and_slopes(mu: Array, s: Array, best: ArrayLike) -> tuple[Array, Array, Array]:
    """Return log EI and its derivatives with respect to mu and s.

    >>> value, by_mu, by_s = log_ei_and_slopes(np.array([-1e5]), np.ones(1), 0.0)
    >>> by_mu.round(3).tolist()
    [100000.0]
    """
    z = (mu - np.asarray(best, dtype=mu.dtype)) / s
    value, pdf_g, m, g = _log_h(z)
    below = z <= 0.0
    h = np.where(below, 1.0, np.maximum(z, 0.0) + pdf_g)
    pdf = pdf_g / g
    # d log h / dz = cdf / h, and 1 − z cdf / h = pdf / h; below zero the pdf cancels
    by_mu = np.where(below, m / g, (1.0 - pdf * m) / h)
    by_s = np.where(below, 1.0 / g, pdf / h)
    return value + np.log(s), by_mu / s, by_s / s


def _log_h(z: Array) -> tuple[Array, Array, Array, Array]:
    """Return log h(z), and pdf(x) g(x), m(x), g(x) at x = |z|."""
    x = np.abs(z)
    m = erfcx(x * x.dtype.type(np.sqrt(0.5)))
    m *= x.dtype.type(np.sqrt(0.5 * np.pi))
    g = 1.0 - x * m
    far = x > _FAR[x.dtype]
    if far.any():
        g[far] = _far_g(x[far])
    log_pdf = -0.5 * x * x - x.dtype.type(_HALF_LOG_2PI)
    pdf_g = np.exp(log_pdf) * g
    above = np.log(np.where(z > 0.0, z + pdf_g, 1.0))
    return np.where(z > 0.0, above, log_pdf + np.log(g)), pdf_g, m, g


def _far_g(x: Array) -> Array:
    u = 1.0 / (x * x)
    total = np.full_like(x, _SERIES[0])
    for coefficient in _SERIES[1:]:
        total *= u
        total += x.dtype.type(coefficient)
    return total * u


def deviation(variance: Array) -> Array:
    """Return the standard deviation, which is never 0."""
    return np.asarray(np.sqrt(np.maximum(variance, LEAST_VARIANCE)))


def improvement_and_slopes(mu: Array, var: Array, best: float) -> tuple[Array, Array, Array]:
    """Return log EI (n,), and its derivatives with respect to mean and variance, (n, 1)."""
    s = deviation(var)
    value, by_mu, by_s = log_ei_and_slopes(mu, s, best)
    by_var = by_s * (var > LEAST_VARIANCE) / (2.0 * s)
    return value, by_mu[:, None], by_var[:, None]


class Improvement:
    """The logarithm of an expected improvement over ``best``, a function on the cube.

    `predict` returns the mean and variance (n,) of a belief.
    """

    search = Search(screened=SCREENED)
    best: float
    predict: Callable[[Array], tuple[Array, Array]]

    def __call__(self, X: Array) -> Array:
        if len(X) <= _BLOCK:
            return self._values(X)
        return np.concatenate([self._values(X[i : i + _BLOCK]) for i in range(0, len(X), _BLOCK)])

    def _values(self, X: Array) -> Array:
        mu, var = self.predict(X)
        return log_ei(mu, deviation(var), self.best)


class ExpectedImprovement(Improvement):
    """log EI of one belief over ``best``, in standard units.

    It is computed in the precision of the points. Variances are small differences of large numbers:
    float32 is good enough to screen points, not to compare the best of them.
    """

    def __init__(self, belief: Marginal, best: float) -> None:
        self.belief, self.predict, self.best = belief, belief.predict, best
        self.length_scales = belief.length_scales

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        mu, var, mu_gradient, var_gradient = self.belief.predict_with_gradient(X.astype(np.float64))
        value, by_mu, by_var = improvement_and_slopes(mu, var, self.best)
        return value, by_mu * mu_gradient + by_var * var_gradient


class OwnImprovement(ExpectedImprovement):
    """log EI of the agent's own belief, with a quick search for its maximum.

    Once good points are known, the maximum is often a narrow peak, a tenth to a third of a length
    scale from the best of them. So a cloud around each of the best trials is screened, with a few
    points elsewhere. In 600 problems this found as much as eight times as many points without
    clouds, in half the time.
    """

    search = Search(screened=512, around=64, starts=10, gain=1e-3, hope=2.0)
