"""Measure what collaboration costs an agent whose peers are useless or hostile.

family      messages that the target receives
----------  --------------------------------------------------------------------------------------
unrelated   from peers whose functions have nothing in common with its own; on a real table, each
            peer has the scores of the configurations in another order
negated     from peers that maximise the negative of an honest peer's function
worst       from peers that praise the target's worst point: their function is a bump there
noise       random weights, with the norms of honest ones
half        a random half is from negated peers, the other half is honest

Each family is run on synthetic tasks (D = 1, 2, 4, 6; similar tasks, so that honest peers would
help), on the SVM table, and on grids of the landmine fields in both boxes. The delay at n says how
many trials later than EI alone the default policy reaches the mean normalised regret that EI
alone has after n. A regret of 0.001 counts as 0. Means are over targets and seeds.

In the JSON, `grounds` has the figures of each ground and family: `regret` with these peers;
`solo_ei`, the regret of EI alone; `ratio_ei`, the ratio to it; `delay` behind EI alone; `reached`,
which is false where that delay is only a lower bound. `runs` has the regret of every run: for each
ground and each family, and for EI alone, targets x seeds x trials, rounded to 6 digits.

    FEDBO_DATA=folder python benchmarks/hostile.py --json out.json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

import fedbo
from fedbo.message.compact import Compact
from fedbo.message.message import Body
from fedbo.model.summary import quantise
from fedbo_paper.contests import contest, families, measures, options, screen
from fedbo_paper.contests.contest import EI, History, Scores
from fedbo_paper.contests.grounds import Listed, Trained, grid, read_table
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.summary import AT, runs, warn_of_few
from fedbo_paper.data import find
from fedbo_paper.harness.intervals import TAILS, Effect, Floats, resamples
from fedbo_paper.problems.problems import Landmine

Figures = dict[str, Any]
Results = dict[str, dict[str, Figures]]  # by ground and family
Box = Literal["linear", "log"]

HOSTILE = ("unrelated", "negated", "worst", "noise")
FAMILIES = (*HOSTILE, "half")
GROUNDS = ("synthetic", "svm", "landmine")
TABLE = "tst_svm_50x288.npz"
DIMENSIONS, INSTANCES, TASKS = (1, 2, 4, 6), 2, 12
DELAYS = (5, 10, 20)  # trials at which delays are measured
ZERO = 0.001  # a regret that counts as 0
BUMP = 0.2  # width of the bump at the worst point, as a fraction of the cube's diagonal
RESAMPLES = 500  # for the interval of a delay

# The limits in `verdicts`: the mean delay, any delay, and the ratio to the regret of EI alone at 50
# where that regret is larger than ENOUGH
AVERAGE, ANY, LATE, ENOUGH = 2.0, 4.0, 1.05, 0.005


class Field(NamedTuple):
    """A table, and scores (tasks, n) of tasks that have nothing in common with it.

    ``group`` is the ground that the table belongs to.
    """

    group: str
    ground: Listed
    unrelated: Floats


def fields(given: argparse.Namespace) -> Iterator[Field]:
    """Create the tables of all selected grounds, one after another."""
    if "synthetic" in given.ground:
        for D in DIMENSIONS:
            for seed in range(INSTANCES):
                X, Y = families.make("similar", D, seed, tasks=TASKS)
                _, others = families.make("unrelated", D, seed, tasks=TASKS)
                yield Field("synthetic", Listed(X, Y, f"synthetic D = {D}"), others)
    if "svm" in given.ground:
        ground = read_table(given.table or find("tst_svm", [TABLE]))
        yield Field("svm", ground, shuffled(ground.Y))
    if "landmine" in given.ground:
        boxes: tuple[Box, ...] = ("linear", "log")
        for box in boxes:
            ground = landmine_grid(box, given.cache, given.jobs)
            yield Field(ground.name, ground, shuffled(ground.Y))


def landmine_grid(box: Box, cache: Path, jobs: int) -> Listed:
    """Create the ground of the landmine fields on a grid of a box.

    Args:
        box: The box.
        cache: Folder where the scores are kept.
        jobs: Number of processes.
    """
    X = grid(25, 2)
    return Listed(X, Trained(Landmine(box=box), X, cache, jobs).survey, f"landmine {box}")


def shuffled(Y: Floats) -> Floats:
    """Give each task the scores of the configurations in another order.

    Args:
        Y: Scores (tasks, n).
    """
    return np.random.default_rng(0).permuted(Y, axis=1)


# Peers


def worst_praised(ground: Listed, target: int, seed: int) -> list[History]:
    """Create trials of a bump at the target's worst point: half near it, half anywhere."""
    n, D = ground.X.shape
    distance2 = ((ground.X - ground.X[ground.Y[target].argmin()]) ** 2).sum(axis=1)
    bump = np.exp(-distance2 / (2 * D * BUMP**2))
    near = np.argsort(distance2, kind="stable")[: contest.HISTORY // 2]
    known = []
    for task in range(ground.tasks):
        rng = np.random.default_rng([seed, target, task])
        far = rng.choice(n, min(n, contest.HISTORY - len(near)), replace=False)
        rows = np.unique([*near, *far]).tolist()
        known.append([(ground.params(row), float(bump[row])) for row in rows])
    return known


def peers(
    family: str, ground: Listed, met: dict[str, list[History]], target: int, seed: int
) -> list[History]:
    """Return the history of each task's agent in a family; the target's own is not used."""
    if family in ("unrelated", "negated"):
        return met[family]
    if family == "worst":
        return worst_praised(ground, target, seed)
    if family == "noise":
        return met["honest"]
    others = np.delete(np.arange(ground.tasks), target)
    hostile = np.random.default_rng([seed, target]).permutation(others)[: len(others) // 2]
    return [met["negated" if task in hostile else "honest"][task] for task in range(ground.tasks)]


def only_noise(message: fedbo.Message, rng: np.random.Generator) -> fedbo.Message:
    """Replace the weights of a message by random ones with the same norm."""
    name = "omega" if message.kind == "weights" else "nu"
    norm = np.linalg.norm(getattr(message, name).astype(float))
    random = rng.standard_normal(message.M)
    if message.kind == "compact":
        levels, _ = quantise(random[None], rng)
        step = float(norm / np.linalg.norm(levels))
        body: Body = Compact.pack(levels[0] if step else 0 * levels[0], step, message.counts, b"")
        return msgspec.structs.replace(message, body=body)
    random *= norm / np.linalg.norm(random)
    body = msgspec.structs.replace(message.body, **{name: random.astype("<f4").tobytes()})
    return msgspec.structs.replace(message, body=body)


# Runs


def play(
    ground: Listed,
    met: dict[str, list[History]],
    names: Sequence[str],
    policy: str,
    target: int,
    seeds: Sequence[int],
    trials: int,
) -> Scores:
    """Run EI alone, and the policy in each family, on one target with seeds of one group."""
    scores: Scores = {}
    for family in (EI, *names):
        playing = contest.POLICIES[EI if family == EI else policy]()
        arrived: list[fedbo.Message] = []
        if family != EI:
            known = peers(family, ground, met, target, seeds[0])
            agreed = contest.federation(ground, playing)
            arrived = contest.messages(agreed, target, known, seeds[0])
        if family == "noise":
            rng = np.random.default_rng([6, seeds[0], target])
            arrived = [only_noise(message, rng) for message in arrived]
        for seed in seeds:
            scores[family, target, seed] = contest.run(
                ground, playing, arrived, target, seed, trials
            )
    return scores


def measure(field: Field, policy: str, given: argparse.Namespace) -> Curves:
    """Compute normalised regrets (targets, seeds, trials), alone and in each family."""
    ground = field.ground
    tables = {"honest": ground.Y, "negated": -ground.Y, "unrelated": field.unrelated}
    histories = {
        sort: contest.histories(
            Listed(ground.X, Y), given.jobs, given.seeds, f"{ground.name}, {sort}"
        )
        for sort, Y in tables.items()
    }
    tasks = contest.targets(ground, given.targets)
    calls = []
    for h, group in enumerate(contest.groups(given.seeds)):
        met = {sort: known[h] for sort, known in histories.items()}
        calls += [
            partial(play, ground, met, given.family, policy, target, group, given.trials)
            for target in tasks
        ]
    scores = screen.work(ground.name, calls, given.jobs)
    return measures.regrets(ground, tasks, contest.curves(scores, (EI, *given.family), tasks))


# Results


def figures(regret: Floats, ei: Floats) -> Figures:
    """Compute the regrets, ratios and delays of a family on a ground.

    Args:
        regret: Regrets (targets, seeds, trials) in the family.
        ei: Those of EI alone.
    """
    trials = regret.shape[-1]
    by_target, ei_by_target = regret.mean(axis=1), ei.mean(axis=1)
    mean, ei_mean = by_target.mean(axis=0), ei_by_target.mean(axis=0)
    W = resamples(len(regret), RESAMPLES)
    result: Figures = {key: {} for key in ("regret", "solo_ei", "ratio_ei", "delay", "reached")}
    for n in (n for n in AT if n <= trials):
        result["regret"][str(n)] = float(mean[n - 1])
        result["solo_ei"][str(n)] = float(ei_mean[n - 1])
        result["ratio_ei"][str(n)] = measures.ratio(regret[:, :, n - 1], ei[:, :, n - 1])
    for n in (n for n in DELAYS if n <= trials):
        value, reached = measures.delay(mean, ei_mean, n - 1, ZERO)
        samples = [
            measures.delay(a, b, n - 1, ZERO)[0]
            for a, b in zip(W @ by_target, W @ ei_by_target, strict=True)
        ]
        low, high = np.quantile(samples, TAILS).tolist()
        result["delay"][str(n)] = Effect(value, low, high, len(regret))
        result["reached"][str(n)] = reached
    return result


def verdicts(results: Results) -> Figures:
    """Decide whether delays and ratios, those to EI alone, stay within their limits."""
    found: Figures = {}
    hostile = {key: each for key, each in _flat(results).items() if key[1] in HOSTILE}
    if hostile:
        at = next(iter(hostile.values()))["delay"]
        means = {n: float(np.mean([f["delay"][n].value for f in hostile.values()])) for n in at}
        delays = {(*key, n): each["delay"][n].value for key, each in hostile.items() for n in at}
        longest = max(delays, key=delays.__getitem__)
        bounded = all(each["reached"][n] for each in hostile.values() for n in at)
        late = {
            " ".join(key): each["ratio_ei"]["50"].value
            for key, each in hostile.items()
            if "50" in each["ratio_ei"] and each["solo_ei"]["50"] > ENOUGH
        }
        above = {key: value for key, value in late.items() if value > LATE}
        found["mean delay"] = _verdict(means, AVERAGE, bounded and max(means.values()) <= AVERAGE)
        found["longest delay"] = _verdict(
            {" ".join(longest): delays[longest]}, ANY, bounded and delays[longest] <= ANY
        )
        found["ratio at 50"] = _verdict(above, LATE, all(r <= LATE for r in late.values()))
    ahead = {
        f"{ground} {n}": each["ratio_ei"][n].value
        for (ground, family), each in _flat(results).items()
        for n in ("10", "20")
        if family == "half" and n in each["ratio_ei"]
    }
    if ahead:
        holds = all(ratio < 1 for ratio in ahead.values())
        found["half hostile, ratio at 10 and 20"] = _verdict(ahead, 1.0, holds)
    return found


def _verdict(values: dict[str, float], limit: float, holds: bool) -> Figures:
    return {"values": values, "limit": limit, "holds": holds}


def _flat(results: Results) -> dict[tuple[str, str], Figures]:
    return {
        (ground, family): each
        for ground, by_family in results.items()
        for family, each in by_family.items()
    }


def show(results: Results, title: str) -> None:
    """Print regrets in one table and delays in another."""
    found = {f"{ground}, {family}": each for (ground, family), each in _flat(results).items()}
    at, delays = ([*next(iter(found.values()))[key]] for key in ("regret", "delay"))
    screen.table(
        f"{title}: mean regret of EI alone → with these peers",
        ["ground, family", *at],
        [
            [name, *(f"{each['solo_ei'][n]:.3f} → {each['regret'][n]:.3f}" for n in at)]
            for name, each in found.items()
        ],
    )
    rows = []
    for name, each in found.items():
        late = [
            ("" if each["reached"][n] else "≥ ") + screen.estimate(each["delay"][n], 1)
            for n in delays
        ]
        rows.append([name, *late, *(screen.estimate(each["ratio_ei"][n]) for n in at[-2:])])
    screen.table(
        f"{title}: delay in trials behind EI alone, and ratio to its regret, 95 % intervals",
        [
            "ground, family",
            *(f"delay at {n}" for n in delays),
            *(f"ratio at {n}" for n in at[-2:]),
        ],
        rows,
    )


def show_verdicts(found: Figures) -> None:
    """Print one line for each verdict."""
    for name, each in found.items():
        values = ", ".join(f"{key}: {value:.2f}" for key, value in each["values"].items())
        limit = f"at most {each['limit']}" if each["limit"] != 1 else "below 1"
        holds = "holds" if each["holds"] else "DOES NOT HOLD"
        line = f"{name}, {limit}: {holds} ({values or 'all'})"
        screen.out.print(line, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    for name, known in (("--family", FAMILIES), ("--ground", GROUNDS)):
        text = f"some of {', '.join(known)}; default: all"
        parser.add_argument(
            name, type=options.some(known), default=known, metavar="A,B,...", help=text
        )
    parser.add_argument(
        "--policy",
        choices=[*contest.POLICIES],
        default=contest.default_policy(),
        help="default: the default policy of an agent",
    )
    parser.add_argument(
        "--table", type=Path, help=f"the SVM table; default: {TABLE} in the data folder"
    )
    given = parser.parse_args()
    groups: dict[str, list[Curves]] = {}
    parts: dict[str, list[Curves]] = {}
    for field in fields(given):
        curves = measure(field, given.policy, given)
        groups.setdefault(field.group, []).append(curves)
        if field.group != field.ground.name:
            parts.setdefault(field.ground.name, []).append(curves)
    together = {name: _joined(curves) for name, curves in groups.items()}
    for name, curves in together.items():
        warn_of_few(len(curves[EI]), name)
    results = _all_figures(together)
    details = _all_figures({name: _joined(curves) for name, curves in parts.items()})
    show(results, given.policy)
    if details:
        show(details, f"{given.policy}, synthetic tasks by dimension")
    verdict = verdicts(results)
    show_verdicts(verdict)
    screen.finish(
        {
            "default": given.policy,
            "grounds": results,
            "dimensions": details,
            "verdicts": verdict,
            "seeds": given.seeds,
            "runs": {name: runs(curves) for name, curves in together.items()},
        },
        given.json,
    )


def _joined(tables: list[Curves]) -> Curves:
    """Take the targets of a ground's tables together."""
    return {key: np.concatenate([each[key] for each in tables]) for key in tables[0]}


def _all_figures(grounds: dict[str, Curves]) -> Results:
    """Compute figures by ground and family."""
    return {
        name: {
            family: figures(regret, curves[EI]) for family, regret in curves.items() if family != EI
        }
        for name, curves in grounds.items()
    }
