"""Contests: each task in turn is the target, other tasks are its peers, and policies compete.

Each peer has run alone before: 50 trials with Thompson sampling. It hands out one message of the
kind that the policy uses. All trials of a run count, from the first. Every run on a target has the
same 3 initial points, which are its agent's design. The policy decides when they come: an agent
alone begins with them.

Two policies always compete, and ignore all messages: expected improvement (EI), which is what an
agent alone should use, and Thompson sampling (TS). `best_first.py` is what people would do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

import fedbo
from fedbo.federation import Plan
from fedbo.message import Kind
from fedbo_paper.contests.best_first import BEST_FIRST, first_settings
from fedbo_paper.contests.grounds import Ground, Params
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.screen import work

History = list[tuple[Params, float]]  # params and scores of an agent's trials
Scores = dict[tuple[str, int, int], list[float]]  # of each run, by policy, target and seed

HISTORY = 50  # trials of a peer
HISTORIES = 3  # of each peer; run s uses history s mod 3
EI, TS = ALONE = ("EI", "TS")  # policies of an agent alone, with which all others are compared
RANDOM = "random"


class AmongDraws(fedbo.TipsThenPool, frozen=True):
    """TipsThenPool among peers that send weights, one draw each, instead of compact messages."""

    kinds: ClassVar[tuple[Kind, ...]] = ("weights",)


#: The policy of an agent that is given none.
DEFAULT = type(fedbo.Agent(fedbo.Federation({"x": fedbo.Float(0, 1)})).policy)

POLICIES: dict[str, Callable[[], fedbo.Policy]] = {
    EI: fedbo.EI,
    TS: fedbo.TS,
    "FTS": fedbo.FTS,
    "RGPE": fedbo.RGPE,
    "TAF": fedbo.TAF,
    DEFAULT.__name__: DEFAULT,
    f"{DEFAULT.__name__}-weights": AmongDraws,
}


def default_policy() -> str:
    """Return the name of an agent's default policy.

    >>> default_policy() in POLICIES
    True
    """
    return DEFAULT.__name__


def federation(
    ground: Ground, policy: fedbo.Policy, privacy: Plan | None = None
) -> fedbo.Federation:
    """Create the federation of a ground's tasks, with the kind of message that a policy uses.

    Args:
        ground: The tasks.
        policy: The policy of its agents.
        privacy: The plan of its private releases; None (default) if its agents hear messages.
    """
    # Format 1 keeps the order of the columns: "x10" would otherwise come before "x2".
    return fedbo.Federation(ground.space, kind=policy.kinds[0], privacy=privacy, format=1)


def _seed(*key: int) -> int:
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


# Peers


def alone(ground: Ground, task: int, seed: int, trials: int = HISTORY) -> History:
    """Run an agent alone on a task, with Thompson sampling.

    A shorter history is the beginning of a longer one.
    """
    policy = fedbo.TS()
    agent = fedbo.Agent(
        federation(ground, policy), policy, name=f"task-{task}", seed=_seed(1, seed, task)
    )
    return evaluate(agent, ground, task, trials)


def histories(
    ground: Ground,
    jobs: int,
    seeds: int,
    stage: str = "peers alone",
    trials: int = HISTORY,
) -> list[list[History]]:
    """Run every task's agent alone, as often as `seeds` needs it: histories by seed and task."""
    tasks = range(ground.tasks)
    calls = [
        partial(alone, ground, task, h, trials)
        for h in range(min(HISTORIES, seeds))
        for task in tasks
    ]
    found = work(stage, calls, jobs)
    return [found[i : i + len(tasks)] for i in range(0, len(found), len(tasks))]


def groups(seeds: int) -> list[range]:
    """Group the seeds of runs by the history of the peers that they meet.

    >>> [[*group] for group in groups(5)]
    [[0, 3], [1, 4], [2]]
    """
    return [range(h, seeds, HISTORIES) for h in range(min(HISTORIES, seeds))]


def peers(ground: Ground, target: int, seed: int, most: int | None = None) -> list[int]:
    """List the tasks that a run meets: all others (default), or ``most`` of them at random.

    The choice depends on nothing but the target and the seed, so all policies meet the same peers.

    Args:
        ground: The tasks.
        target: The task that is tuned.
        seed: The seed of the run.
        most: Number of peers.
    """
    others = [task for task in range(ground.tasks) if task != target]
    if most is None:
        return others
    return sorted(np.random.default_rng([7, seed, target]).permutation(others)[:most].tolist())


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
    trials: int,
    initial: Sequence[Params] | None = None,
) -> list[float]:
    """Run a policy on a target; return the scores of its trials.

    Args:
        ground: The tasks.
        policy: The policy.
        received: The messages that its agent holds.
        target: The task.
        seed: The seed of the run.
        trials: Number of trials.
        initial: The points of the agent's design; by default the common initial points.
    """
    agent = site(ground, policy, target, seed, received, initial=initial)
    return [score for _, score in evaluate(agent, ground, target, trials)]


def site(
    ground: Ground,
    policy: fedbo.Policy,
    task: int,
    seed: int,
    received: Sequence[fedbo.Message] = (),
    name: str = "target",
    initial: Sequence[Params] | None = None,
) -> fedbo.Agent:
    """Create the agent of a run.

    Args:
        ground: The tasks.
        policy: The agent's policy.
        task: The task that the agent tunes.
        seed: The seed of the run.
        received: The messages that the agent holds at the start; none by default.
        name: The agent's name.
        initial: The points of its design; by default the common initial points.
    """
    if initial is None:
        initial = ground.initial(task, seed)
    agent = started(ground, policy, task, seed, initial, name)
    agent.receive(received)
    return agent


def started(
    ground: Ground,
    policy: fedbo.Policy,
    task: int,
    seed: int,
    initial: Sequence[Params] | None,
    name: str = "target",
    agreed: fedbo.Federation | None = None,
) -> fedbo.Agent:
    """Create an agent that has received nothing yet.

    Args:
        ground: The tasks.
        policy: The agent's policy.
        task: The task that the agent tunes.
        seed: The seed of the run.
        initial: The points of the design; None: the agent's own choice.
        name: The agent's name.
        agreed: The federation; by default one with the messages that the policy uses.
    """
    agreed = federation(ground, policy) if agreed is None else agreed
    return fedbo.Agent(agreed, policy, name=name, seed=_seed(3, seed, task), initial=initial)


def run_random(ground: Ground, target: int, seed: int, trials: int) -> list[float]:
    """Try the initial points, then random configurations."""
    tried = ground.initial(target, seed)
    rng = np.random.default_rng([4, seed, target])
    while len(tried) < trials:
        tried.append(ground.random(rng, tried))
    return [ground.score(target, params) for params in tried[:trials]]


def play(
    ground: Ground,
    known: Sequence[History],
    names: Iterable[str],
    target: int,
    seeds: Sequence[int],
    trials: int,
    most: int | None = None,
) -> Scores:
    """Run policies of the library on one target, with seeds of one group.

    Args:
        ground: The tasks.
        known: The history of each task's agent; not used by policies of an agent alone.
        names: The policies; best-first and random search may be among them.
        target: The task.
        seeds: The seeds of the runs, all of one group.
        trials: Trials of each run.
        most: How many peers a run meets; all by default.
    """
    scores: Scores = {}
    met = {seed: peers(ground, target, seed, most) for seed in seeds}
    senders = sorted({n for chosen in met.values() for n in chosen})
    sent: dict[str, dict[int, fedbo.Message]] = {}  # by kind and sender
    for name in names:
        received: dict[int, fedbo.Message] = {}
        if name not in (*ALONE, RANDOM, BEST_FIRST):
            agreed = federation(ground, POLICIES[name]())
            if agreed.kind not in sent:
                written = {n: message(agreed, n, known[n], seeds[0]) for n in senders}
                sent[agreed.kind] = written
            received = sent[agreed.kind]
        for seed in seeds:
            here = target, seed, trials
            if name == RANDOM:
                scores[name, target, seed] = run_random(ground, *here)
            elif name == BEST_FIRST:
                told = [known[n] for n in met[seed]]
                first = first_settings(ground, told, ground.initial(target, seed))
                scores[name, target, seed] = run(ground, fedbo.EI(), [], *here, first)
            else:
                arrived = [received[n] for n in met[seed]] if received else []
                scores[name, target, seed] = run(ground, POLICIES[name](), arrived, *here)
    return scores


# Targets and results


def targets(ground: Ground, which: str) -> list[int]:
    """List the tasks that are targets: "even", "odd" or "all"."""
    return [task for task in range(ground.tasks) if which == "all" or task % 2 == (which == "odd")]


def curves(found: Iterable[Scores], names: Iterable[str], tasks: Iterable[int]) -> Curves:
    """Arrange the scores of runs as arrays (targets, seeds, trials), one for each name."""
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
