"""A contest among sites that start at once, without any history.

For each seed, the targets are put into groups of k at random. If the last group is too small, other
tasks fill it up; their runs there are not recorded. The sites of a group use the same policy and
take turns, one trial each. Before each query, a site receives what the others have published so
far. It publishes by the rule of `fedbo.exchange.timing`, as a study of Optuna does. Nobody has a
message at the start.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np

import fedbo
from fedbo.exchange.timing import due
from fedbo_paper.contests import contest
from fedbo_paper.contests.contest import ALONE, RANDOM, Scores
from fedbo_paper.contests.grounds import Ground
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.screen import refuse, work


def compete(ground: Ground, names: Sequence[str], options: argparse.Namespace) -> Curves:
    """Run all policies on all targets.

    Args:
        ground: The tasks.
        names: The policies; those of an agent alone, and random search, run alone.
        options: The options of the contest.

    Returns:
        Scores (targets, seeds, trials) of each policy, in the order of its trials.
    """
    if options.together > ground.tasks:
        raise refuse(
            f"--together is {options.together}, but there are {ground.tasks} tasks: "
            f"give {ground.tasks} or less"
        )
    tasks = contest.targets(ground, options.targets)
    solitary = [name for name in names if name in (*ALONE, RANDOM)]
    calls = [
        partial(contest.play, ground, [], solitary, target, range(options.seeds), options.trials)
        for target in tasks
    ]
    calls += [
        partial(play, ground, name, group, recorded, seed, options.trials)
        for seed in range(options.seeds)
        for group, recorded in groups(ground, tasks, options.together, seed)
        for name in names
        if name not in solitary
    ]
    return contest.curves(work("policies", calls, options.jobs), names, tasks)


def groups(
    ground: Ground, targets: Sequence[int], k: int, seed: int
) -> list[tuple[list[int], list[int]]]:
    """Put the targets into groups of k tasks.

    Args:
        ground: The tasks.
        targets: The tasks whose runs are recorded.
        k: Number of sites of each group.
        seed: The seed of the runs.

    Returns:
        For each group its tasks, and those of them whose runs are recorded. Every target is
        recorded in one group. Tasks that fill up a group are no targets if there are enough of
        these, and otherwise targets of other groups too.
    """
    rng = np.random.default_rng([8, seed])
    order = rng.permutation(targets).tolist()
    spare = rng.permutation([n for n in range(ground.tasks) if n not in targets]).tolist()
    found = []
    for start in range(0, len(order), k):
        recorded = order[start : start + k]
        fill = [task for task in (*spare, *order) if task not in recorded]
        found.append((recorded + fill[: k - len(recorded)], recorded))
    return found


def play(
    ground: Ground,
    name: str,
    group: Sequence[int],
    recorded: Sequence[int],
    seed: int,
    trials: int,
) -> Scores:
    """Run a policy at all sites of a group, in turns.

    Args:
        ground: The tasks.
        name: The policy of all sites.
        group: The tasks of the sites, in the order of their turns.
        recorded: The tasks whose scores are returned.
        seed: The seed of the runs.
        trials: Trials of each site.
    """
    policy = contest.POLICIES[name]()
    sites = {task: contest.site(ground, policy, task, seed, name=f"task-{task}") for task in group}
    published: dict[int, fedbo.Message] = {}  # the last message of each site
    scores: dict[int, list[float]] = {task: [] for task in group}
    for _ in range(trials):
        for task, agent in sites.items():
            agent.receive([each for sender, each in published.items() if sender != task])
            [(_, score)] = contest.evaluate(agent, ground, task, 1)
            scores[task].append(score)
            values = [ground.space.sign * each for each in scores[task]]
            if due(values)[-1] == len(values):
                published[task] = agent.message()
    return {(name, task, seed): scores[task] for task in recorded}
