"""Measure which 1,024 of 10,000 messages a hub should hand out: the most alike, or any.

A hub hands out at most 1,024 messages. Here a target belongs to a population of 10,000 agents in
200 clusters of 50: one in 200 is like the target. It runs TipsThenPool, the default policy, and
hears

half alike   512 messages that are most like its own latest one, and 512 at random
all alike    the 1,024 messages that are most like its own latest one
late alike   as half alike, but only once its own message has 8 scores behind it
uniform      1,024 messages at random, the same ones all the time
only alike   the 50 messages of its own cluster: what the best choice could give
alone        nothing

Alike means the correlation of two functions over the unit cube (`fedbo.federation.likeness`). The
target publishes as a study does by default, after a new best score or once its scores have
doubled, and its choice of messages is made anew whenever it has published. Without a message of its
own, the choice is random, and the same one as in "uniform".

family  clusters                                                       targets
------  -------------------------------------------------------------  -------------------------
gp3     unrelated draws of a GP, D = 3                                 one more agent of a cluster
gp6     the same with D = 6                                            the same
svm     mixtures of two tasks of the SVM table, so all are related     a task of the table

Agents of a cluster have its function plus a draw of a GP with 0.3 times its deviation. A peer has
made 5 to 50 trials: half of them at random points, half among the best tenth, as if it had
optimised. All runs of a target have the same 3 initial points. The regret is (best − best so far) /
(best − worst). Intervals are 95 % bootstraps over targets, with all their seeds; ratios and
differences are paired. The mean of the families' ratios decides, by a rule that was fixed before
the reported runs: the most alike are worth choosing if it is below 1 at 10 or 20, and at none of 5,
10 and 20 above 1, by its intervals.

    FEDBO_DATA=folder python benchmarks/alike.py --json alike.json --picture alike.png
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.trial import create_trial

import fedbo
from fedbo.federation.likeness import Likeness
from fedbo.insight.colours import COLOURS
from fedbo.message.inbox import Inbox
from fedbo.model.features import Features
from fedbo.model.linear import Regression, posteriors
from fedbo.model.surrogate import Standardised
from fedbo.optuna.mailbox import due
from fedbo_paper.contests import contest, families, hostile, measures, options, picture, screen
from fedbo_paper.contests.grounds import Listed, read_table
from fedbo_paper.contests.measures import Curves
from fedbo_paper.data import find
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect, Floats

CLUSTERS, SIZE, MOST = 200, 50, 1024
OWN = 0.3  # deviation of an agent from its cluster, in deviations of the cluster
FEWEST, LARGEST = 5, 50  # trials of a peer
GOOD = 0.1  # share of the points among which a peer has half of its trials
POINTS = 500  # configurations of a synthetic population
TOGETHER = 5  # targets of one synthetic population, each of another cluster
ENOUGH = 8  # scores behind a message of the target from which "late alike" relies on it
SEEDS = {"gp3": 1, "gp6": 1, "svm": 3}  # runs on a target
RUNS = 100  # at most, on a target
AT = (1, 2, 3, 5, 10, 20)  # trials
FAMILIES = {"gp3": 3, "gp6": 6, "svm": None}  # dimensions
TITLES = {"gp3": "GP draws, D = 3", "gp6": "GP draws, D = 6", "svm": "SVM table, D = 6"}
LATE, UNIFORM, ONLY, ALONE = "late alike", "uniform", "only alike", "alone"
SHARES = {"half alike": 0.5, "all alike": 1.0, LATE: 0.5, UNIFORM: 0.0}  # of the most alike
ARMS = (*SHARES, ONLY, ALONE)

Rows = np.ndarray[Any, np.dtype[np.intp]]


class Population(NamedTuple):
    """Targets (tasks of the ground), messages (N, M), and the cluster of each agent."""

    number: int  # seeds the runs
    ground: Listed
    omegas: Floats
    cluster: Rows
    own: Sequence[int]  # the cluster of each target


# Populations


def smooth_draws(X: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Draw n functions of a GP as `families` does; values (n, points) with deviation 1."""
    D = X.shape[1]
    scales = np.maximum(rng.uniform(0.2, 1.0, D) * np.sqrt(D) / 2, 0.1)
    kernel, seed = str(rng.choice(["se", "matern52"])), int(rng.integers(2**31))
    phi = Features(D, families.FEATURES, kernel=kernel, length_scales=scales, seed=seed)
    return standard(rng.standard_normal((n, families.FEATURES)) @ phi(X).T)


def standard(Y: Floats) -> Floats:
    """Scale each row to mean 0 and deviation 1."""
    result: Floats = (Y - Y.mean(axis=1, keepdims=True)) / Y.std(axis=1, keepdims=True)
    return result


def synthetic(D: int, seed: int) -> Population:
    """Make a population of unrelated clusters; a target is one more agent of a cluster."""
    rng = np.random.default_rng([seed, D])
    X, _ = families.make("unrelated", D, seed, tasks=1, points=POINTS)
    centres = smooth_draws(X, CLUSTERS, rng)
    cluster = np.repeat(np.arange(CLUSTERS), SIZE)
    Y = centres[cluster] + OWN * smooth_draws(X, len(cluster), rng)
    targets = centres[:TOGETHER] + OWN * smooth_draws(X, TOGETHER, rng)
    ground = Listed(X, targets, f"gp{D}")
    return Population(seed, ground, messages(ground, Y, rng), cluster, range(TOGETHER))


def svm(table: Listed, task: int) -> Population:
    """Make a population of mixtures of two other tasks, with 50 agents like this one."""
    number = 1000 + task
    rng = np.random.default_rng([number, len(table.Y)])
    Y = standard(table.Y)
    others = np.array([other for other in range(len(Y)) if other != task])
    pairs = np.array([rng.choice(others, 2, replace=False) for _ in range(CLUSTERS)])
    w = rng.uniform(0.0, 1.0, CLUSTERS)[:, None]
    centres = standard(w * Y[pairs[:, 0]] + (1.0 - w) * Y[pairs[:, 1]])
    centres[0] = Y[task]
    cluster = np.repeat(np.arange(CLUSTERS), SIZE)
    made = centres[cluster] + OWN * smooth_draws(table.X, len(cluster), rng)
    ground = Listed(table.X, table.Y[[task]], "svm")
    return Population(number, ground, messages(ground, made, rng), cluster, [0])


def federation(ground: Listed) -> fedbo.Federation:
    """Return a federation of weights: those of a population are drawn fast."""
    return contest.federation(ground, fedbo.FTS())


def messages(ground: Listed, Y: Floats, rng: np.random.Generator) -> Floats:
    """Draw the message (M,) of each agent with scores Y (N, points)."""
    agreed = federation(ground)
    points, omegas = len(ground.X), np.empty((len(Y), agreed.features))
    for first in range(0, len(Y), CLUSTERS):
        regressions, scores = [], []
        for y in Y[first : first + CLUSTERS]:
            n = int(rng.integers(FEWEST, LARGEST + 1))
            best = np.argsort(-y)[: round(GOOD * points)]
            found = rng.choice(best, min(n // 2, len(best)), replace=False)
            left = np.setdiff1d(np.arange(points), found)
            rows = np.concatenate([found, rng.choice(left, n - len(found), replace=False)])
            regression = Regression(agreed.phi, agreed.noise_variance)
            regression.add(ground.X[rows])
            regressions.append(regression)
            scores.append(Standardised(y[rows]).z)
        beliefs = posteriors(regressions, scores)
        omegas[first : first + len(beliefs)] = [belief.draw(rng) for belief in beliefs]
    return omegas


# What the target hears


def chosen(share: float, alike: Rows, mixed: Rows) -> Rows:
    """Choose 1,024 messages: a share of the most alike, and a rest in a given random order."""
    first = alike[: int(MOST * share)]
    return np.concatenate([first, mixed[~np.isin(mixed, first)][: MOST - len(first)]])


def filled(agreed: fedbo.Federation, omegas: Floats, rows: Rows) -> Inbox:
    """Return an inbox with the messages of these agents."""
    inbox = Inbox(agreed.features, agreed.space.dimensions)
    inbox.extend([f"peer-{row}" for row in rows], omegas[rows], t_n=LARGEST, sequence=1)
    return inbox


def run(
    population: Population, arm: str, target: int, seed: int, trials: int
) -> tuple[list[float], list[int]]:
    """Run a target; return its scores, and how many of its own cluster it heard at each query."""
    ground, omegas = population.ground, population.omegas
    run_seed = RUNS * population.number + seed
    rng = np.random.default_rng([run_seed, target, 7])
    agreed, first = federation(ground), ground.initial(target, run_seed)
    likeness = Likeness(agreed)
    U = likeness.directions(omegas)
    mixed, theirs = rng.permutation(len(omegas)), population.cluster == population.own[target]
    rows, published, heard = mixed[:0], 0, []
    if arm == ONLY:
        rows = np.flatnonzero(theirs)
    elif arm != ALONE:
        rows = mixed[:MOST]
    agent = fedbo.Agent(agreed, name="target", seed=int(rng.integers(2**31)), initial=first)
    agent.inbox = filled(agreed, omegas, rows)
    for _ in range(trials):
        latest = _published(agent) if SHARES.get(arm) else 0
        if latest > max(published, ENOUGH - 1 if arm == LATE else 0):
            published = latest
            own = likeness.directions([agent.message().omega])[0]
            rows = chosen(SHARES[arm], np.argsort(-(U @ own), kind="stable"), mixed)
            agent.inbox = filled(agreed, omegas, rows)
        heard.append(int(np.count_nonzero(theirs[rows])))
        trial = agent.ask()
        agent.tell(trial, ground.score(target, trial.params))
    return [float(trial.score or 0.0) for trial in agent.trials], heard


def _published(agent: fedbo.Agent) -> int:
    """Return after how many scores the agent has published last."""
    scored = [create_trial(value=trial.score) for trial in agent.trials]
    return max(due(scored, None, "maximize"), default=0)


# Contests


def play(
    make: Callable[[], Population], seeds: Sequence[int], trials: int
) -> dict[str, tuple[Floats, Floats]]:
    """Run all arms on all targets of one population.

    Returns:
        For each arm regrets, and how many of its own cluster the target heard, both of shape
        (targets, seeds, trials).
    """
    population = make()
    ground, found = population.ground, {}
    for arm in ARMS:
        runs = [
            [run(population, arm, target, seed, trials) for seed in seeds]
            for target in range(ground.tasks)
        ]
        scores, heard = (np.array([[each[i] for each in row] for row in runs]) for i in (0, 1))
        regret = measures.regrets(ground, range(ground.tasks), {arm: scores})[arm]
        found[arm] = (regret, heard)
    return found


def populations(family: str, given: argparse.Namespace) -> Iterator[Callable[[], Population]]:
    """List the populations of a family; those for trying out are others than the reported ones."""
    D = FAMILIES[family]
    if D is not None:
        first = 1000 if given.try_out else 100
        for i in range(given.populations):
            yield partial(synthetic, D, first + i)
        return
    table = read_table(given.table or find("tst_svm", [hostile.TABLE]))
    for task in contest.targets(table, "even" if given.try_out else "odd"):
        yield partial(svm, table, task)


def figures(regrets: Curves, heard: Curves) -> dict[str, dict[str, Any]]:
    """Compute regrets, their ratio to a uniform sample's, and how many alike were heard."""
    found: dict[str, dict[str, Any]] = {}
    for arm, regret in regrets.items():
        each: dict[str, Any] = {"regret": {}, "ratio": {}, "heard": {}}
        for n in AT:
            here, base = regret[:, :, n - 1], regrets[UNIFORM][:, :, n - 1]
            each["regret"][str(n)] = intervals.bootstrap(np.positive, here)
            each["ratio"][str(n)] = measures.ratio(here, base)
            each["heard"][str(n)] = float(heard[arm][:, :, n - 1].mean())
        found[arm] = each | {"curve": regret.mean(axis=(0, 1)).tolist()}
    return found


def mean_ratio(curves: dict[str, Curves], arm: str, n: int) -> Effect:
    """Compute the mean over families of the ratio to a uniform sample's regret."""
    values, samples = [], []
    for k, regrets in enumerate(curves.values()):
        a, b = (regrets[name][:, :, n - 1].mean(axis=1) for name in (arm, UNIFORM))
        W = np.random.default_rng(k).multinomial(len(a), np.full(len(a), 1 / len(a)), size=2000)
        values.append(a.mean() / b.mean())
        samples.append((W @ a) / (W @ b))
    low, high = np.quantile(np.mean(samples, axis=0), intervals.TAILS).tolist()
    return Effect(float(np.mean(values)), low, high, len(curves))


def show(
    found: dict[str, dict[str, dict[str, Any]]], together: dict[str, dict[str, Effect]]
) -> None:
    """Print regrets and their ratios to those of a uniform sample."""
    columns = ["the target hears", *(f"at {n}" for n in AT)]
    for family, arms in found.items():
        for key, title in (("regret", "mean regret"), ("ratio", f"ratio to {UNIFORM!r}")):
            rows = [
                [arm, *(screen.estimate(each[key][str(n)], 3) for n in AT)]
                for arm, each in arms.items()
            ]
            screen.table(f"{TITLES[family]}: {title} (95 % intervals)", columns, rows)
        rows = [[arm, *(f"{each['heard'][str(n)]:.1f}" for n in AT)] for arm, each in arms.items()]
        screen.table(f"{TITLES[family]}: messages of its own cluster, of {SIZE}", columns, rows)
    rows = [
        [arm, *(screen.estimate(each[str(n)], 3) for n in AT)] for arm, each in together.items()
    ]
    screen.table(f"mean over families of the ratio to {UNIFORM!r}", columns, rows)


def drawn(found: dict[str, dict[str, dict[str, Any]]]) -> Figure:
    """Draw the regrets of each family, and their ratios to those of a uniform sample."""
    figure = Figure(figsize=(3.2 * len(found) + 1.6, 6), layout="constrained")
    panels = figure.subplots(2, len(found), squeeze=False, sharey="row")
    shades = dict(zip(ARMS, (*COLOURS[:2], COLOURS[3], "black", COLOURS[2], "0.6"), strict=True))
    for column, (family, arms) in enumerate(found.items()):
        upper: Axes = panels[0, column]
        lower: Axes = panels[1, column]
        for k, (arm, each) in enumerate(arms.items()):
            upper.plot(
                range(1, len(each["curve"]) + 1),
                each["curve"],
                color=shades[arm],
                label=arm,
                lw=1.6,
            )
            for i, n in enumerate(AT):
                effect: Effect = each["ratio"][str(n)]
                values = (effect.value, effect.low, effect.high)
                if arm != UNIFORM:
                    at = i + 0.15 * (k - 2)
                    picture.interval(lower, at, values, up=True, color=shades[arm])
        upper.set_yscale("log")
        upper.set_xlim(1, AT[-1])
        lower.axhline(1.0, color="black", lw=1)
        lower.set_yscale("log")
        lower.set_ylim(0.1, 10)
        lower.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
        lower.set_xticks(range(len(AT)), [str(n) for n in AT])
        picture.label(upper, TITLES[family])
        picture.label(lower, "ratio to uniform", xlabel="trials")
    panels[0, 0].set_ylabel("mean regret")
    panels[0, -1].legend(
        frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5)
    )
    return figure


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    add = parser.add_argument
    text = f"some of {', '.join(FAMILIES)}; default: all"
    add("--family", type=options.some([*FAMILIES]), default=tuple(FAMILIES), help=text)
    text = f"synthetic populations of each family, with {TOGETHER} targets each; default: 16"
    add("--populations", type=options.positive, default=16, metavar="N", help=text)
    text = "runs on a target; default: 3 on the SVM table, 1 elsewhere"
    add("--seeds", type=options.positive, metavar="N", help=text)
    text = f"the SVM table; default: {hostile.TABLE} in the data folder"
    add("--table", type=Path, metavar="PATH", help=text)
    text = "use populations and tasks that are not reported"
    add("--try-out", action="store_true", help=text)
    add("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    add("--picture", type=Path, metavar="OUT.png", help="also draw them")
    options.add_jobs(parser)
    given = parser.parse_args()
    found, curves = {}, {}
    for family in given.family:
        calls = [
            partial(play, make, range(given.seeds or SEEDS[family]), AT[-1])
            for make in populations(family, given)
        ]
        parts = screen.work(family, calls, given.jobs)
        regrets = {arm: np.concatenate([part[arm][0] for part in parts]) for arm in ARMS}
        heard = {arm: np.concatenate([part[arm][1] for part in parts]) for arm in ARMS}
        curves[family], found[family] = regrets, figures(regrets, heard)
    together = {arm: {str(n): mean_ratio(curves, arm, n) for n in AT} for arm in ARMS}
    show(found, together)
    screen.finish({"families": found, "together": together}, given.json)
    if given.picture:
        drawn(found).savefig(given.picture, dpi=110)


if __name__ == "__main__":
    screen.run(main)
