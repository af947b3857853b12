"""Peers: agents that have tuned another task before, what they hand out, and who meets whom.

Each peer has run alone: 50 trials with Thompson sampling. It hands out one message of the kind that
the policy uses. Beside that, `first_settings` is what people would do instead: each peer tells the
params of its best trial, and nothing else, and a run tries three of these settings, the most
supported first.

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
from functools import partial

import numpy as np

import fedbo
from fedbo.federation import Plan
from fedbo_paper.harness.intervals import Floats

from .grounds import INITIAL, Ground, Params
from .terminal import work

History = list[tuple[Params, float]]  # params and scores of an agent's trials

HISTORY = 50  # trials of a peer
HISTORIES = 3  # of each peer; run s uses history s mod 3
WIDTH = 0.2  # of a weight, times √D

#: The policy of an agent that is given none.
DEFAULT = type(fedbo.Agent(fedbo.Federation({"x": fedbo.Float(0, 1)})).policy)


def federation(
    ground: Ground, policy: fedbo.Policy, privacy: Plan | None = None
) -> fedbo.Federation:
    """Create the federation of a ground's tasks, with the kind of message that a policy uses.

    With a plan, its agents hear private releases.
    """
    return fedbo.Federation(ground.space, kind=policy.kinds[0], privacy=privacy)


def seed_of(*key: int) -> int:
    """Derive the seed of an agent."""
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def evaluate(agent: fedbo.Agent, ground: Ground, task: int, trials: int) -> History:
    """Let an agent make so many trials on a task."""
    history: History = []
    for _ in range(trials):
        trial = agent.ask()
        score = ground.score(task, trial.params)
        agent.tell(trial, score)
        history.append((trial.params, score))
    return history


# What peers know, and hand out


def alone(ground: Ground, task: int, seed: int, trials: int = HISTORY) -> History:
    """Run an agent alone on a task, with Thompson sampling.

    A shorter history is the beginning of a longer one.
    """
    policy, seed = fedbo.TS(), seed_of(1, seed, task)
    agent = fedbo.Agent(federation(ground, policy), policy, name=f"task-{task}", seed=seed)
    return evaluate(agent, ground, task, trials)


def histories(
    ground: Ground, jobs: int, seeds: int, stage: str = "peers alone", trials: int = HISTORY
) -> list[list[History]]:
    """Run every task's agent alone, as often as `seeds` needs it: histories by seed and task."""
    n = min(HISTORIES, seeds)
    calls = [
        partial(alone, ground, task, h, trials) for h in range(n) for task in range(ground.tasks)
    ]
    runs = work(stage, calls, jobs)
    return [runs[h * ground.tasks : (h + 1) * ground.tasks] for h in range(n)]


def message(agreed: fedbo.Federation, task: int, history: History, seed: int) -> fedbo.Message:
    """Create the message of a peer with this history."""
    agent = fedbo.Agent(agreed, fedbo.TS(), name=f"task-{task}", seed=seed_of(2, seed, task))
    for params, score in history:
        agent.tell(params, score)
    return agent.message()


def messages(
    agreed: fedbo.Federation, histories: Sequence[History], seed: int
) -> list[fedbo.Message]:
    """Create the messages of all tasks, with these histories."""
    return [message(agreed, task, history, seed) for task, history in enumerate(histories)]


def met(ground: Ground, target: int, seed: int, most: int | None = None) -> list[int]:
    """List the tasks that a run meets: all others (default), or ``most`` of them at random.

    The choice depends on nothing but the target and the seed, so all policies meet the same peers.
    """
    others = [task for task in range(ground.tasks) if task != target]
    if most is None:
        return others
    return sorted(np.random.default_rng([7, seed, target]).permutation(others)[:most].tolist())


# Best settings


def first_settings(
    ground: Ground, histories: Sequence[History], initial: Sequence[Params]
) -> list[Params]:
    """List what a run tries first: settings of its peers, all different.

    The common initial points fill up the list.
    """
    sign = ground.space.sign
    settings = [max(trials, key=lambda trial: sign * trial[1])[0] for trials in histories]
    X = np.array([ground.space.encode(params) for params in settings])
    chosen = [settings[row] for row in most_supported(X, INITIAL)]
    return [*chosen, *(params for params in initial if params not in chosen)][:INITIAL]


def most_supported(X: Floats, size: int) -> list[int]:
    """Choose rows of X, all different, one after another; fewer than ``size`` if X has fewer.

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
