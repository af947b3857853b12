"""What people would do instead: tell each other their best settings, and try those first.

Each peer tells the params of its best trial, and nothing else. A run tries three of these settings,
the most supported first.

======  ====================================================================  ==============
symbol  meaning                                                               shape
======  ====================================================================  ==============
X       the peers' settings in the unit cube                                  (peers, D)
W       weights exp(−d² / 2w²), where d is the distance of two settings,      (peers, peers)
        and w = 0.2 √D
most    largest weight between each peer's setting and those chosen so far    (peers,)
======  ====================================================================  ==============

Settings are chosen one after another; each is the one that adds most to the sum of ``most``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbo_paper.contests.grounds import INITIAL, Ground, Params
from fedbo_paper.harness.intervals import Floats

BEST_FIRST = "best-first (shares settings)"  # in tables and files: these settings, then EI

WIDTH = 0.2  # of a weight, times √D


def first_settings(
    ground: Ground, told: Sequence[Sequence[tuple[Params, float]]], initial: Sequence[Params]
) -> list[Params]:
    """List what a run tries first: settings of its peers, all different.

    Args:
        ground: The tasks.
        told: The trials of each peer that the run meets.
        initial: The common initial points, which fill up the list.
    """
    settings = [max(trials, key=lambda trial: ground.space.sign * trial[1])[0] for trials in told]
    X = np.array([ground.space.encode(params) for params in settings])
    chosen = [settings[row] for row in most_supported(X, INITIAL)]
    return [*chosen, *(params for params in initial if params not in chosen)][:INITIAL]


def most_supported(X: Floats, size: int) -> list[int]:
    """Choose rows of X, all different, one after another; fewer than ``size`` if X has fewer.

    Args:
        X: Settings (peers, D).
        size: Number of rows.

    >>> most_supported(np.array([[0.9], [0.1], [0.12], [0.1]]), 3)
    [1, 0, 2]
    """
    distance2 = ((X[:, None] - X) ** 2).sum(axis=2)
    W = np.exp(-distance2 / (2 * X.shape[1] * WIDTH**2))
    most = np.zeros(len(X))
    left = np.ones(len(X), dtype=bool)
    chosen: list[int] = []
    while left.any() and len(chosen) < size:
        gain = np.maximum(W, most).sum(axis=1)
        chosen.append(int(np.where(left, gain, -np.inf).argmax()))
        most = np.maximum(most, W[chosen[-1]])
        left &= distance2[chosen[-1]] > 0.0
    return chosen
