"""Statistics of runs that are paired: the same targets, the same first points, the same seeds.

======  ================================================================  ==================
symbol  meaning                                                           shape
======  ================================================================  ==================
K       targets: the clusters, because runs on one target are alike       scalar
a, b    a policy's regrets, solo's regrets, by target and seed            (K, seeds)
W       resamples: how often each target was drawn, divided by K          (RESAMPLES, K)
======  ================================================================  ==================

Intervals are 95 % percentile bootstraps over targets, the seeds of a target kept together. Where a
policy has fewer seeds than another, the first ones, they are compared on those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray
Estimate = list[float]  # point, low, high

RESAMPLES = 2000


def resamples(K: int, n: int = RESAMPLES, seed: int = 0) -> Array:
    """W: rows that sum to 1.

    >>> resamples(3, n=2).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    rng = np.random.default_rng(seed)
    return rng.multinomial(K, np.full(K, 1 / K), size=n) / K


def _estimate(point: float, samples: Array) -> Estimate:
    samples = samples[~np.isnan(samples)]
    if not samples.size:
        return [point, np.nan, np.nan]
    # "lower" and "higher" take samples that are there: between two infinite ones lies NaN
    low = np.quantile(samples, 0.025, method="lower")
    high = np.quantile(samples, 0.975, method="higher")
    return [float(point), float(low), float(high)]


def mean(values: Array) -> Estimate:
    """The mean of values (K, seeds), over targets of the mean over seeds, with its interval."""
    by_target = values.mean(axis=1)
    return _estimate(by_target.mean(), resamples(len(values)) @ by_target)


def ratio(a: Array, b: Array) -> Estimate:
    """The ratio of means of a to b, with its interval; NaN where b is 0 throughout.

    >>> ratio(np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([[4.0, 6.0], [4.0, 2.0]]))[0]
    0.5
    """
    a, b = shared([a, b])
    above, below = a.mean(axis=1), b.mean(axis=1)
    W = resamples(len(a))
    with np.errstate(divide="ignore", invalid="ignore"):
        return _estimate(np.divide(above.mean(), below.mean()), (W @ above) / (W @ below))


def difference(a: Array, b: Array) -> Estimate:
    """The mean of a − b, with its interval."""
    a, b = shared([a, b])
    return mean(a - b)


def shared(values: Sequence[Array]) -> list[Array]:
    """The same, with the seeds that all of them have."""
    seeds = min(each.shape[1] for each in values)
    return [each[:, :seeds] for each in values]


def ranks(regrets: Sequence[Array]) -> Array:
    """Ranks (policies, K, seeds) in each run, 1 the least regret, means of ranks for equal ones.

    >>> ranks([np.array([[0.1]]), np.array([[0.0]]), np.array([[0.1]])])[:, 0, 0].tolist()
    [2.5, 1.0, 2.5]
    """
    from scipy.stats import rankdata

    return rankdata(np.round(shared(regrets), 12), axis=0)


def reached(curve: Array, level: float) -> float | None:
    """Where a falling curve gets to the level, counted from 0, linear in between; None if nowhere.

    >>> reached(np.array([1.0, 0.5, 0.1]), 0.3), reached(np.array([1.0, 0.5]), 0.3)
    (1.5, None)
    """
    below = np.flatnonzero(curve <= level)
    if not below.size:
        return None
    i = int(below[0])
    if i == 0:
        return 0.0
    return float(i - (level - curve[i]) / (curve[i - 1] - curve[i]))


def delay(curve: Array, solo: Array, n: int, nothing: float = 0.0) -> tuple[float, bool]:
    """How much later than solo's a mean curve gets to where solo's is at n; negative if earlier.

    A regret of ``nothing`` counts as none. The second value is False if the curve never gets there:
    then the delay is a lower bound.

    >>> delay(np.array([1.0, 0.75, 0.25, 0.0]), np.array([1.0, 0.5, 0.25, 0.0]), n=1)
    (0.5, True)
    """
    level = max(float(solo[n]), nothing)
    start = reached(solo, level)
    assert start is not None
    end = reached(curve, level)
    return (len(curve) - 1 - start, False) if end is None else (end - start, True)
