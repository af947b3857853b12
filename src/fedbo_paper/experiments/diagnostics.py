"""What a message's query is worth, and how many of them a run makes.

A query that follows peer n is the point where φ(x)ᵀω_n is largest. `worth` scores that point with
the target's own objective, for every target and every one of its peers, beside two others: a
uniformly random point, which needs no peer, and the best point that the peer has tried, which would
have to be shown to be shared. `used` counts how many queries came from peers at all.

==========  =========================================================================  ===========
symbol      meaning                                                                    shape
==========  =========================================================================  ===========
K, N, R     targets that are looked at, peers of each, random points of each           scalars
x_n         argmax φ(x)ᵀω_n                                                            (D,)
message     the target's score at x_n                                                  (K, N)
best        the target's score at the peer's best point                                (K, N)
random      the target's score at random points                                        (K, R)
gain        how much better than random, on average over the target's R points         (K, N)
height      φ(x_n)ᵀω_n, in the units that the message has: raw scores in the paper's   (K, N)
            preset, standardised ones by default
highest     the peer's best score in these units: what height should be about          (K, N)
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
from fedbo.model.scores import Standardised
from fedbo.model.threads import one_thread
from fedbo.policy import TS
from fedbo.policy.schedule import Power
from fedbo.simulate import messages
from fedbo.space import Space
from fedbo.space.axis import Value
from fedbo.table import Cell, Table
from fedbo_paper.experiments.presets import federation, settings
from fedbo_paper.experiments.spec import Preset, seed_of
from fedbo_paper.harness.averages import mean_and_error
from fedbo_paper.problems.problems import Tasks

Trials = Sequence[tuple[Mapping[str, Value], float]]
Floats = NDArray[np.float64]

_R = 100  # random points of each target: what all others are measured by should be sure
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
    """What the target scores where a peer's message is largest, at random, and at the peer's best.

    ``histories[n]`` are the trials of agent n that its message draws on. Every target gets messages
    of its own, from features of its own. ``targets`` are the agents that take their turn as the
    target (all), ``peers`` is how many others each of them looks at, drawn at random (all). A
    target makes two evaluations for each peer, and 100 at random points.

    One row for each ``quantity``: ``random``, ``message`` and ``best`` are scores in the
    objective's units, ``message_gain`` and ``best_gain`` how much better than random they are
    (more is better, also where scores are errors), ``height`` and ``highest`` are in the message's
    units. ``mean`` and ``standard_error`` are over ``targets``, each the mean of its peers; of all
    ``values`` nine in ten lie between ``low`` and ``high``.
    """
    if len(histories) != tasks.agents or not all(histories):
        raise ValueError(
            f"histories has trials of {sum(map(bool, histories))} agents in {len(histories)} "
            f"lists, expected one or more trials of each of the {tasks.agents} agents"
        )
    chosen = range(tasks.agents) if targets is None else targets
    if not chosen:
        raise ValueError("targets is empty, expected one agent or more, or None for all")
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
    """Whose messages the target looks at."""
    others = [n for n in range(tasks.agents) if n != target]
    if len(others) == tasks.agents or not others:
        raise ValueError(
            f"target {target} is not one of {tasks.agents} agents with a peer; "
            f"expected 0 to {tasks.agents - 1}, and two agents or more"
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
    """All quantities of one target, one number for each of its peers."""
    space = tasks.space
    shared = federation(tasks, preset, M, seed_of("worth", "features", seed, target))
    own = settings(tasks, preset, "refine")
    agents = []
    for n in peers:
        key = seed_of("worth", "peer", seed, target, n)
        agents.append(Agent(shared, TS(), name=f"agent-{n}", seed=key, settings=own))
        for params, score in histories[n]:
            agents[-1].tell(params, score)
    functions = [shared.phi.function(message.omega) for message in messages(agents)]
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
    """The best score of a history, as it goes into a message."""
    y = space.sign * np.array([score for _, score in history])
    return float((Standardised(y).z if own.standardise else y).max())


def _summary(name: str, values: Floats) -> list[Cell]:
    mean, error = mean_and_error(values.mean(axis=1))
    most = np.quantile(values, [0.05, 0.95]).tolist()
    return [name, float(mean), float(error), *most, len(values), values.size]


def used(runs: Table) -> Table:
    """How many queries of FTS's runs followed a peer, beside what p_t lets one expect.

    One row for each setting: ``mean`` queries from peers a run with its ``standard_error``,
    ``none``, the share of runs without any, and what is expected of either (NaN where p_t is not a
    power of t). A message is used once, so where messages are sent once there are at most N such
    queries.
    """
    rows = [
        [*arm, *_counted(np.array(counts), T, int(arm[3]), float(arm[6]), bool(arm[7]))]
        for arm, counts, T in _counts(runs.where(method="FTS"))
    ]
    figures = ("runs", "mean", "standard_error", "none", "expected_mean", "expected_none")
    return Table.from_rows([*_ARM, *figures], rows)


def expected(power: float, iterations: int, N: int, renewed: bool = False) -> tuple[float, float]:
    """The mean number of queries from peers, and the probability of none, in a run with p_t.

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
    """Each setting, the number of queries from peers in each of its runs, and their length."""
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
