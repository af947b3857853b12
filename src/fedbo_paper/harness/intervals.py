"""Estimates with 95 % intervals, and the rules that turn an interval into a verdict.

=========  ====================================================================================
a, b       the same quantity of two methods, one value per run; runs at the same index are paired
clusters   the cluster of each run. Runs on one function resemble each other, so they are not
           independent evidence: the unit of analysis is then the mean of a cluster
δ          the smallest difference that matters
low, high  ends of the t-interval of a mean over n units; infinite for a single value, and if all
           values are the same: scores are coarse (a validation error has about 100 values), so
           values that agree exactly do not show their spread, and decide nothing
K          number of targets, the clusters of a bootstrap
W          resamples: how often each target was drawn, divided by K (RESAMPLES, K)
=========  ====================================================================================

A verdict depends on the interval only. An effect is positive if the claim's side is ahead. ``zero``
(0, or 1 for a ratio) is the effect at which neither side is ahead.

=============  =======================  ==================================  ===========
claim          holds                    does not hold                       otherwise
=============  =======================  ==================================  ===========
`superior`     low > 0                  high < δ: even in the best case     not decided
                                        the lead does not matter
`comparable`   −δ < low and high < δ    high < −δ or low > δ                not decided
`no_worse`     low > −δ                 high < −δ                           not decided
=============  =======================  ==================================  ===========

A hedged claim (A *may* be ahead) cannot be refuted: `sighted` finds it "seen" if low > 0, and else
"not seen". What follows from how methods are defined, such as the length of a message, is no
finding of runs: its verdict is "by definition".

If neither side is ahead, "superior" holds in 2.5 % of experiments. If the lead is δ or more, it
fails in at most 2.5 %. The other two rules have the same error rates at their limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Verdict = Literal["holds", "does not hold", "not decided", "seen", "not seen", "by definition"]

LEVEL = 0.95  # of an interval
RESAMPLES = 2000  # of a bootstrap
_ROUNDING = 1e-12  # of values that would agree exactly but for their last bits
TAILS = (0.025, 0.975)  # its quantiles

Floats = NDArray[np.float64]


class Effect(msgspec.Struct, frozen=True):
    """An estimate, its interval, and the number of units that it is a mean over."""

    value: float
    low: float
    high: float
    n: int


def mean(values: Floats, level: float = LEVEL) -> Effect:
    """Compute the mean and its t-interval.

    >>> mean(np.array([1.0, 2.0, 3.0]))
    Effect(value=2.0, low=-0.484..., high=4.484..., n=3)
    """
    n = len(values)
    if n == 0 or not np.isfinite(values).all():
        raise ValueError(
            f"{n} values, {np.count_nonzero(~np.isfinite(values))} of them not finite; "
            "expected at least one, all finite: leave out incomplete runs"
        )
    centre = float(values.mean())
    if np.ptp(values) <= _ROUNDING * np.abs(values).max():
        return Effect(centre, -np.inf, np.inf, n)
    reach = float(stdtrit(n - 1, 0.5 + level / 2) * values.std(ddof=1) / np.sqrt(n))
    return Effect(centre, centre - reach, centre + reach, n)


def paired(
    a: Floats, b: Floats, clusters: NDArray[Any] | None = None, level: float = LEVEL
) -> Effect:
    """Compute the mean of a − b and its t-interval.

    >>> a, b = np.array([3.0, 3.0, 5.0, 5.0]), np.array([2.0, 2.0, 2.0, 2.0])
    >>> paired(a, b).n, paired(a, b, clusters=np.array([0, 0, 1, 1])).n
    (4, 2)
    """
    return mean(cluster_means(a - b, clusters), level)


def ratio(a: Floats, b: Floats, clusters: NDArray[Any] | None = None) -> Effect:
    """Compute the geometric mean of a / b; its interval is that of the mean logarithm.

    >>> round(ratio(np.array([2.0, 8.0]), np.array([1.0, 1.0])).value, 9)
    4.0
    """
    effect = mean(cluster_means(np.log(a) - np.log(b), clusters))
    value, low, high = np.exp((effect.value, effect.low, effect.high)).tolist()  # exp(−∞) is 0
    return Effect(value, low, high, effect.n)


def exponent(x: Floats, y: Floats) -> Effect:
    """Compute the slope of log y (n, k) against log x (k,): the mean slope of the n rows.

    >>> round(exponent(np.array([1.0, 10.0]), np.array([[2.0, 20.0], [3.0, 30.0]])).value, 9)
    1.0
    """
    away = np.log(x) - np.log(x).mean()
    return mean(np.log(y) @ away / (away @ away))


def cluster_means(values: Floats, clusters: NDArray[Any] | None) -> Floats:
    """Compute the mean of each cluster; without clusters, return the values.

    >>> cluster_means(np.array([1.0, 3.0, 7.0]), np.array(["a", "a", "b"]))
    array([2., 7.])
    """
    if clusters is None:
        return values
    _, cluster = np.unique(clusters, return_inverse=True)
    means: Floats = np.bincount(cluster, weights=values) / np.bincount(cluster)
    return means


def mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    """Compute the mean over the first axis and its standard error, NaN for a single value.

    >>> centre, error = mean_and_error(np.array([1.0, 3.0]))
    >>> float(centre), float(error)
    (2.0, 1.0)
    """
    if len(values) < 2:
        return values.mean(axis=0), np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def bootstrap(statistic: Callable[..., Any], *values: Floats) -> Effect:
    """Compute a statistic of means and its percentile bootstrap interval over targets.

    The seeds of a target stay together, because runs on one target resemble each other.

    Args:
        statistic: A numpy function of the means: `np.positive` for a mean, `np.divide` for a ratio.
        values: One array (K, seeds) for each argument of the statistic, all with the same targets.

    Returns:
        The statistic of the overall means; NaN where it is not defined, such as 0 / 0.

    >>> bootstrap(np.divide, np.array([[1.0, 3.0], [2.0, 2.0]]), np.full((2, 2), 4.0)).value
    0.5
    """
    W = resamples(len(values[0]))
    by_target = [each.mean(axis=1) for each in values]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(*(each.mean() for each in by_target)))
        samples = np.asarray(statistic(*(W @ each for each in by_target)))
    samples = samples[~np.isnan(samples)]
    if not samples.size:
        return Effect(value, np.nan, np.nan, W.shape[1])
    # "lower" and "higher" pick existing samples: interpolating between infinite ones gives NaN
    low = float(np.quantile(samples, TAILS[0], method="lower"))
    high = float(np.quantile(samples, TAILS[1], method="higher"))
    return Effect(value, low, high, W.shape[1])


def resamples(K: int, n: int = RESAMPLES) -> Floats:
    """Draw n resamples W of K targets, the same ones each time; each row sums to 1.

    >>> resamples(3, n=2).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    counts = np.random.default_rng(0).multinomial(K, np.full(K, 1 / K), size=n)
    return counts / K


def superior(effect: Effect, delta: float, zero: float = 0.0) -> Verdict:
    """Decide whether the claim's side is ahead.

    >>> superior(Effect(0.02, 0.01, 0.03, 30), delta=0.01)
    'holds'
    >>> superior(Effect(0.00, -0.005, 0.005, 30), delta=0.01)
    'does not hold'
    """
    if effect.low > zero:
        return "holds"
    return "does not hold" if effect.high < zero + delta else "not decided"


def sighted(effect: Effect, delta: float) -> Verdict:
    """Tell whether what a claim says may happen was seen; δ plays no part.

    >>> sighted(Effect(0.00, -0.005, 0.005, 30), delta=0.01)
    'not seen'
    """
    return "seen" if effect.low > 0.0 else "not seen"


def comparable(effect: Effect, delta: float, zero: float = 0.0) -> Verdict:
    """Decide whether the two sides differ by less than δ.

    >>> comparable(Effect(0.00, -0.005, 0.005, 30), delta=0.01)
    'holds'
    """
    if zero - delta < effect.low and effect.high < zero + delta:
        return "holds"
    apart = effect.high < zero - delta or effect.low > zero + delta
    return "does not hold" if apart else "not decided"


def no_worse(effect: Effect, delta: float, zero: float = 0.0) -> Verdict:
    """Decide whether the claim's side is ahead, or behind by less than δ.

    >>> no_worse(Effect(0.03, -0.005, 0.065, 30), delta=0.01)
    'holds'
    """
    if effect.low > zero - delta:
        return "holds"
    return "does not hold" if effect.high < zero - delta else "not decided"
