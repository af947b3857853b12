"""Measure what one private release is worth to a newcomer.

GROUND says which tasks: `landmine` and `har`, with real training; `synthetic`, four tables of
similar tasks with 1,000 members each; or PATH.npz, a table of scores as for table.py. Each task in
turn is the target (on each synthetic table, 4 tasks), and other tasks are members that have made 50
trials alone (or --history T). Each member contributes once, a trusted party makes one release
with differential privacy, and the target hears nothing else: the two cells with the most votes are
its first two trials, and then it queries with the default policy.

It is compared with EI alone, which begins with 3 random points, and with

null       the same release with empty contributions: what the machinery does without information
inf        the same release with hardly any noise, if --epsilon has inf: no privacy
messages   ordinary messages of the same members, with --messages: no privacy either

--members 10,28 lets each run meet 10, or 28, random members. EI alone runs once for each target and
seed. Every seed has draws of noise of its own (--draws), and each draw serves all targets, as one
release would. So the intervals, which are over targets, do not include the luck of a single draw.
The spread does: it is the standard deviation, over draws, of the mean regret over targets, divided
by the regret of EI alone. A part of it is due to chance in the runs.

The JSON has in `members`, by the number of members, by ε (or `messages`) and by the number of
trials: `ratio_ei`, `ratio_null`, `ratio_inf` and `ratio_messages`, with 95 %
intervals; `kept`, the share of the gain over EI alone that is left of that without privacy; and
`spread`. `regret_ei` has the regret of EI alone, `spent` the ε that the accountant finds.

    python benchmarks/private.py PATH.npz --targets odd --epsilon 0.5,1,2,inf --json out.json
    python benchmarks/private.py synthetic --members 100,1000 --epsilon 1,inf --delta 1e-5
    FEDBO_DATA=folder python benchmarks/private.py landmine --box linear --targets odd --messages
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

import fedbo
from fedbo.privacy import Plan, Release, Simulated, release, spent
from fedbo_paper.contests import contest, families, har, landmine, measures, options, screen
from fedbo_paper.contests.contest import EI, Scores
from fedbo_paper.contests.grounds import Ground, Listed, read_table
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.summary import AT, warn_of_few
from fedbo_paper.harness.intervals import Floats, bootstrap

Figures = dict[str, Any]

TRAINED = ("landmine", "har")
NAMED = (*TRAINED, "synthetic")
NULL, MESSAGES, FREE = "null", "messages", "inf"
HARDLY_ANY = 1e4  # ε of a release whose noise is negligible
MANY = 300  # members from which one history of each is enough
DIMENSIONS, INSTANCES, TARGETS, MEMBERS = (2, 4), 2, 4, 1000  # of the synthetic tables


def grounds(given: argparse.Namespace) -> Iterator[Ground]:
    """Create the tables or problems that were asked for.

    Args:
        given: The options of the command.
    """
    if given.ground == "landmine":
        yield landmine.ground(given.box, given)
    elif given.ground == "har":
        yield har.ground(given.box, given)
    elif given.ground == "synthetic":
        tasks = max(given.members or [MEMBERS]) + 1
        for D in DIMENSIONS:
            for seed in range(INSTANCES):
                X, Y = families.make("similar", D, seed, tasks=tasks)
                yield Listed(X, Y, f"synthetic D = {D}, {seed}")
    else:
        yield read_table(Path(given.ground))


# Releases


def planned(ground: Ground, eps: float, delta: float) -> fedbo.Federation:
    """Create the federation of a ground's tasks, with one release.

    Args:
        ground: The tasks.
        eps: ε of the release; infinite for hardly any noise.
        delta: Its δ.
    """
    plan = Plan(epsilon=min(eps, HARDLY_ANY), delta=delta)
    return contest.federation(ground, contest.DEFAULT(), plan)


def publish(
    agreed: fedbo.Federation,
    contributions: Sequence[fedbo.Message | None],
    noise: Sequence[int],
    history: int,
) -> Release:
    """Make one release.

    Args:
        agreed: What the members agree on.
        contributions: The contribution of each member, perhaps for a federation that differs in its
            plan; None is an empty one.
        noise: The seed of the noise.
        history: How many trials each member has made.
    """
    here = bytes(agreed.fingerprint)
    moved = [None if one is None else replace(one, fingerprint=here) for one in contributions]
    trials, source = history * len(moved), Simulated(np.random.default_rng(noise))
    return release(agreed, moved, trials=trials, source=source)


def empty(eps: float, given: argparse.Namespace) -> Release:
    """Make a release of nothing; what a release costs depends on nothing but its plan.

    Args:
        eps: ε of the plan.
        given: The options of the command.
    """
    plan = Plan(epsilon=eps, delta=given.delta)
    anything = fedbo.Federation({"x": fedbo.Float(0, 1)}, privacy=plan)
    return publish(anything, [None], [0], given.history)


# Runs


def run(
    ground: Ground,
    agreed: fedbo.Federation,
    published: Release,
    target: int,
    seed: int,
    trials: int,
) -> list[float]:
    """Run a newcomer that hears one release; return its scores.

    It has no common initial points: an agent that is given points would not begin at the votes.

    Args:
        ground: The tasks.
        agreed: The federation with the plan of the release.
        published: The release.
        target: The task that the newcomer tunes.
        seed: The seed of the run.
        trials: Trials of the run.
    """
    agent = contest.started(ground, contest.DEFAULT(), target, seed, None, agreed=agreed)
    agent.receive(published)
    return [score for _, score in contest.evaluate(agent, ground, target, trials)]


def play(
    ground: Ground,
    members: Sequence[fedbo.Message],
    sent: Sequence[fedbo.Message],
    target: int,
    seeds: Sequence[int],
    given: argparse.Namespace,
) -> Scores:
    """Run EI alone, and newcomers that hear a release, on one target with seeds of one group.

    Args:
        ground: The tasks.
        members: The contribution of each task's agent; that of the target is not used.
        sent: The message of each task's agent; empty if no newcomer hears messages.
        target: The task that newcomers tune.
        seeds: The seeds of the runs.
        given: The options of the command.
    """
    scores = contest.play(ground, [], [EI], target, seeds, given.trials)
    agreed = {eps: planned(ground, eps, given.delta) for eps in given.epsilon}
    for seed in seeds:
        for N in sizes(ground, given):
            met = contest.peers(ground, target, seed, N)
            full: list[fedbo.Message | None] = [members[n] for n in met]
            heard = [(f"{eps:g}", eps, full) for eps in given.epsilon]
            if not given.no_null:
                heard += [(f"{NULL} {eps:g}", eps, [None] * N) for eps in _private(given)]
            for (name, eps, contributions), draw in product(heard, range(given.draws)):
                published = publish(agreed[eps], contributions, [seed, draw], given.history)
                key = (_curve(N, name), target, seed * given.draws + draw)
                scores[key] = run(ground, agreed[eps], published, target, seed, given.trials)
            if sent:
                arrived = [sent[n] for n in met]
                scores[_curve(N, MESSAGES), target, seed] = contest.run(
                    ground, contest.DEFAULT(), arrived, target, seed, given.trials
                )
    return scores


def sizes(ground: Ground, given: argparse.Namespace) -> list[int]:
    """List the numbers of members that runs meet; all other tasks by default.

    Args:
        ground: The tasks.
        given: The options of the command.
    """
    others = ground.tasks - 1
    if given.members and max(given.members) > others:
        raise screen.refuse(
            f"--members has {max(given.members)}, but each of the {ground.tasks} tasks of "
            f"{ground.name} has {others} others"
        )
    return given.members or [others]


def measure(ground: Ground, given: argparse.Namespace) -> Curves:
    """Compute regrets (targets, runs, trials) of EI alone and of all newcomers.

    Args:
        ground: The tasks.
        given: The options of the command.
    """
    tasks = contest.targets(ground, given.targets)
    if given.ground == "synthetic":
        tasks = tasks[:TARGETS]
    few = max(sizes(ground, given)) < MANY
    known = contest.histories(ground, given.jobs, given.seeds if few else 1, trials=given.history)
    groups = contest.groups(given.seeds) if few else [range(given.seeds)]
    agreed = contest.federation(ground, contest.DEFAULT())
    private = planned(ground, given.epsilon[0], given.delta)
    calls = []
    for history, seeds in zip(known, groups, strict=True):
        members = [contest.message(private, n, each, seeds[0]) for n, each in enumerate(history)]
        sent = []
        if given.messages:
            sent = [contest.message(agreed, n, each, seeds[0]) for n, each in enumerate(history)]
        calls += [partial(play, ground, members, sent, target, seeds, given) for target in tasks]
    found = screen.work(ground.name, calls, given.jobs)
    scores = {key: each for part in found for key, each in part.items()}
    names = dict.fromkeys(name for name, _, _ in scores)
    return measures.regrets(ground, tasks, contest.curves(found, names, tasks))


def _curve(N: int, heard: str) -> str:
    return f"{heard}, {N} members"


def _private(given: argparse.Namespace) -> list[float]:
    return [eps for eps in given.epsilon if np.isfinite(eps)]


# Results


def figures(regret: Curves, N: int, given: argparse.Namespace) -> Figures:
    """Compute ratios to all yardsticks, the gain that is kept, and the spread over draws of noise.

    Args:
        regret: The regrets of all runs, as `measure` returns them.
        N: The number of members.
        given: The options of the command.
    """
    keys = "ratio_ei", "ratio_null", "ratio_inf", "ratio_messages", "kept", "spread"
    result: Figures = {key: {} for key in keys}
    heard = [*map("{:g}".format, given.epsilon), MESSAGES]
    for name in (name for name in heard if _curve(N, name) in regret):
        own = regret[_curve(N, name)]
        yardsticks = {
            "ratio_ei": regret[EI],
            "ratio_null": regret.get(_curve(N, f"{NULL} {name}")),
            "ratio_inf": regret.get(_curve(N, FREE)) if name not in (FREE, MESSAGES) else None,
            "ratio_messages": regret.get(_curve(N, MESSAGES)) if name != MESSAGES else None,
        }
        for n in (n for n in AT if n <= given.trials):
            at = n - 1
            for key, other in yardsticks.items():
                if other is not None:
                    effect = measures.ratio(own[..., at], _each(other, own)[..., at])
                    result[key].setdefault(name, {})[str(n)] = effect
            if name != MESSAGES:
                result["spread"].setdefault(name, {})[str(n)] = spread(
                    own[..., at], regret[EI][..., at]
                )
            if yardsticks["ratio_inf"] is not None:
                values = own, yardsticks["ratio_inf"], _each(regret[EI], own)
                kept = bootstrap(_share, *(each[..., at] for each in values))
                result["kept"].setdefault(name, {})[str(n)] = kept
    return {key: each for key, each in result.items() if each}


def spread(own: Floats, alone: Floats) -> float:
    """Compute how much the mean regret over targets varies from one draw of noise to another.

    Args:
        own: Regrets (targets, seeds × draws).
        alone: Regrets (targets, seeds) of EI alone, whose mean is the unit.

    Returns:
        The standard deviation over the draws of a seed; NaN if each seed has a single draw, or if
        EI alone has no regret.

    >>> round(spread(np.array([[1.0, 3.0], [2.0, 4.0]]), np.array([[2.0], [2.0]])), 3)
    0.707
    """
    by_draw = own.mean(axis=0).reshape(alone.shape[1], -1)
    if by_draw.shape[1] == 1 or not alone.any():
        return float("nan")
    return float(np.sqrt(by_draw.var(axis=1, ddof=1).mean()) / alone.mean())


def _each(values: Floats, own: Floats) -> Floats:
    """Repeat runs that have one value for each seed as often as a seed has draws of noise."""
    return np.repeat(values, own.shape[1] // values.shape[1], axis=1)


def _share(own: Floats, free: Floats, alone: Floats) -> Floats:
    return (alone - own) / (alone - free)


def show(found: Figures, title: str) -> None:
    """Print the figures as tables.

    Args:
        found: What `figures` returned.
        title: The beginning of each title.
    """
    captions = {
        "ratio_ei": "ratio to EI alone",
        "ratio_null": "ratio to the null",
        "ratio_inf": "ratio to the same release without noise",
        "ratio_messages": "ratio to ordinary messages",
        "kept": "share of the gain without noise that is kept",
    }
    for key, caption in captions.items():
        if key not in found:
            continue
        at = [*next(iter(found[key].values()))]
        with_spread = [f"spread at {n}" for n in at] if key == "ratio_ei" else []
        rows = [
            [
                name,
                *(screen.estimate(each) for each in by_n.values()),
                *(f"{found['spread'].get(name, {}).get(n, np.nan):.3f}" for n in at if with_spread),
            ]
            for name, by_n in found[key].items()
        ]
        screen.table(f"{title}: {caption}, 95 % interval", ["ε", *at, *with_spread], rows)


def main() -> None:
    """Run the command."""
    given = _parser().parse_args()
    curves: list[Curves] = []
    for ground in grounds(given):
        given.members = sizes(ground, given)
        curves.append(measure(ground, given))
    regret = {name: np.concatenate([each[name] for each in curves]) for name in curves[0]}
    title = given.ground if given.ground in NAMED else Path(given.ground).stem
    warn_of_few(len(regret[EI]), title)
    by_members = {}
    for N in given.members:
        by_members[str(N)] = found = figures(regret, N, given)
        show(found, f"{title}, {N} members, δ = {given.delta:g}")
    alone = regret[EI].mean(axis=(0, 1))
    result = {
        "members": by_members,
        "regret_ei": {str(n): alone[n - 1] for n in AT if n <= given.trials},
        "spent": {f"{eps:g}": spent([empty(eps, given)]) for eps in _private(given)},
        "ground": title,
        "box": given.box if given.ground in TRAINED else None,
        "targets": len(regret[EI]),
        "which": given.targets,
    }
    result |= {key: getattr(given, key) for key in ("seeds", "draws", "history", "delta")}
    screen.finish(result, given.json)


def _parser() -> argparse.ArgumentParser:
    parser = options.contest_parser(__doc__)
    parser.set_defaults(trials=20)
    add = parser.add_argument
    add("ground", metavar="GROUND", help=f"{', '.join(NAMED)}, or PATH.npz")
    text = "some of them may be inf; default: 2"
    add("--epsilon", type=_positives, default=[2.0], metavar="A,B,...", help=text)
    add("--delta", type=float, default=1e-3, help="default: 0.001")
    text = "of noise, for each seed; default: 5"
    add("--draws", type=options.positive, default=5, metavar="N", help=text)
    text = "members that a run meets, chosen at random; default: all other tasks"
    add("--members", type=_counts, metavar="A,B,...", help=text)
    text = "trials of each member; default: 50"
    add("--history", type=options.positive, default=contest.HISTORY, metavar="T", help=text)
    add("--box", choices=("linear", "log"), default="linear", help="of landmine and har")
    add("--no-null", action="store_true", help="leave out the null, half of the time")
    add("--messages", action="store_true", help="also run newcomers that hear ordinary messages")
    return parser


def _positives(text: str) -> list[float]:
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = [0.0]
    if not all(value > 0.0 for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers above 0")
    return values


def _counts(text: str) -> list[int]:
    return [options.positive(each) for each in text.split(",")]
