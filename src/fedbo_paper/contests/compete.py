"""A contest with peers that have run before: every policy on every target."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedbo_paper.contests import contest, outside
from fedbo_paper.contests.best_first import first_settings
from fedbo_paper.contests.contest import Scores
from fedbo_paper.contests.grounds import Ground, Params
from fedbo_paper.contests.kept import array_digest, kept
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.screen import refuse, work


def compete(ground: Ground, names: Sequence[str], options: argparse.Namespace) -> Curves:
    """Run all policies on all targets.

    Args:
        ground: The tasks.
        names: The policies, as `options.chosen` lists them.
        options: The options of the contest.

    Returns:
        Scores (targets, seeds, trials) of each policy, in the order of its trials.
    """
    if options.peers is not None and options.peers >= ground.tasks:
        raise refuse(
            f"--peers is {options.peers}, but each of the {ground.tasks} tasks has "
            f"{ground.tasks - 1} others: give {ground.tasks - 1} or less"
        )
    tasks = contest.targets(ground, options.targets)
    known = contest.histories(ground, options.jobs, options.seeds, trials=options.history)
    own = [name for name in names if name not in outside.SAMPLERS]
    calls = [
        partial(contest.play, ground, known[h], own, target, group, options.trials, options.peers)
        for h, group in enumerate(contest.groups(options.seeds))
        for target in tasks
    ]
    scores = work("policies", calls, options.jobs)
    for name in names:
        if name not in outside.SAMPLERS:
            continue
        runs = []
        for seed in range(min(options.seeds, options.outside_seeds)):
            for target in tasks:
                first = ground.initial(target, seed)
                if name == outside.TOLD:
                    met = contest.peers(ground, target, seed, options.peers)
                    told = [known[seed % len(known)][n] for n in met]
                    first = first_settings(ground, told, first)
                here = name, target, seed, first, options.trials, options.cache
                runs.append(partial(play_outside, ground, *here))
        scores += work(name, runs, options.jobs)
    return contest.curves(scores, names, tasks)


def play_outside(
    ground: Ground,
    name: str,
    target: int,
    seed: int,
    first: Sequence[Params],
    trials: int,
    cache: Path,
) -> Scores:
    """Run a sampler from outside on one target, unless the cache has this run.

    Args:
        ground: The tasks.
        name: The sampler.
        target: The task.
        seed: The seed of the run.
        first: What the run tries first.
        trials: Trials of the run.
        cache: Folder where scores are kept.
    """
    run = partial(outside.play, ground, name, target, seed, first, trials)
    file = f"{ground.name}-{name}-{target}-{seed}".replace(",", "").replace(" ", "-")
    points = array_digest([ground.space.encode(params) for params in first])
    details = ground.digest, name, target, seed, points
    return {(name, target, seed): kept(cache / "outside", file, trials, run, *details)}
