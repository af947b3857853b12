"""Effects with 95 % intervals, and the rules that turn one into a verdict.

=========  ====================================================================================
a, b       the same quantity of two methods, one value a run; the same place: the same start
clusters   what each run belongs to; the unit of analysis is then a cluster's mean, because runs
           on one function resemble each other and are not that many independent pieces of evidence
δ          smallest difference that matters
low, high  ends of the t-interval of a mean over n units; infinite if n is 1, or if fewer than
           five differences are all the same
=========  ====================================================================================

A verdict is read off the interval. An effect is positive where the claim's side is ahead, and
``zero`` (0, or 1 for a ratio) is where neither is.

=============  =======================  ==================================  ===========
claim          holds                    does not hold                       otherwise
=============  =======================  ==================================  ===========
`superior`     low > 0                  high < δ: even the best case is     not decided
                                        less than what matters
`comparable`   −δ < low and high < δ    high < −δ or low > δ                not decided
`no_worse`     low > −δ                 high < −δ                           not decided
=============  =======================  ==================================  ===========

A lead that is certain and certainly less than δ holds, and is called small (`is_small`). So where
neither side is ahead "superior" is said to hold in 2.5 % of experiments, and where the lead is δ or
more it is said not to hold in at most 2.5 %; the same goes for the other two rules at their limits.
A claim made of several parts (`all_of`) holds if all of them do, which is said no more often by
mistake than of one part, and does not hold if one of them does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Verdict = Literal["holds", "does not hold", "not decided"]

LEVEL = 0.95  # of an interval
FEW = 5  # units; no more whose differences are all the same say nothing of their spread

Floats = NDArray[np.float64]


class Effect(msgspec.Struct, frozen=True):
    """An estimate, its interval, and over how many units it is a mean."""

    value: float
    low: float
    high: float
    n: int


def mean(values: Floats, level: float = LEVEL) -> Effect:
    """The mean and its t-interval.

    >>> mean(np.array([1.0, 2.0, 3.0]))
    Effect(value=2.0, low=-0.484..., high=4.484..., n=3)
    """
    n = len(values)
    if n == 0 or not np.isfinite(values).all():
        raise ValueError(
            f"{n} values, {np.count_nonzero(~np.isfinite(values))} of them not finite; "
            "expected at least one, all finite: leave out runs that are not complete"
        )
    centre = float(values.mean())
    if n == 1:
        return Effect(centre, -np.inf, np.inf, 1)
    reach = float(stdtrit(n - 1, 0.5 + level / 2) * values.std(ddof=1) / np.sqrt(n))
    return Effect(centre, centre - reach, centre + reach, n)


def paired(
    a: Floats, b: Floats, clusters: NDArray[Any] | None = None, level: float = LEVEL
) -> Effect:
    """The mean of a − b.

    Scores are coarse (a validation error has some 100 values), so that a few runs may well differ
    by the same amount: an interval of no width would then claim to know what it cannot.

    >>> a, b = np.array([3.0, 3.0, 5.0, 5.0]), np.array([2.0, 2.0, 2.0, 2.0])
    >>> paired(a, b).n, paired(a, b, clusters=np.array([0, 0, 1, 1])).n
    (4, 2)
    """
    differences = cluster_means(a - b, clusters)
    effect = mean(differences, level)
    if effect.n <= FEW and np.ptp(differences) == 0:
        return Effect(effect.value, -np.inf, np.inf, effect.n)
    return effect


def ratio(a: Floats, b: Floats, clusters: NDArray[Any] | None = None) -> Effect:
    """The geometric mean of a / b; its interval is that of the mean logarithm.

    >>> round(ratio(np.array([2.0, 8.0]), np.array([1.0, 1.0])).value, 9)
    4.0
    """
    effect = mean(cluster_means(np.log(a) - np.log(b), clusters))
    value, low, high = np.exp((effect.value, effect.low, effect.high)).tolist()
    return Effect(value, low, high, effect.n)


def exponent(x: Floats, y: Floats) -> Effect:
    """The slope of log y (n, k) against log x (k,): the mean over the n rows' slopes.

    >>> round(exponent(np.array([1.0, 10.0]), np.array([[2.0, 20.0], [3.0, 30.0]])).value, 9)
    1.0
    """
    away = np.log(x) - np.log(x).mean()
    return mean(np.log(y) @ away / (away @ away))


def cluster_means(values: Floats, clusters: NDArray[Any] | None) -> Floats:
    """A mean for each cluster; the values themselves if there are none.

    >>> cluster_means(np.array([1.0, 3.0, 7.0]), np.array(["a", "a", "b"]))
    array([2., 7.])
    """
    if clusters is None:
        return values
    _, cluster = np.unique(clusters, return_inverse=True)
    means: Floats = np.bincount(cluster, weights=values) / np.bincount(cluster)
    return means


def superior(effect: Effect, delta: float, zero: float = 0.0) -> Verdict:
    """Whether the claim's side is ahead.

    >>> superior(Effect(0.02, 0.01, 0.03, 30), delta=0.01)
    'holds'
    >>> superior(Effect(0.00, -0.005, 0.005, 30), delta=0.01)
    'does not hold'
    """
    if effect.low > zero:
        return "holds"
    return "does not hold" if effect.high < zero + delta else "not decided"


def comparable(effect: Effect, delta: float, zero: float = 0.0) -> Verdict:
    """Whether the two sides differ by less than δ.

    >>> comparable(Effect(0.00, -0.005, 0.005, 30), delta=0.01)
    'holds'
    """
    if zero - delta < effect.low and effect.high < zero + delta:
        return "holds"
    apart = effect.high < zero - delta or effect.low > zero + delta
    return "does not hold" if apart else "not decided"


def no_worse(effect: Effect, delta: float, zero: float = 0.0) -> Verdict:
    """Whether the claim's side is behind by less than δ, if at all.

    >>> no_worse(Effect(0.03, -0.005, 0.065, 30), delta=0.01)
    'holds'
    """
    if effect.low > zero - delta:
        return "holds"
    return "does not hold" if effect.high < zero - delta else "not decided"


def is_small(effect: Effect, delta: float, zero: float = 0.0) -> bool:
    """Whether there is a lead, and less than matters.

    >>> is_small(Effect(0.002, 0.001, 0.003, 30), delta=0.01)
    True
    """
    return zero < effect.low and effect.high < zero + delta


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim that says several things at once.

    >>> all_of(["holds", "not decided"])
    'not decided'
    """
    found = {*verdicts}
    if "does not hold" in found:
        return "does not hold"
    return "not decided" if "not decided" in found else "holds"
