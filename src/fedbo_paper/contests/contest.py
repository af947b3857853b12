"""Contests: each task in turn is the target, all other tasks are its peers, and policies compete.

Each peer has run alone before: 50 evaluations with Thompson sampling. It hands out one message of
the kind that the policy uses. Every run on a target starts from the same 3 points. A policy that
chooses its first points itself gets fewer of them, and all policies are compared at the same total
number of evaluations.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import fedbo
from fedbo_paper.contests import outside
from fedbo_paper.contests.grounds import INITIAL, Ground, Params
from fedbo_paper.contests.kept import kept
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.screen import work

History = list[tuple[Params, float]]  # params and scores of an agent's trials
Scores = dict[tuple[str, int, int], list[float]]  # of each run, by policy, target and seed

HISTORY = 50  # evaluations of a peer
HISTORIES = 3  # of each peer; run s uses history s mod 3
SOLO = "TS"
RANDOM = "random"

POLICIES: dict[str, Callable[[], fedbo.Policy]] = {
    policy.__name__: policy for policy in (fedbo.TS, fedbo.FTS, fedbo.RGPE, fedbo.TAF, fedbo.PTS)
}


def default_policy() -> str:
    """Return the name of an agent's default policy.

    >>> default_policy()
    'PTS'
    """
    agent = fedbo.Agent(fedbo.Federation({"x": fedbo.Float(0, 1)}))
    return type(agent.policy).__name__


def federation(ground: Ground, policy: fedbo.Policy) -> fedbo.Federation:
    """Create the federation of a ground's tasks, with the kind of message that a policy uses."""
    # Format 1 keeps the order of the columns: "x10" would otherwise come before "x2".
    return fedbo.Federation(ground.space, kind=policy.kinds[0], format=1)


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def _evaluate(agent: fedbo.Agent, ground: Ground, task: int, evaluations: int) -> History:
    history: History = []
    for _ in range(evaluations):
        trial = agent.ask()
        score = ground.score(task, trial.params)
        agent.tell(trial, score)
        history.append((trial.params, score))
    return history


# Peers


def alone(ground: Ground, task: int, seed: int) -> History:
    """Run an agent alone on a task, with Thompson sampling."""
    policy = fedbo.TS()
    agent = fedbo.Agent(
        federation(ground, policy), policy, name=f"task-{task}", seed=_seed(1, seed, task)
    )
    return _evaluate(agent, ground, task, HISTORY)


def histories(
    ground: Ground, jobs: int, seeds: int, stage: str = "peers alone"
) -> list[list[History]]:
    """Run every task's agent alone, as often as `seeds` needs it: histories by seed and task."""
    tasks = range(ground.tasks)
    calls = [
        partial(alone, ground, task, h) for h in range(min(HISTORIES, seeds)) for task in tasks
    ]
    found = work(stage, calls, jobs)
    return [found[i : i + len(tasks)] for i in range(0, len(found), len(tasks))]


def groups(seeds: int) -> list[range]:
    """Group the seeds of runs by the history of the peers that they meet.

    >>> [[*group] for group in groups(5)]
    [[0, 3], [1, 4], [2]]
    """
    return [range(h, seeds, HISTORIES) for h in range(min(HISTORIES, seeds))]


def message(agreed: fedbo.Federation, task: int, history: History, seed: int) -> fedbo.Message:
    """Create the message of a peer with this history."""
    agent = fedbo.Agent(agreed, fedbo.TS(), name=f"task-{task}", seed=_seed(2, seed, task))
    for params, score in history:
        agent.tell(params, score)
    return agent.message()


def messages(
    agreed: fedbo.Federation, target: int, known: Sequence[History], seed: int
) -> list[fedbo.Message]:
    """Create the messages of all tasks except the target."""
    return [message(agreed, n, known[n], seed) for n in range(len(known)) if n != target]


# Runs


def run(
    ground: Ground,
    policy: fedbo.Policy,
    received: Sequence[fedbo.Message],
    target: int,
    seed: int,
    evaluations: int,
) -> list[float]:
    """Run a policy on a target.

    Returns:
        The scores of all trials, those of the initial points included.
    """
    first = ground.initial(target, seed)
    agent = fedbo.Agent(
        federation(ground, policy),
        policy,
        name="target",
        seed=_seed(3, seed, target),
        initial=first[: policy.starts(len(first), len(received))],
    )
    agent.receive(received)
    return [score for _, score in _evaluate(agent, ground, target, len(first) + evaluations)]


def run_random(ground: Ground, target: int, seed: int, evaluations: int) -> list[float]:
    """Evaluate random configurations after the initial points."""
    tried = ground.initial(target, seed)
    rng = np.random.default_rng([4, seed, target])
    for _ in range(evaluations):
        tried.append(ground.random(rng, tried))
    return [ground.score(target, params) for params in tried]


def play(
    ground: Ground,
    known: Sequence[History],
    names: Iterable[str],
    target: int,
    seeds: Sequence[int],
    evaluations: int,
) -> Scores:
    """Run policies of the library on one target, with seeds of one group."""
    scores: Scores = {}
    arrived: dict[str, list[fedbo.Message]] = {}
    for name in names:
        if name == RANDOM:
            runner = partial(run_random, ground)
        else:
            policy = POLICIES[name]()
            agreed = federation(ground, policy)
            if name != SOLO and agreed.kind not in arrived:
                arrived[agreed.kind] = messages(agreed, target, known, seeds[0])
            runner = partial(run, ground, policy, [] if name == SOLO else arrived[agreed.kind])
        for seed in seeds:
            scores[name, target, seed] = runner(target, seed, evaluations)
    return scores


def play_outside(
    ground: Ground, name: str, target: int, seed: int, evaluations: int, cache: Path
) -> Scores:
    """Run a sampler of Optuna on one target, unless the cache has this run."""
    run = partial(outside.play, ground, name, target, seed, evaluations)
    file, rows = f"{ground.name}-{name}-{target}-{seed}".replace(" ", "-"), INITIAL + evaluations
    details = (ground.digest, name, target, seed, evaluations)
    return {(name, target, seed): kept(cache / "outside", file, rows, run, *details)}


# A whole contest


def targets(ground: Ground, which: str) -> list[int]:
    """List the tasks that are targets: "even", "odd" or "all"."""
    return [task for task in range(ground.tasks) if which == "all" or task % 2 == (which == "odd")]


def compete(ground: Ground, names: Sequence[str], options: argparse.Namespace) -> Curves:
    """Run all policies on all targets.

    Returns:
        Scores (targets, seeds, evaluations) of each policy, in the order of its trials.
    """
    tasks = targets(ground, options.targets)
    own = [name for name in names if name not in outside.SAMPLERS]
    known = histories(ground, options.jobs, options.seeds)
    calls = [
        partial(play, ground, known[h], own, target, group, options.evaluations)
        for h, group in enumerate(groups(options.seeds))
        for target in tasks
    ]
    scores = work("policies", calls, options.jobs)
    for name in names:
        if name in outside.SAMPLERS:
            calls = [
                partial(play_outside, ground, name, target, s, options.evaluations, options.cache)
                for s in range(min(options.seeds, options.outside_seeds))
                for target in tasks
            ]
            scores += work(name, calls, options.jobs)
    return curves(scores, names, tasks)


def curves(found: Iterable[Scores], names: Iterable[str], tasks: Iterable[int]) -> Curves:
    """Arrange the scores of runs as arrays (targets, seeds, evaluations), one for each name."""
    scores = {key: each for part in found for key, each in part.items()}
    seeds = sorted({seed for _, _, seed in scores})
    return {
        name: np.array(
            [
                [scores[name, task, seed] for seed in seeds if (name, task, seed) in scores]
                for task in tasks
            ]
        )
        for name in names
    }
