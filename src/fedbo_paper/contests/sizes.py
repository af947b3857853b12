"""Measure how small a message can be: regret against bytes.

Each task in turn is the target, and all other tasks are its peers, which have made 50 evaluations
alone. PTS runs on the same messages in several forms: a summary in float32; its mean rounded to
fewer bits, with counts of trials in place of the covariance; and these counts on coarser scales.
In the form "4/2", which agents send, a number of the mean has 4 bits, and a count has 2. All forms
of a peer's message have the same noise, and all runs on a target the same initial points and seeds.
Two references have other messages or none: weights, and expected improvement alone (EI).

Reported is the ratio of the mean regret to that with summaries in float32, at 5, 10 and 20
evaluations after the 3 initial points and on average over the first 20, with 95 % intervals over
targets. A form is chosen on the even tasks, and its figures are those of the odd ones. The choice
is the smallest form whose geometric mean of the ratios at 5, 10 and 20 is at most 1.02 on every
ground. In the JSON, `grounds` has for each ground the `bytes` of a body and the `ratio` of each
form, by targets and evaluations, and the `runs`, whose keys summary.py explains; `pooled` has the
geometric means of the ratios over all grounds.

    FEDBO_DATA=folder python benchmarks/bytes.py TABLE.npz --box both --json bytes.json
    python benchmarks/picture.py docs/transfer --bytes bytes.json
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

import fedbo
from fedbo.message.message import Header
from fedbo.model.compact import expand, quantise
from fedbo.model.linear import Posterior, Regression
from fedbo.model.summary import summarise
from fedbo_paper.contests import contest, landmine, measures, options, screen
from fedbo_paper.contests.contest import EI, AmongDraws, History, Scores
from fedbo_paper.contests.grounds import INITIAL, Ground, read_table
from fedbo_paper.contests.summary import runs, warn_of_few
from fedbo_paper.harness.intervals import RESAMPLES, TAILS, Effect, Floats, resamples

SUMMARY, WEIGHTS = "summary", "weights"
AT = (5, 10, 20)  # evaluations after the initial points
PARITY = ("even", "odd")  # tasks for choosing and for reporting
MEAN = "1-20"  # of the regrets after so many evaluations
LIMIT = 1.02  # a form with at most this ratio costs too little to matter
_AROUND = 20  # bytes of a compact body beside the levels and the counts

#: What a count of so many bits can be.
STEPS = {
    2: np.array([0, 1, 2, 4]),
    4: np.array([0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181]),
    8: np.arange(256),
}


class Form(NamedTuple):
    """How many bits the numbers of a message have."""

    mean: int
    counts: int

    def nbytes(self, k: int, cells: int) -> int:
        """Return the bytes of a body with k coordinates and so many cells."""
        return _AROUND + math.ceil((k * self.mean + cells * self.counts) / 8)


#: By name: the bits of a number of the mean, and those of a count.
FORMS = {
    "8/8": Form(8, 8),
    "6/8": Form(6, 8),
    "4/8": Form(4, 8),
    "3/8": Form(3, 8),
    "2/8": Form(2, 8),
    "4/4": Form(4, 4),
    "4/2": Form(4, 2),
    "2/2": Form(2, 2),
}
SENT = "4/2"  # by agents
NAMES = (SUMMARY, *FORMS, WEIGHTS, EI)


def coarse(counts: NDArray[np.intp], bits: int) -> NDArray[np.intp]:
    """Return the counts that a receiver knows: each is the step nearest in ratio, 0 only for 0.

    >>> coarse(np.array([0, 1, 3, 5, 300]), 2).tolist(), coarse(np.array([0, 5, 300]), 8).tolist()
    ([0, 1, 4, 4, 4], [0, 5, 255])
    """
    if bits == 8:
        return np.minimum(counts, 255)
    some = np.log(np.maximum(counts, 1))[:, None] - np.log(STEPS[bits][1:])
    return np.where(counts > 0, STEPS[bits][1:][np.abs(some).argmin(axis=1)], 0)


class Sender(NamedTuple):
    """A peer: the points of its trials, and what it believes."""

    X: Floats
    belief: Posterior


def sender(agreed: fedbo.Federation, history: History) -> Sender:
    """Return the peer with this history."""
    X = np.array([agreed.space.encode(params) for params, _ in history])
    regression = Regression(agreed.phi, agreed.noise_variance)
    regression.add(X)
    z = fedbo.Settings().scores(np.array([score for _, score in history])).z
    return Sender(X, regression.posterior(z))


def written(
    agreed: fedbo.Federation, peer: Sender, task: int, seed: int, form: Form | None
) -> fedbo.Message:
    """Return what a receiver makes of a peer's message, as a summary.

    Args:
        agreed: A federation of summaries.
        peer: The peer.
        task: Its task.
        seed: Seed of the noise, which is the same for all forms.
        form: The form of the message; None for float32.
    """
    rng, counts = np.random.default_rng([5, seed, task]), agreed.counts(peer.X)
    if form is not None:
        counts = coarse(counts, form.counts)
    G = agreed.known_of(counts)
    m, C = summarise(peer.belief, G, agreed.basis.vectors, rng)
    if form is not None:
        levels, scales = quantise(m[None], rng, form.mean)
        (m,), (known,) = expand(levels, scales, G[None])
        C = np.eye(len(m)) - known
    header: Header = {
        "fingerprint": agreed.fingerprint,
        "epoch": agreed.epoch,
        "sender": f"task-{task}",
        "sequence": len(peer.X),
        "t_n": len(peer.X),
    }
    return fedbo.Message.of_summary(m, C, **header)


def play(
    ground: Ground,
    known: Sequence[History],
    target: int,
    seeds: Sequence[int],
    evaluations: int,
    names: Sequence[str] = NAMES,
    most: int | None = None,
) -> Scores:
    """Run PTS on one target with several forms of its peers' messages, and EI alone.

    Args:
        ground: The tasks.
        known: The history of each task's agent.
        target: The task.
        seeds: The seeds of the runs.
        evaluations: Evaluations after the initial points.
        names: The forms; all by default.
        most: How many peers a run meets; all by default.
    """
    agreed = fedbo.Federation(ground.space, kind="summary", format=1)
    met = {seed: contest.peers(ground, target, seed, most) for seed in seeds}
    peers = {n: sender(agreed, known[n]) for n in {n for others in met.values() for n in others}}
    scores: Scores = {}
    for name, seed in product(names, seeds):
        others, policy = met[seed], cast("fedbo.Policy", fedbo.PTS())
        there, received = agreed, list[fedbo.Message]()
        if name == EI:
            policy = fedbo.EI()
        elif name == WEIGHTS:
            policy = AmongDraws()
            there = contest.federation(ground, policy)
            received = [contest.message(there, n, known[n], seed) for n in others]
        else:
            form = FORMS.get(name)
            received = [written(agreed, peers[n], n, seed, form) for n in others]
        first = ground.initial(target, seed)
        initial = first[: policy.starts(len(first), len(received))]
        agent = contest.started(ground, policy, target, seed, initial, agreed=there)
        agent.receive(received)
        found = contest.evaluate(agent, ground, target, len(first) + evaluations)
        scores[name, target, seed] = [score for _, score in found]
    return scores


def body_bytes(ground: Ground) -> dict[str, int]:
    """Return how many bytes the body of each message has."""
    agreed = fedbo.Federation(ground.space, kind="summary", format=1)
    k, cells = len(agreed.basis), len(agreed.cells)
    header: Any = {"fingerprint": bytes(16), "epoch": 0, "sender": "a", "sequence": 1, "t_n": 1}
    summary = fedbo.Message.of_summary(np.zeros(k), np.eye(k), **header)
    weights = fedbo.Message.of_weights(np.zeros(agreed.features), **header)
    return {
        SUMMARY: len(msgspec.msgpack.encode(summary.body)),
        **{name: form.nbytes(k, cells) for name, form in FORMS.items()},
        WEIGHTS: len(msgspec.msgpack.encode(weights.body)),
        EI: 0,
    }


def hold(ground: Ground, title: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run everything on one ground, print its tables, and return its figures."""
    tasks = contest.targets(ground, given.targets)
    warn_of_few(len(tasks), title)
    known = contest.histories(ground, given.jobs, given.seeds, evaluations=given.history)
    names = [name for name in NAMES if name == SUMMARY or name in given.forms]
    calls = [
        partial(play, ground, known[h], target, seeds, given.evaluations, names, given.peers)
        for h, seeds in enumerate(contest.groups(given.seeds))
        for target in tasks
    ]
    found = contest.curves(screen.work(title, calls, given.jobs), names, tasks)
    regret = measures.regrets(ground, tasks, found)
    sizes, ratios = body_bytes(ground), figures(regret, tasks)
    show(title, sizes, ratios)
    return {
        "bytes": sizes,
        "ratio": ratios,
        "regret": {
            name: {at: float(found.mean()) for at, found in moments(each).items()}
            for name, each in regret.items()
        },
        "targets": tasks,
        "seeds": given.seeds,
        "peers": given.peers or ground.tasks - 1,
        "history": given.history,
        "runs": runs(regret),
    }


def moments(regret: Floats) -> dict[str, Floats]:
    """Return the regrets (targets, seeds) after 5, 10 and 20 evaluations, and their mean until 20.

    Args:
        regret: (targets, seeds, evaluations), those of the initial points included.
    """
    after = regret[:, :, INITIAL : INITIAL + max(AT)]
    return {
        **{str(n): after[:, :, n - 1] for n in AT if n <= after.shape[2]},
        MEAN: after.mean(axis=2),
    }


def figures(regret: measures.Curves, tasks: Sequence[int]) -> dict[str, Any]:
    """Return the ratios to summaries in float32, by form, targets and evaluations."""
    rows = {
        which: [i for i, task in enumerate(tasks) if which in ("all", PARITY[task % 2])]
        for which in (*PARITY, "all")
    }
    reference = moments(regret[SUMMARY])
    return {
        name: {
            which: {
                at: measures.ratio(each[some], reference[at][some])
                for at, each in moments(values).items()
            }
            for which, some in rows.items()
            if some
        }
        for name, values in regret.items()
    }


def show(title: str, sizes: dict[str, int], ratios: dict[str, Any]) -> None:
    """Print one table for even tasks, one for odd ones and one for all."""
    for which in (*PARITY, "all"):
        found = {name: by[which] for name, by in ratios.items() if which in by}
        if not found:
            continue
        at = [*found[SUMMARY]]
        rows = [
            [name, str(sizes[name]), *(screen.estimate(by[n], 3) for n in at)]
            for name, by in found.items()
        ]
        screen.table(
            f"{title}, {which} tasks: ratio of regret to summaries in float32, 95 % interval",
            ["message", "bytes", *at],
            rows,
        )


def pooled(found: dict[str, Any], name: str, which: str) -> dict[str, Effect]:
    """Return the geometric means over grounds of the ratios of a form, by evaluations.

    The boxes of landmine have the same fields, so a resample has the same fields in both.

    Args:
        found: The figures of each ground.
        name: The form.
        which: The targets: "even", "odd" or "all".
    """
    values: dict[str, list[float]] = {}
    samples: dict[str, list[Floats]] = {}
    targets = 0
    for ground in found.values():
        some = [i for i, n in enumerate(ground["targets"]) if which in ("all", PARITY[n % 2])]
        W = resamples(len(some))[np.random.default_rng(len(some)).permutation(RESAMPLES)]
        form, reference = (moments(np.array(ground["runs"][each])) for each in (name, SUMMARY))
        targets += len(some)
        for at in form:
            a, b = (each[at][some].mean(axis=1) for each in (form, reference))
            values.setdefault(at, []).append(float(np.log(a.mean() / b.mean())))
            samples.setdefault(at, []).append(np.log((W @ a) / (W @ b)))
    effects = {}
    for at, found_there in values.items():
        low, high = np.exp(np.quantile(np.mean(samples[at], axis=0), TAILS)).tolist()
        effects[at] = Effect(float(np.exp(np.mean(found_there))), low, high, targets)
    return effects


def chosen(found: dict[str, Any]) -> str:
    """Return the smallest form that costs little on the even tasks of every ground.

    Args:
        found: The figures of each ground.
    """
    sizes = next(iter(found.values()))["bytes"]
    cheap = [name for name in FORMS if all(_cost(each, name) <= LIMIT for each in found.values())]
    return min(cheap or [*FORMS][:1], key=lambda name: int(sizes[name]))


def _cost(ground: dict[str, Any], name: str) -> float:
    """Return the geometric mean of the ratios of a form on even tasks."""
    ratios = [ground["ratio"][name]["even"][str(n)].value for n in AT]
    return float(np.exp(np.mean(np.log(ratios))))


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    parser.add_argument("path", type=Path, metavar="TABLE.npz", nargs="?")
    text = "forms to compare with summaries in float32; default: all"
    parser.add_argument("--forms", type=options.some(NAMES), default=NAMES, help=text)
    parser.add_argument("--box", choices=("linear", "log", "both", "none"), default="both")
    parser.set_defaults(evaluations=max(AT), policies=None, listed=False)
    options.add_peers(parser)
    given = options.read(parser)
    if given.together:
        parser.error("--together is not possible here: forms are compared with peers that have run")
    found: dict[str, Any] = {}
    if given.path is not None:
        found["svm"] = hold(read_table(given.path), given.path.stem, given)
    for box in ("linear", "log"):
        if given.box in (box, "both"):
            found[box] = hold(landmine.ground(box, given), f"landmine, {box} box", given)
    if found and given.targets != "odd" and {*FORMS} <= {*given.forms}:
        screen.say(f"The choice of the even tasks: {chosen(found)}")
    together: dict[str, Any] = {}
    if len(found) > 1:
        parities = {PARITY[n % 2] for ground in found.values() for n in ground["targets"]}
        together = {
            name: {which: pooled(found, name, which) for which in sorted(parities)}
            for name in next(iter(found.values()))["ratio"]
        }
        rows = [
            [name, which, *(screen.estimate(each, 3) for each in by.values())]
            for name, by_targets in together.items()
            for which, by in by_targets.items()
        ]
        title = "all grounds, geometric mean of these ratios, 95 % interval"
        screen.table(title, ["message", "tasks", *map(str, AT), MEAN], rows)
    screen.finish({"grounds": found, "pooled": together}, given.json)
