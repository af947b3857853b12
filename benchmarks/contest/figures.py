"""The figures of a contest, computed from the scores of its runs and shown as tables.

======  ================================================================  ==================
symbol  meaning                                                           shape
======  ================================================================  ==================
K       number of targets                                                 scalar
a, b    regrets of a policy and of an agent alone, by target and seed     (K, seeds)
======  ================================================================  ==================

A policy may have fewer seeds than another, always the first ones. The two are compared on those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbo_paper.harness.intervals import Effect, Floats, bootstrap

from .grounds import Ground
from .terminal import say

Figures = dict[str, Any]
Curves = dict[str, Floats]  # by policy: (targets, seeds, trials)

AT = (1, 2, 3, 5, 10, 20, 50)  # trials after which policies are compared
FEWEST = 10  # targets for an interval that can be relied on
DIGITS = 6  # of the regret of a run
_ROUNDING = 1e-12  # regrets of the same score differ by less


def best_so_far(ground: Ground, scores: Floats) -> Floats:
    """Compute the best score up to each trial, along the last axis."""
    sign = ground.space.sign
    best: Floats = sign * np.maximum.accumulate(sign * scores, axis=-1)
    return best


def regrets(ground: Ground, tasks: Sequence[int], curves: Curves) -> Curves:
    """Compute normalised simple regrets: 0 at a task's best score, 1 at its reference score."""
    sign = ground.space.sign
    result = {name: np.empty(scores.shape) for name, scores in curves.items()}
    for k, task in enumerate(tasks):
        seen = sign * max(float((sign * scores[k]).max()) for scores in curves.values())
        best, reference = ground.limits(task, seen)
        for name, scores in curves.items():
            result[name][k] = (best - best_so_far(ground, scores[k])) / (best - reference)
    return result


def ratio(a: Floats, b: Floats) -> Effect:
    """Compute the ratio of the means of a and b on common seeds; NaN if b is 0 everywhere."""
    seeds = min(a.shape[1], b.shape[1])
    return bootstrap(np.divide, a[:, :seeds], b[:, :seeds])


def counted(trials: int) -> list[int]:
    """List the numbers of trials after which runs of this length are compared."""
    return [n for n in AT if n <= trials]


def to_target(regret: Floats, ei: Floats, n: int = 20) -> tuple[float, float]:
    """Compute how many trials runs need to reach what EI alone has after n trials.

    A run is there at the first trial after which its regret is at most that of EI alone on the same
    target after n trials, averaged over all seeds of EI. If this is 0, the run has to find the best
    score. Regrets have the shape (K, seeds, trials).

    Returns:
        The mean number of trials of the runs that get there, and the share of runs that do. The
        mean is NaN if no run does, and both are if EI alone has made fewer than n trials.

    >>> to_target(np.array([[[0.4, 0.1], [0.4, 0.3]]]), np.array([[[0.5, 0.1], [0.5, 0.3]]]), n=2)
    (2.0, 0.5)
    """
    if ei.shape[-1] < n:
        return float("nan"), float("nan")
    level = ei[:, :, n - 1].mean(axis=1)[:, None, None]
    is_reached = regret <= level + _ROUNDING
    reached = is_reached.any(axis=-1)
    needed = is_reached.argmax(axis=-1)[reached] + 1
    return float(needed.mean()) if needed.size else float("nan"), float(reached.mean())


def delay(curve: Floats, alone: Floats, n: int, floor: float = 0.0) -> tuple[float, bool]:
    """Compute how much later than alone a mean curve reaches the regret that alone has at n.

    n is an index. Regrets below ``floor`` count as 0.

    Returns:
        The delay, negative if the curve is earlier, and whether the curve reaches that regret at
        all. If it does not, the delay is a lower bound.

    >>> delay(np.array([1.0, 0.75, 0.25, 0.0]), np.array([1.0, 0.5, 0.25, 0.0]), n=1)
    (0.5, True)
    """
    level = max(float(alone[n]), floor)
    start, end = _reached(alone, level), _reached(curve, level)
    assert start is not None  # alone has this regret at n
    return (len(curve) - 1 - start, False) if end is None else (end - start, True)


def _reached(curve: Floats, level: float) -> float | None:
    """Return where a falling curve reaches a level, interpolated; None if it never does."""
    below = np.flatnonzero(curve <= level)
    if not below.size:
        return None
    i = int(below[0])
    return float(i - (level - curve[i]) / (curve[i - 1] - curve[i])) if i else 0.0


def runs(regret: Curves) -> dict[str, Any]:
    """Return the regret of every run as lists (targets, seeds, trials), rounded."""
    return {name: values.round(DIGITS).tolist() for name, values in regret.items()}


def warn_of_few(targets: int, title: str) -> None:
    """Warn if there are too few targets for intervals."""
    if targets < FEWEST:
        say(
            f"Warning: {title} has {targets} target{'s' if targets != 1 else ''}. Intervals over "
            f"fewer than {FEWEST} targets are unreliable."
        )
