"""A portfolio: three configurations that the peers' raw trials recommend, then EI alone.

It is what a site could do if its peers handed out all their trials. A policy that uses messages
only can be compared with it, to see what privacy costs.

======  ====================================================================  ==============
symbol  meaning                                                               shape
======  ====================================================================  ==============
R       regret of each peer at each configuration: (best − score) /           (peers, n)
        (best − worst), where best and worst are those of its own trials
least   smallest regret of each peer at the configurations chosen so far      (peers,)
======  ====================================================================  ==============

Scores that a peer has not observed are predicted by its own GP. The configurations are chosen one
after another; each is the one that leaves the smallest mean of ``least``. So every peer likes at
least one of them, as far as that is possible. They replace the initial points.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np

import fedbo
from fedbo.model.scores import Standardised
from fedbo.model.surrogate import Surrogate, SurrogateSettings
from fedbo_paper.contests import contest
from fedbo_paper.contests.contest import History, Scores
from fedbo_paper.contests.grounds import INITIAL, Ground, Listed
from fedbo_paper.contests.screen import refuse, work
from fedbo_paper.harness.intervals import Floats

CHOICE = "portfolio"  # on the command line
NAME = f"{CHOICE} (shares trials)"  # in tables and files


def compete(
    ground: Ground,
    known: Sequence[Sequence[History]],
    tasks: Sequence[int],
    options: argparse.Namespace,
) -> list[Scores]:
    """Run the portfolio on all targets.

    Args:
        ground: The tasks, with listed configurations.
        known: The histories of all tasks' agents, by seed and task.
        tasks: The targets.
        options: The options of the contest.
    """
    if not isinstance(ground, Listed):
        raise refuse(f"a {CHOICE} needs listed configurations; {ground.name} has none")
    calls = [partial(regrets, ground, history) for met in known for history in met]
    found = np.array(work("portfolio, peers", calls, options.jobs))
    R = found.reshape(len(known), ground.tasks, -1)
    runs = [
        partial(play, ground, R[h], target, seed, options.evaluations, options.peers)
        for h, group in enumerate(contest.groups(options.seeds))
        for target in tasks
        for seed in group
    ]
    return work("portfolio", runs, options.jobs)


def play(
    ground: Listed, R: Floats, target: int, seed: int, evaluations: int, most: int | None
) -> Scores:
    """Run the portfolio on a target.

    Args:
        ground: The tasks.
        R: The regrets (tasks, n) of all tasks' agents; only those of peers are used.
        target: The task.
        seed: The seed of the run.
        evaluations: Evaluations after the three chosen configurations.
        most: How many peers the run meets; None means all.
    """
    met = contest.peers(ground, target, seed, most)
    initial = [ground.params(row) for row in choose(R[met], min(INITIAL, len(ground.X)))]
    agent = contest.started(ground, fedbo.EI(), target, seed, initial)
    history = contest.evaluate(agent, ground, target, len(initial) + evaluations)
    return {(NAME, target, seed): [score for _, score in history]}


def regrets(ground: Listed, history: History) -> Floats:
    """Compute a peer's regret (n,) at every configuration; 0 if all its scores are equal.

    Args:
        ground: The tasks.
        history: The peer's trials.
    """
    rows = [ground.row(params) for params, _ in history]
    y = ground.space.sign * np.array([score for _, score in history])
    if np.ptp(y) == 0.0:
        return np.zeros(len(ground.X))
    scores = Standardised(y)
    belief = Surrogate(SurrogateSettings(), ground.X.shape[1])
    belief.update(ground.X[rows], scores.z, np.random.default_rng(0))
    predicted = scores.unwarp(belief.predict(ground.X)[0])
    predicted[rows] = y
    R: Floats = (y.max() - predicted) / np.ptp(y)
    return R


def choose(R: Floats, size: int) -> list[int]:
    """Choose columns of R, one after another, so that each row is low in one of them.

    Args:
        R: Regrets (peers, n).
        size: Number of columns.

    >>> choose(np.array([[0.0, 1.0, 0.4], [1.0, 0.0, 0.4], [0.1, 1.0, 0.4]]), 2)
    [0, 1]
    """
    chosen: list[int] = []
    least = np.full(len(R), np.inf)
    for _ in range(size):
        left = np.minimum(R, least[:, None]).mean(axis=0)
        left[chosen] = np.inf
        chosen.append(int(left.argmin()))
        least = np.minimum(least, R[:, chosen[-1]])
    return chosen
