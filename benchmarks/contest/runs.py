"""Runs: each task in turn is the target, other tasks are its peers, and policies compete.

All trials of a run count, from the first. Every run on a target with the same seed has the same 3
initial points, which are its agent's design. The policy decides when they come: an agent alone
begins with them.

EI and TS always compete, and ignore all messages: expected improvement, which is what an agent
alone should use, and Thompson sampling. BEST_FIRST is what people would do instead: the best
settings of the peers (`peers.first_settings`), then EI.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fedbo

from . import outside, peers
from .figures import Curves
from .grounds import Ground, Params
from .peers import DEFAULT, evaluate
from .stored import FEDBO, OUTSIDE, array_digest, stored
from .terminal import refuse, work

Scores = dict[tuple[str, int, int], list[float]]  # of each run, by arm, target and seed

EI, TS = ALONE = ("EI", "TS")  # policies of an agent alone, with which all others are compared
RANDOM = "random"
BEST_FIRST = "best-first (shares settings)"

POLICIES: dict[str, Callable[[], fedbo.Policy]] = {
    EI: fedbo.EI,
    TS: fedbo.TS,
    "FTS": fedbo.FTS,
    "RGPE": fedbo.RGPE,
    "TAF": fedbo.TAF,
    DEFAULT.__name__: DEFAULT,
}


def imported(name: str) -> type[fedbo.Policy]:
    """Import a policy that is not fedbo's, such as "mine:Mine"; modules may be in this folder."""
    module, _, attribute = name.partition(":")
    sys.path.append(os.getcwd())
    policy = getattr(import_module(module), attribute)
    if not (isinstance(policy, type) and issubclass(policy, fedbo.Policy)):
        raise TypeError("it is no subclass of fedbo.Policy")
    return policy


class Run(NamedTuple):
    """A run of an arm on a target.

    ``compute`` returns the scores of all trials. ``details`` is what they depend on beside the
    ground, the arm, the target, the seed and the code in ``source``.
    """

    arm: str
    target: int
    seed: int
    compute: Callable[[], list[float]]
    details: tuple[str | int, ...] = ()
    source: tuple[str, ...] = FEDBO


def carry_out(
    ground: Ground, runs: Iterable[Run], options: argparse.Namespace, stage: str = "policies"
) -> Scores:
    """Compute the scores of all runs, except of those that are stored.

    Runs on the same target with the same seed take place in one process.
    """
    batches: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        batches.setdefault((run.target, run.seed), []).append(run)
    folder = options.cache / "runs"
    calls = [
        partial(_batch, ground.name, ground.digest, batch, options.trials, folder)
        for batch in batches.values()
    ]
    return {
        key: scores for part in work(stage, calls, options.jobs) for key, scores in part.items()
    }


def _batch(name: str, digest: str, batch: Sequence[Run], trials: int, folder: Path) -> Scores:
    result: Scores = {}
    for run in batch:
        file = f"{name}-{run.arm}-{run.target}-{run.seed}"
        details = (digest, run.arm, run.target, run.seed, *run.details)
        scores = stored(folder, file, trials, run.compute, *details, source=run.source)
        result[run.arm, run.target, run.seed] = scores
    return result


def curves(scores: Scores, arms: Iterable[str], targets: Iterable[int]) -> Curves:
    """Arrange the scores of runs as arrays (targets, seeds, trials), one for each arm."""
    seeds = sorted({seed for _, _, seed in scores})
    return {
        arm: np.array(
            [
                [scores[arm, target, seed] for seed in seeds if (arm, target, seed) in scores]
                for target in targets
            ]
        )
        for arm in arms
    }


def targets(ground: Ground, which: str) -> list[int]:
    """List the tasks that are targets: "even", "odd" or "all"."""
    return [task for task in range(ground.tasks) if which == "all" or task % 2 == (which == "odd")]


# One run


def site(
    ground: Ground,
    policy: fedbo.Policy,
    task: int,
    seed: int,
    initial: Sequence[Params] | None,
    agreed: fedbo.Federation | None = None,
) -> fedbo.Agent:
    """Create the agent of a run, which has received nothing yet.

    ``initial`` are the points of its design; None: the agent's own choice. ``agreed`` is by default
    the federation with the messages that the policy uses.
    """
    agreed = peers.federation(ground, policy) if agreed is None else agreed
    seed = peers.seed_of(3, seed, task)
    return fedbo.Agent(agreed, policy, name="target", seed=seed, initial=initial)


def play(
    ground: Ground,
    policy: fedbo.Policy,
    received: Sequence[fedbo.Message],
    target: int,
    seed: int,
    trials: int,
    initial: Sequence[Params] | None = None,
) -> list[float]:
    """Run a policy on a target; return the scores of its trials.

    Its agent holds the messages that it has ``received``. By default its design is the common
    initial points.
    """
    initial = ground.initial(target, seed) if initial is None else initial
    agent = site(ground, policy, target, seed, initial)
    agent.receive(received)
    return [score for _, score in evaluate(agent, ground, target, trials)]


def play_random(ground: Ground, target: int, seed: int, trials: int) -> list[float]:
    """Try the initial points, then random configurations."""
    tried = ground.initial(target, seed)
    rng = np.random.default_rng([4, seed, target])
    while len(tried) < trials:
        tried.append(ground.random(rng, tried))
    return [ground.score(target, params) for params in tried[:trials]]


# A contest


def compete(ground: Ground, names: Sequence[str], options: argparse.Namespace) -> Curves:
    """Run all policies on all targets; return scores (targets, seeds, trials)."""
    tasks = targets(ground, options.targets)
    return curves(carry_out(ground, _runs(ground, names, tasks, options), options), names, tasks)


def solitary(ground: Ground, name: str, target: int, seed: int, trials: int) -> Run:
    """Return the run of a policy of an agent alone, or of random search."""
    if name == RANDOM:
        return Run(name, target, seed, partial(play_random, ground, target, seed, trials))
    compute = partial(play, ground, POLICIES[name](), [], target, seed, trials)
    return Run(name, target, seed, compute)


def _runs(
    ground: Ground, names: Sequence[str], tasks: Sequence[int], options: argparse.Namespace
) -> Iterator[Run]:
    """Yield the runs of a contest with peers that have run before."""
    trials, most = options.trials, options.peers
    if most is not None and most >= ground.tasks:
        raise refuse(
            f"--peers is {most}, but each of the {ground.tasks} tasks has {ground.tasks - 1} "
            f"others: give {ground.tasks - 1} or less"
        )
    histories = peers.histories(ground, options.jobs, options.seeds, trials=options.history)
    sent: dict[tuple[str, int], list[fedbo.Message]] = {}  # by kind and history
    for seed in range(options.seeds):
        h = seed % len(histories)
        for target in tasks:
            met = peers.met(ground, target, seed, most)
            settings: list[Params] = []
            if BEST_FIRST in names or outside.TOLD in names:
                others = [histories[h][n] for n in met]
                settings = peers.first_settings(ground, others, ground.initial(target, seed))
            for name in names:
                if name in (*ALONE, RANDOM):
                    yield solitary(ground, name, target, seed, trials)
                elif name in outside.SAMPLERS:
                    first = settings if name == outside.TOLD else ground.initial(target, seed)
                    if seed < options.outside_seeds:
                        yield _of_sampler(ground, name, target, seed, first, trials)
                elif name == BEST_FIRST:
                    compute = partial(play, ground, fedbo.EI(), [], target, seed, trials, settings)
                    yield Run(name, target, seed, compute, (options.history, str(most)))
                else:
                    policy = POLICIES[name]()
                    agreed = peers.federation(ground, policy)
                    if (agreed.kind, h) not in sent:
                        sent[agreed.kind, h] = peers.messages(agreed, histories[h], h)
                    received = [sent[agreed.kind, h][n] for n in met]
                    compute = partial(play, ground, policy, received, target, seed, trials)
                    module = type(policy).__module__
                    source = FEDBO if module.startswith("fedbo.") else (*FEDBO, module)
                    yield Run(name, target, seed, compute, (options.history, str(most)), source)


def _of_sampler(
    ground: Ground, name: str, target: int, seed: int, first: Sequence[Params], trials: int
) -> Run:
    """Return the run of a sampler from outside, which does not depend on the code of fedbo."""
    points = array_digest([ground.space.encode(params) for params in first])
    compute = partial(outside.play, ground, name, target, seed, first, trials)
    return Run(name, target, seed, compute, (points,), OUTSIDE)
