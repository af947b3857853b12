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

The JSON has in `members`, by the number of members, by ε (or `messages`) and by the number of
trials: `ratio_ei`, `ratio_null`, `ratio_inf` and `ratio_messages`, with 95 % intervals. `regret_ei`
has the regret of EI alone, `spent` the ε that the accountant finds.

    python benchmarks/private.py PATH.npz --targets odd --epsilon 0.5,1,2,inf --json out.json
    python benchmarks/private.py synthetic --members 100,1000 --epsilon 1,inf --delta 1e-5
    FEDBO_DATA=folder python benchmarks/private.py landmine --box linear --targets odd --messages
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from msgspec.structs import replace

import fedbo
from fedbo.privacy import Plan, Release, Simulated, release, spent

from . import figures, grounds, peers, runs, terminal
from .figures import Curves, Figures, counted
from .grounds import Ground
from .peers import DEFAULT, evaluate
from .runs import EI, Run

TRAINED = ("landmine", "har")
NAMED = (*TRAINED, "synthetic")
NULL, MESSAGES, FREE = "null", "messages", "inf"
CAPTIONS = {
    "ratio_ei": "EI alone",
    "ratio_null": "the null",
    "ratio_inf": "the same release without noise",
    "ratio_messages": "ordinary messages",
}
HARDLY_ANY = 1e4  # ε of a release whose noise is negligible
MANY = 300  # members from which one history of each is enough
DIMENSIONS, INSTANCES, TARGETS, MEMBERS = (2, 4), 2, 4, 1000  # of the synthetic tables


def read_grounds(options: argparse.Namespace) -> Iterator[Ground]:
    """Create the tables or problems that were asked for."""
    if options.ground == "landmine":
        yield grounds.landmine(options.box, options.cache, options.jobs)
    elif options.ground == "har":
        yield grounds.har(options.box, options.cache, options.jobs)
    elif options.ground == "synthetic":
        tasks = max(options.members or [MEMBERS]) + 1
        for D in DIMENSIONS:
            for seed in range(INSTANCES):
                yield grounds.synthetic(D, seed, tasks=tasks)
    else:
        yield grounds.read_table(Path(options.ground))


# Releases


def planned(ground: Ground, epsilon: float, delta: float) -> fedbo.Federation:
    """Create the federation of a ground's tasks, with one release.

    An infinite ε is one with hardly any noise.
    """
    plan = Plan(epsilon=min(epsilon, HARDLY_ANY), delta=delta)
    return peers.federation(ground, DEFAULT(), plan)


def publish(
    agreed: fedbo.Federation,
    contributions: Sequence[fedbo.Message | None],
    noise: Sequence[int],
    history: int,
) -> Release:
    """Make one release.

    A contribution may be for a federation that differs in its plan; None is an empty one. ``noise``
    is the seed of the noise, and ``history`` the number of trials that each member has made.
    """
    own = bytes(agreed.fingerprint)
    moved = [message and replace(message, fingerprint=own) for message in contributions]
    trials, source = history * len(moved), Simulated(np.random.default_rng(noise))
    return release(agreed, moved, trials=trials, source=source)


def spent_by(epsilon: float, options: argparse.Namespace) -> float:
    """Return the ε that a release costs by the accountant; it depends on nothing but its plan."""
    plan = Plan(epsilon=epsilon, delta=options.delta)
    anything = fedbo.Federation({"x": fedbo.Float(0, 1)}, privacy=plan)
    return spent([publish(anything, [None], [0], options.history)])


# Runs


def play(
    ground: Ground,
    agreed: fedbo.Federation,
    contributions: Sequence[fedbo.Message | None],
    noise: Sequence[int],
    history: int,
    target: int,
    seed: int,
    trials: int,
) -> list[float]:
    """Run a newcomer that hears one release; return its scores.

    It has no common initial points: an agent that is given points would not begin at the votes.
    """
    agent = runs.site(ground, DEFAULT(), target, seed, None, agreed=agreed)
    agent.receive(publish(agreed, contributions, noise, history))
    return [score for _, score in evaluate(agent, ground, target, trials)]


def measure(ground: Ground, options: argparse.Namespace) -> Curves:
    """Compute regrets (targets, runs, trials) of EI alone and of all newcomers."""
    tasks = runs.targets(ground, options.targets)
    if options.ground == "synthetic":
        tasks = tasks[:TARGETS]
    seeds = options.seeds if max(sizes(ground, options)) < MANY else 1  # of histories
    by_seed = peers.histories(ground, options.jobs, seeds, trials=options.history)
    plan, plain = planned(ground, options.epsilon[0], options.delta), None
    if options.messages:
        plain = peers.federation(ground, DEFAULT())
    members = [peers.messages(plan, histories, h) for h, histories in enumerate(by_seed)]
    sent = [peers.messages(plain, histories, h) for h, histories in enumerate(by_seed) if plain]
    listed: list[Run] = []
    for seed in range(options.seeds):
        h = seed % len(by_seed)
        for target in tasks:
            heard = sent[h] if sent else []
            listed += _runs_on(ground, members[h], heard, target, seed, options)
    scores = runs.carry_out(ground, listed, options, ground.name)
    names = dict.fromkeys(run.arm for run in listed)
    return figures.regrets(ground, tasks, runs.curves(scores, names, tasks))


def _runs_on(
    ground: Ground,
    members: Sequence[fedbo.Message],
    sent: Sequence[fedbo.Message],
    target: int,
    seed: int,
    options: argparse.Namespace,
) -> Iterator[Run]:
    """Yield EI alone, and newcomers, on one target with one seed.

    Every task has contributed, and sent a message unless no newcomer hears messages.
    """
    trials, history = options.trials, options.history
    yield runs.solitary(ground, EI, target, seed, trials)
    for N in sizes(ground, options):
        met = peers.met(ground, target, seed, N)
        full: list[fedbo.Message | None] = [members[n] for n in met]
        heard = [(f"{epsilon:g}", epsilon, full) for epsilon in options.epsilon]
        if not options.no_null:
            heard += [(f"{NULL} {epsilon:g}", epsilon, [None] * N) for epsilon in _finite(options)]
        for name, epsilon, contributions in heard:
            agreed = planned(ground, epsilon, options.delta)
            for draw in range(options.draws):
                run = ([seed, draw], history, target, seed, trials)
                compute = partial(play, ground, agreed, contributions, *run)
                number, details = seed * options.draws + draw, (history, str(options.delta))
                yield Run(_arm(N, name), target, number, compute, (seed, draw, *details))
        if sent:
            received = [sent[n] for n in met]
            compute = partial(runs.play, ground, DEFAULT(), received, target, seed, trials)
            yield Run(_arm(N, MESSAGES), target, seed, compute, (history,))


def sizes(ground: Ground, options: argparse.Namespace) -> list[int]:
    """List the numbers of members that runs meet; all other tasks by default."""
    others = ground.tasks - 1
    if options.members and max(options.members) > others:
        raise terminal.refuse(
            f"--members has {max(options.members)}, but each of the {ground.tasks} tasks of "
            f"{ground.name} has {others} others"
        )
    return options.members or [others]


def _arm(N: int, heard: str) -> str:
    return f"{heard}, {N} members"


def _finite(options: argparse.Namespace) -> list[float]:
    return [epsilon for epsilon in options.epsilon if np.isfinite(epsilon)]


# Results


def summary(regret: Curves, N: int, options: argparse.Namespace) -> Figures:
    """Compute the ratios to all yardsticks, by what newcomers hear and the number of trials."""
    result: Figures = {key: {} for key in CAPTIONS}
    names = [*map("{:g}".format, options.epsilon), MESSAGES]
    for name in (name for name in names if _arm(N, name) in regret):
        own = regret[_arm(N, name)]
        yardsticks = {
            "ratio_ei": EI,
            "ratio_null": _arm(N, f"{NULL} {name}"),
            "ratio_inf": _arm(N, FREE),
            "ratio_messages": _arm(N, MESSAGES),
        }
        for key, arm in yardsticks.items():
            if arm in regret and arm != _arm(N, name) and not own.shape[1] % regret[arm].shape[1]:
                # what runs once for each seed is compared with each draw of noise
                other = np.repeat(regret[arm], own.shape[1] // regret[arm].shape[1], axis=1)
                result[key][name] = {
                    str(n): figures.ratio(own[..., n - 1], other[..., n - 1])
                    for n in counted(options.trials)
                }
    return {key: by_name for key, by_name in result.items() if by_name}


def show(result: Figures, title: str) -> None:
    """Print the figures that `summary` returned as tables."""
    for key, by_name in result.items():
        rows = [[name, *map(terminal.estimate, by_n.values())] for name, by_n in by_name.items()]
        at = [*next(iter(by_name.values()))]
        terminal.table(f"{title}: ratio to {CAPTIONS[key]}, 95 % interval", ["ε", *at], rows)


def main() -> None:
    """Run the command."""
    options = _parser().parse_args()
    curves: list[Curves] = []
    for ground in read_grounds(options):
        options.members = sizes(ground, options)
        curves.append(measure(ground, options))
    regret = {name: np.concatenate([part[name] for part in curves]) for name in curves[0]}
    title = options.ground if options.ground in NAMED else Path(options.ground).stem
    figures.warn_of_few(len(regret[EI]), title)
    by_members = {}
    for N in options.members:
        by_members[str(N)] = summary(regret, N, options)
        show(by_members[str(N)], f"{title}, {N} members, δ = {options.delta:g}")
    alone = regret[EI].mean(axis=(0, 1))
    result = {
        "members": by_members,
        "regret_ei": {str(n): alone[n - 1] for n in counted(options.trials)},
        "spent": {f"{epsilon:g}": spent_by(epsilon, options) for epsilon in _finite(options)},
        "ground": title,
        "box": options.box if options.ground in TRAINED else None,
        "targets": len(regret[EI]),
        "which": options.targets,
    }
    result |= {key: getattr(options, key) for key in ("seeds", "draws", "history", "delta")}
    terminal.finish(result, options.json)


def _parser() -> argparse.ArgumentParser:
    parser = terminal.contest_parser(__doc__, trials=20)
    add = parser.add_argument
    add("ground", metavar="GROUND", help=f"{', '.join(NAMED)}, or PATH.npz")
    text = "some of them may be inf; default: 2"
    add("--epsilon", type=terminal.positives, default=[2.0], metavar="A,B,...", help=text)
    add("--delta", type=float, default=1e-3, help="default: 0.001")
    text = "of noise, for each seed; default: 5"
    add("--draws", type=terminal.positive, default=5, metavar="N", help=text)
    text = "members that a run meets, chosen at random; default: all other tasks"
    add("--members", type=_counts, metavar="A,B,...", help=text)
    text = "trials of each member; default: 50"
    add("--history", type=terminal.positive, default=peers.HISTORY, metavar="T", help=text)
    add("--box", choices=("linear", "log"), default="linear", help="of landmine and har")
    add("--no-null", action="store_true", help="leave out the null, half of the time")
    add("--messages", action="store_true", help="also run newcomers that hear ordinary messages")
    return parser


def _counts(text: str) -> list[int]:
    return [terminal.positive(part) for part in text.split(",")]
