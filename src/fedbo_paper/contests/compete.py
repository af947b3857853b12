"""A contest with peers that have run before: every policy on every target."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedbo_paper.contests import contest, outside, portfolio
from fedbo_paper.contests.contest import Scores
from fedbo_paper.contests.grounds import INITIAL, Ground
from fedbo_paper.contests.kept import kept
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.screen import refuse, work


def compete(ground: Ground, names: Sequence[str], options: argparse.Namespace) -> Curves:
    """Run all policies on all targets.

    Args:
        ground: The tasks.
        names: The policies, as `options.chosen` lists them.
        options: The options of the contest.

    Returns:
        Scores (targets, seeds, evaluations) of each policy, in the order of its trials.
    """
    if options.peers is not None and options.peers >= ground.tasks:
        raise refuse(
            f"--peers is {options.peers}, but each of the {ground.tasks} tasks has "
            f"{ground.tasks - 1} others: give {ground.tasks - 1} or less"
        )
    tasks = contest.targets(ground, options.targets)
    known = contest.histories(ground, options.jobs, options.seeds, evaluations=options.history)
    own = [name for name in names if name in (*contest.POLICIES, contest.RANDOM)]
    calls = [
        partial(
            contest.play, ground, known[h], own, target, group, options.evaluations, options.peers
        )
        for h, group in enumerate(contest.groups(options.seeds))
        for target in tasks
    ]
    scores = work("policies", calls, options.jobs)
    if portfolio.NAME in names:
        scores += portfolio.compete(ground, known, tasks, options)
    for name in names:
        if name in outside.SAMPLERS:
            calls = [
                partial(play_outside, ground, name, target, s, options.evaluations, options.cache)
                for s in range(min(options.seeds, options.outside_seeds))
                for target in tasks
            ]
            scores += work(name, calls, options.jobs)
    return contest.curves(scores, names, tasks)


def play_outside(
    ground: Ground, name: str, target: int, seed: int, evaluations: int, cache: Path
) -> Scores:
    """Run a sampler from outside on one target, unless the cache has this run."""
    run = partial(outside.play, ground, name, target, seed, evaluations)
    file, rows = f"{ground.name}-{name}-{target}-{seed}".replace(" ", "-"), INITIAL + evaluations
    details = (ground.digest, name, target, seed, evaluations)
    return {(name, target, seed): kept(cache / "outside", file, rows, run, *details)}
