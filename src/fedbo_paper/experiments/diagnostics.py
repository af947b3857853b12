"""What the query of a message is worth, and how many such queries a run makes.

A query that follows peer n is the point where φ(x)ᵀω_n is largest. `worth` scores that point with
the target's own objective, for every target and each of its peers. It compares it with a uniformly
random point, which needs no peer, and with the best point that the peer has tried, which the peer
would have to disclose. `used` counts how many queries came from peers.

==========  =========================================================================  ===========
symbol      meaning                                                                    shape
==========  =========================================================================  ===========
K, N, R     number of targets, of peers and of random points for each target           scalars
x_n         argmax φ(x)ᵀω_n                                                            (D,)
message     the target's score at x_n                                                  (K, N)
best        the target's score at the peer's best point                                (K, N)
random      the target's score at random points                                        (K, R)
gain        how much better it is than the mean of the target's R random points        (K, N)
height      φ(x_n)ᵀω_n in the units of the message: raw scores in the paper preset,    (K, N)
            standardised scores in the default preset
highest     the peer's best score in the same units; height should be close to it      (K, N)
==========  =========================================================================  ===========
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.model.argmax import argmax
from fedbo.model.kernel import one_thread
from fedbo.policy import TS
from fedbo.policy.base import Power
from fedbo.space import Space
from fedbo.space.axis import Value
from fedbo.table import Cell, Table
from fedbo_paper.experiments.presets import federation, settings
from fedbo_paper.experiments.spec import Preset, seed_of
from fedbo_paper.harness.averages import mean_and_error
from fedbo_paper.problems.problems import Tasks

Trials = Sequence[tuple[Mapping[str, Value], float]]
Floats = NDArray[np.float64]

_R = 100  # random points of each target; many, because all others are compared with them
_ARM = ("experiment", "preset", "M", "N", "t_n", "d_n", "power", "every")
_RUN = ("target", "repeat", "seed")


def worth(
    tasks: Tasks,
    histories: Sequence[Trials],
    preset: Preset,
    M: int = 100,
    *,
    targets: Sequence[int] | None = None,
    peers: int | None = None,
    seed: int = 0,
) -> Table:
    """Score the queries that messages propose, random points, and the best points of peers.

    Every target gets its own messages, from its own features. It makes two evaluations for each
    peer, and 100 at random points.

    Args:
        tasks: The problem.
        histories: The trials of each agent that its message is based on.
        preset: The preset of all agents.
        M: Number of features, 100 by default.
        targets: The agents that take their turn as the target; all by default.
        peers: How many peers of each target are looked at, drawn at random; all by default.
        seed: Decides everything random, 0 by default.

    Returns:
        A row for each ``quantity``. ``random``, ``message`` and ``best`` are scores in the units of
        the objective. ``message_gain`` and ``best_gain`` say how much better than random they are
        (positive is better, even where scores are errors). ``height`` and ``highest`` are in the
        units of the message. ``mean`` and ``standard_error`` are over ``targets``, each the mean of
        its peers. Nine out of ten of all ``values`` lie between ``low`` and ``high``.

    Raises:
        ValueError: There is no trial of an agent, no target, or no peer.
    """
    if len(histories) != tasks.agents or not all(histories):
        raise ValueError(
            f"histories has trials of {sum(map(bool, histories))} agents in {len(histories)} "
            f"lists, expected at least one trial of each of the {tasks.agents} agents"
        )
    chosen = range(tasks.agents) if targets is None else targets
    if not chosen:
        raise ValueError("targets is empty, expected at least one agent, or None for all")
    with one_thread():
        found = [
            _of_target(
                tasks, histories, preset, M, target, _peers(tasks, target, peers, seed), seed
            )
            for target in chosen
        ]
    all_of = {name: np.array([one[name] for one in found]) for name in found[0]}
    level = all_of["random"].mean(axis=1, keepdims=True)
    for name in ("message", "best"):
        all_of[f"{name}_gain"] = tasks.space.sign * (all_of[name] - level)
    rows = [_summary(name, values) for name, values in all_of.items()]
    columns = ("quantity", "mean", "standard_error", "low", "high", "targets", "values")
    return Table.from_rows(columns, rows)


def _peers(tasks: Tasks, target: int, peers: int | None, seed: int) -> list[int]:
    """The peers whose messages the target looks at."""
    others = [n for n in range(tasks.agents) if n != target]
    if len(others) == tasks.agents or not others:
        raise ValueError(
            f"target {target} is not one of {tasks.agents} agents with a peer; "
            f"expected 0 to {tasks.agents - 1}, and at least two agents"
        )
    if peers is None or peers >= len(others):
        return others
    if peers < 1:
        raise ValueError(f"peers is {peers}, expected 1 or more, or None for all")
    rng = np.random.default_rng(seed_of("worth", "peers", seed, target))
    return sorted(rng.choice(others, peers, replace=False).tolist())


def _of_target(
    tasks: Tasks,
    histories: Sequence[Trials],
    preset: Preset,
    M: int,
    target: int,
    peers: Sequence[int],
    seed: int,
) -> dict[str, list[float]]:
    """All quantities of one target: a number for each of its peers."""
    space = tasks.space
    shared = federation(tasks, preset, M, seed_of("worth", "features", seed, target))
    own = settings(tasks, preset, "refine")
    agents = []
    for n in peers:
        key = seed_of("worth", "peer", seed, target, n)
        agents.append(Agent(shared, TS(), name=f"agent-{n}", seed=key, settings=own))
        for params, score in histories[n]:
            agents[-1].tell(params, score)
    functions = [shared.phi.function(message.omega) for message in Agent.messages(agents)]
    tops = [argmax(function, space) for function in functions]
    rng = np.random.default_rng(seed_of("worth", "random", seed, target))
    objective = tasks.objective(target, seed_of("worth", "noise", seed, target))
    best = [peer.best for peer in agents]
    return {
        "random": [objective(space.decode(x)) for x in space.sample(rng, _R)],
        "message": [objective(space.decode(x)) for x in tops],
        "best": [objective(dict(trial.params)) for trial in best if trial is not None],
        "height": [float(f(x[None])[0]) for f, x in zip(functions, tops, strict=True)],
        "highest": [_highest(histories[n], space, own) for n in peers],
    }


def _highest(history: Trials, space: Space, own: Settings) -> float:
    """The best score of a history, in the units of a message."""
    y = space.sign * np.array([score for _, score in history])
    return float(own.scores(y).z.max())


def _summary(name: str, values: Floats) -> list[Cell]:
    mean, error = mean_and_error(values.mean(axis=1))
    most = np.quantile(values, [0.05, 0.95]).tolist()
    return [name, float(mean), float(error), *most, len(values), values.size]


def used(runs: Table) -> Table:
    """Count how many queries of FTS's runs followed a peer, and compare with the expectation.

    Returns:
        A row for each setting: the ``mean`` number of such queries per run with its
        ``standard_error``, the share of runs with ``none``, and the expected value of both (NaN
        where p_t is not a power of t). A message is used once, so there are at most N such queries
        where messages are sent once.
    """
    rows = [
        [*arm, *_counted(np.array(counts), T, int(arm[3]), float(arm[6]), bool(arm[7]))]
        for arm, counts, T in _counts(runs.where(method="FTS"))
    ]
    figures = ("runs", "mean", "standard_error", "none", "expected_mean", "expected_none")
    return Table.from_rows([*_ARM, *figures], rows)


def expected(power: float, iterations: int, N: int, renewed: bool = False) -> tuple[float, float]:
    """Return the expected number of queries from peers in a run, and the probability of none.

    Args:
        power: p_t is 1 − 1/t^power.
        iterations: The length of the run.
        N: The number of peers.
        renewed: Whether peers send new messages before every iteration.

    >>> mean, none = expected(power=2, iterations=50, N=28)
    >>> round(mean, 3), round(none, 3)
    (0.875, 0.383)
    """
    p = [Power(power)(t) for t in range(1, iterations + 1)] if N else []
    distribution = np.ones(1)  # of the number so far
    for p_t in p:
        distribution = np.convolve(distribution, [p_t, 1.0 - p_t])
    numbers = np.arange(len(distribution))
    mean = float(distribution @ (numbers if renewed else np.minimum(numbers, N)))
    return mean, float(distribution[0])


def _counted(counts: Floats, T: int, N: int, power: float, renewed: bool) -> list[Cell]:
    mean, error = mean_and_error(counts.astype(np.float64))
    none = float(np.mean(counts == 0))
    known = (math.nan, math.nan) if math.isnan(power) else expected(power, T, N, renewed)
    return [len(counts), float(mean), float(error), none, *known]


def _counts(runs: Table) -> Iterator[tuple[list[Cell], list[int], int]]:
    """Each setting, with the number of queries from peers in each run, and the runs' length."""
    arms: dict[str, tuple[list[Cell], dict[tuple[int, ...], int], int]] = {}
    labels = zip(*(runs[name].tolist() for name in (*_ARM, *_RUN)), strict=True)
    trials = zip(runs["source"].tolist(), runs["iteration"].tolist(), strict=True)
    for label, (source, iteration) in zip(labels, trials, strict=True):
        arm, run = list(label[: len(_ARM)]), label[len(_ARM) :]
        key = repr(arm)  # as text: NaN is not equal to itself
        arm, numbers, T = arms.get(key, (arm, {}, 0))
        numbers[run] = numbers.get(run, 0) + (source == "peer")
        arms[key] = arm, numbers, max(T, iteration)
    for arm, numbers, T in arms.values():
        yield arm, list(numbers.values()), T
