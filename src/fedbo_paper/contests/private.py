"""Measure what one private release is worth to a newcomer, on any table of scores.

The file is as for table.py. Each task in turn is the target, and all other tasks are members that
have made 50 evaluations alone (or --history T). Each member contributes once, a trusted party makes
one release with differential privacy, and the target hears nothing else: the two cells with the
most votes are its first two trials, and then it queries with the default policy.

It is compared with EI alone, which starts from 3 random points, and with the *null*: the same
release with empty contributions, which tells what the machinery does without any information.
Every run has noise of its own, so the intervals include the luck of the noise.

In the JSON, `ratio_ei` and `ratio_null` have these ratios by ε and by the number of evaluations
after the third, with 95 % intervals over targets; `spent` has the ε that the accountant finds.

    python benchmarks/private.py PATH.npz --targets odd --epsilon 0.5,1,2 --json out.json
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo.model.linear import Regression
from fedbo.model.scores import Standardised
from fedbo.privacy import (
    Contribution,
    Plan,
    Release,
    Simulated,
    contribute,
    epsilon,
    first_points,
    mechanisms,
    release,
)
from fedbo_paper.contests import contest, measures, options, screen
from fedbo_paper.contests.contest import EI, History, Scores
from fedbo_paper.contests.grounds import INITIAL, Listed, read_table
from fedbo_paper.contests.measures import Curves

AT = (5, 10, 20)
NULL = "null"


def contribution(ground: Listed, agreed: fedbo.Federation, history: History) -> Contribution:
    """Create the contribution of a member with this history."""
    X = np.array([ground.X[ground.row(params)] for params, _ in history])
    y = np.array([score for _, score in history])
    regression = Regression(agreed.phi, agreed.noise_variance)
    regression.add(X)
    nu = regression.posterior(Standardised(y).z).nu
    return contribute(agreed, nu, X[int(np.argmax(y))])


def run(
    ground: Listed,
    published: Release,
    target: int,
    seed: int,
    evaluations: int,
) -> list[float]:
    """Run a newcomer that hears one release; return its scores."""
    policy = fedbo.PTS()
    agreed = contest.federation(ground, policy)
    first = [agreed.space.decode(x) for x in first_points(agreed, published)]
    agent = contest.started(ground, policy, target, seed, first)
    agent.receive(published)
    return [score for _, score in contest.evaluate(agent, ground, target, INITIAL + evaluations)]


def play(
    ground: Listed,
    members: Sequence[Contribution],
    target: int,
    seeds: Sequence[int],
    given: argparse.Namespace,
) -> Scores:
    """Run EI alone, and newcomers that hear a release, on one target with seeds of one group."""
    scores = contest.play(ground, [], [EI], target, seeds, given.evaluations)
    agreed = contest.federation(ground, fedbo.PTS())
    others = [each for task, each in enumerate(members) if task != target]
    empty: list[Contribution | None] = [None] * len(others)
    for seed in seeds:
        for noise in range(given.draws):
            for eps in given.epsilon:
                for name, contributed in ((f"{eps:g}", others), (f"{NULL} {eps:g}", empty)):
                    source = Simulated(np.random.default_rng([seed, noise, target]))
                    published = release(
                        agreed,
                        contributed,
                        plan=Plan(eps, given.delta),
                        trials=given.history * len(others),
                        source=source,
                    )
                    key = (name, target, seed * given.draws + noise)
                    scores[key] = run(ground, published, target, seed, given.evaluations)
    return scores


def figures(regret: Curves, given: argparse.Namespace) -> dict[str, Any]:
    """Compute ratios to EI alone and to the null."""
    result: dict[str, Any] = {"ratio_ei": {}, "ratio_null": {}}
    for eps in (f"{each:g}" for each in given.epsilon):
        own, null = regret[eps], regret[f"{NULL} {eps}"]
        alone = np.repeat(regret[EI], given.draws, axis=1)
        for key in result:
            result[key][eps] = {}
        for n in (n for n in AT if n <= given.evaluations):
            at = INITIAL + n - 1
            result["ratio_ei"][eps][str(n)] = measures.ratio(own[..., at], alone[..., at])
            result["ratio_null"][eps][str(n)] = measures.ratio(own[..., at], null[..., at])
    return result


def show(found: dict[str, Any], title: str) -> None:
    """Print the figures as tables."""
    for key, what in (("ratio_ei", "EI alone"), ("ratio_null", "the null")):
        rows = [
            [eps, *(screen.estimate(each) for each in by_n.values())]
            for eps, by_n in found[key].items()
        ]
        at = [*next(iter(found[key].values()))]
        screen.table(f"{title}: ratio to {what}, 95 % interval", ["ε", *at], rows)


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    parser.set_defaults(evaluations=AT[-1])
    add = parser.add_argument
    add("path", type=Path, metavar="PATH.npz")
    add("--epsilon", type=_positives, default=[2.0], metavar="A,B,...", help="default: 2")
    add("--delta", type=float, default=1e-3, help="default: 0.001")
    add("--draws", type=options.positive, default=5, metavar="N", help="of noise; default: 5")
    text = "evaluations of each member; default: 50"
    add("--history", type=options.positive, default=contest.HISTORY, metavar="T", help=text)
    given = parser.parse_args()
    ground = read_table(given.path)
    tasks = contest.targets(ground, given.targets)
    known = contest.histories(ground, given.jobs, given.seeds, evaluations=given.history)
    agreed = contest.federation(ground, fedbo.PTS())
    calls = []
    for history, seeds in zip(known, contest.groups(given.seeds), strict=True):
        members = [contribution(ground, agreed, each) for each in history]
        calls += [partial(play, ground, members, target, seeds, given) for target in tasks]
    found = screen.work("policies", calls, given.jobs)
    names = [EI, *(name for eps in given.epsilon for name in (f"{eps:g}", f"{NULL} {eps:g}"))]
    result = figures(_regrets(ground, tasks, found, names), given)
    result["spent"] = {
        f"{eps:g}": epsilon(
            mechanisms(release(agreed, [None], plan=Plan(eps, given.delta), trials=1)),
            given.delta,
        )
        for eps in given.epsilon
    }
    title = f"{given.path.stem}, {ground.tasks - 1} members, δ = {given.delta:g}"
    show(result, title)
    screen.finish(
        {**result, "targets": tasks, "seeds": given.seeds, "delta": given.delta}, given.json
    )


def _regrets(
    ground: Listed, tasks: Sequence[int], found: Sequence[Scores], names: Sequence[str]
) -> Curves:
    """Arrange the regrets of each name by targets, runs and evaluations."""
    scores = {key: each for part in found for key, each in part.items()}
    curves = {}
    for name in names:
        runs = sorted({seed for key, _, seed in scores if key == name})
        curves[name] = np.array([[scores[name, task, run] for run in runs] for task in tasks])
    return measures.regrets(ground, tasks, curves)


def _positives(text: str) -> list[float]:
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = [0.0]
    if not all(0.0 < value < np.inf for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers above 0")
    return values
