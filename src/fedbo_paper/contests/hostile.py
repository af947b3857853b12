"""The guard: what collaborating costs an agent whose peers are of no use, or mean it ill.

family      what the target receives
----------  --------------------------------------------------------------------------------------
unrelated   messages of peers whose functions have nothing to do with its own: independent ones, or
            on a real table the scores of other configurations, in another order for each peer
negated     messages of peers that maximise the negative of an honest peer's function
worst       messages that praise the target's worst point: a bump there
noise       random weights, as large as honest ones
half        messages of which a random half are negated, the others honest

Each on synthetic tasks (D = 1, 2, 4, 6: similar tasks, so that there is something to lose), on the
SVM table and on grids of the landmine fields in both boxes. The delay at n is how many evaluations
later than solo the default policy has the mean normalised regret that solo has after n; a regret
of 0.001 counts as none. Means are over targets and seeds.

    FEDBO_DATA=folder python benchmarks/hostile.py --json out.json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import fedbo
from fedbo_paper.contests import contest, families, paired, screen
from fedbo_paper.contests.contest import HISTORIES, SOLO, History
from fedbo_paper.contests.grounds import INITIAL, Listed, Trained, grid, read_table
from fedbo_paper.contests.screen import Call
from fedbo_paper.data import MissingData, find
from fedbo_paper.problems.problems import Landmine

Array = np.ndarray

HOSTILE = ("unrelated", "negated", "worst", "noise")
FAMILIES = (*HOSTILE, "half")
GROUNDS = ("synthetic", "svm", "landmine")
TABLE = "tst_svm_50x288.npz"
DIMENSIONS, INSTANCES, TASKS = (1, 2, 4, 6), 2, 12
AT = (5, 10, 20)
NOTHING = 0.001  # a regret that counts as none
BUMP = 0.2  # width of the bump at the worst point, of the cube's diagonal

AVERAGE, ANY, LATE, ENOUGH = 2.0, 4.0, 1.05, 0.005  # what is allowed: see `verdicts`


class Field(msgspec.Struct):
    """A table with the peers that a target may meet on it.

    ``group`` is the ground it counts for; ``unrelated`` (tasks, n) are scores that have nothing to
    do with its own.
    """

    group: str
    ground: Listed
    unrelated: Array

    def histories(self, jobs: int, seeds: int) -> dict[str, dict[int, list[History]]]:
        """What peers of each sort did alone, by history seed."""
        tables = {"honest": self.ground.Y, "negated": -self.ground.Y, "unrelated": self.unrelated}
        return {
            sort: contest.histories(
                Listed(self.ground.X, Y), jobs, f"{self.ground.name}, {sort}", seeds
            )
            for sort, Y in tables.items()
        }


def fields(options: argparse.Namespace) -> Iterator[Field]:
    """The grounds, one table at a time."""
    if "synthetic" in options.ground:
        for D in DIMENSIONS:
            for seed in range(INSTANCES):
                X, Y = families.make("similar", D, seed, tasks=TASKS)
                _, others = families.make("unrelated", D, seed, tasks=TASKS)
                yield Field("synthetic", Listed(X, Y, f"synthetic D = {D}"), others)
    if "svm" in options.ground:
        ground = read_table(options.table or find("tst_svm", [TABLE]))
        yield Field("svm", ground, _shuffled(ground.Y))
    if "landmine" in options.ground:
        for box in ("linear", "log"):
            trained = Trained(Landmine(box=box))
            X = grid(25, 2)
            trained.look_around(X, options.cache, options.jobs)
            ground = Listed(X, trained.survey, f"landmine {box}")
            yield Field(ground.name, ground, _shuffled(ground.Y))


def _shuffled(Y: Array) -> Array:
    return np.random.default_rng(0).permuted(Y, axis=1)


# Peers


def worst_praised(ground: Listed, target: int, seed: int) -> list[History]:
    """Of each task, trials of a bump at the target's worst point: half there, half anywhere."""
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
    """What each task's agent did before, in this family; the target's own is not used."""
    if family in ("unrelated", "negated"):
        return met[family]
    if family == "worst":
        return worst_praised(ground, target, seed)
    if family == "noise":
        return met["honest"]
    hostile = np.zeros(ground.tasks, dtype=bool)
    others = np.delete(np.arange(ground.tasks), target)
    hostile[np.random.default_rng([seed, target]).permutation(others)[: len(others) // 2]] = True
    return [met["negated" if bad else "honest"][task] for task, bad in enumerate(hostile.tolist())]


def only_noise(message: fedbo.Message, rng: np.random.Generator) -> fedbo.Message:
    """The message with random weights of the same norm instead of its own."""
    name = "omega" if message.kind == "weights" else "nu"
    omega = np.frombuffer(getattr(message.body, name), dtype="<f4").astype(float)
    random = rng.standard_normal(len(omega))
    random *= np.linalg.norm(omega) / np.linalg.norm(random)
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
    evaluations: int,
) -> tuple[int, dict[tuple[str, int], list[float]]]:
    """Scores of solo runs on one target, and of runs in each family, by family and seed."""
    history_seed = seeds[0] % HISTORIES
    make, kind = contest.POLICIES[policy]
    assert make is not None
    scores = {}
    for family in (SOLO, *names):
        if family == SOLO:
            agreed, arrived = contest.federation(ground.space, kind, []), []
        else:
            known = peers(family, ground, met, target, history_seed)
            others = [history for n, history in enumerate(known) if n != target]
            agreed = contest.federation(ground.space, kind, others)
            arrived = contest.messages(agreed, target, known, history_seed)
        if family == "noise":
            rng = np.random.default_rng([6, history_seed, target])
            arrived = [only_noise(message, rng) for message in arrived]
        playing = fedbo.TS() if family == SOLO else make()
        for seed in seeds:
            scores[family, seed] = contest.run(
                ground, agreed, playing, arrived, target, seed, evaluations
            )
    return target, scores


def measure(field: Field, policy: str, options: argparse.Namespace) -> contest.Curves:
    """Normalised regrets (targets, seeds, evaluations) of solo and of each family."""
    ground, seeds = field.ground, range(options.seeds)
    sorts = field.histories(options.jobs, min(HISTORIES, len(seeds)))
    tasks = contest.targets(ground, options.targets)
    groups = [[s for s in seeds if s % HISTORIES == h] for h in range(min(HISTORIES, len(seeds)))]
    calls: list[Call] = []
    for group in groups:
        met = {sort: known[group[0] % HISTORIES] for sort, known in sorts.items()}
        for target in tasks:
            given = (ground, met, options.family, policy, target, group, options.evaluations)
            calls.append((play, given, (1 + len(options.family)) * len(group)))
    scores: dict[tuple[int, str, int], list[float]] = {}
    for target, found in screen.work(ground.name, calls, options.jobs):
        scores |= {(target, *key): each for key, each in found.items()}
    curves = {
        family: np.array([[scores[target, family, seed] for seed in seeds] for target in tasks])
        for family in (SOLO, *options.family)
    }
    return contest.regrets(ground, tasks, curves)


# What came of it


def figures(regret: Array, solo: Array) -> dict[str, Any]:
    """Regrets, delays with their intervals, and ratios of a family on a ground."""
    evaluations = regret.shape[-1] - INITIAL
    at = [n for n in contest.AT if n <= evaluations]
    by_target, solo_by_target = regret.mean(axis=1), solo.mean(axis=1)
    mean, solo_mean = by_target.mean(axis=0), solo_by_target.mean(axis=0)
    W = paired.resamples(len(regret), n=500)
    result: dict[str, Any] = {"regret": {}, "solo": {}, "ratio": {}, "delay": {}, "reached": {}}
    for n in at:
        last = INITIAL + n - 1
        result["regret"][str(n)], result["solo"][str(n)] = float(mean[last]), float(solo_mean[last])
        result["ratio"][str(n)] = paired.ratio(regret[:, :, last], solo[:, :, last])
    for n in (n for n in AT if n <= evaluations):
        last = INITIAL + n - 1
        point, reached = paired.delay(mean, solo_mean, last, NOTHING)
        others = zip(W @ by_target, W @ solo_by_target, strict=True)
        samples = [paired.delay(a, b, last, NOTHING)[0] for a, b in others]
        result["delay"][str(n)] = [point, *np.quantile(samples, (0.025, 0.975)).tolist()]
        result["reached"][str(n)] = reached
    return result


def verdicts(results: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """What was promised, from figures by ground and family, and whether it holds."""
    hostile = {
        (ground, family): found
        for ground, by_family in results.items()
        for family, found in by_family.items()
        if family in HOSTILE
    }
    verdict: dict[str, Any] = {}
    if hostile:
        at = next(iter(hostile.values()))["delay"]
        means = {n: float(np.mean([f["delay"][n][0] for f in hostile.values()])) for n in at}
        delays = {(*key, n): found["delay"][n][0] for key, found in hostile.items() for n in at}
        longest = max(delays, key=delays.__getitem__)
        bounded = all(found["reached"][n] for found in hostile.values() for n in at)
        late = {
            key: found["ratio"]["50"][0]
            for key, found in hostile.items()
            if "50" in found["ratio"] and found["solo"]["50"] > ENOUGH
        }
        verdict["mean delay"] = {
            "values": means,
            "limit": AVERAGE,
            "holds": bounded and max(means.values()) <= AVERAGE,
        }
        verdict["longest delay"] = {
            "values": {" ".join(longest): delays[longest]},
            "limit": ANY,
            "holds": bounded and delays[longest] <= ANY,
        }
        verdict["ratio at 50"] = {
            "values": {" ".join(key): value for key, value in late.items() if value > LATE},
            "limit": LATE,
            "holds": all(value <= LATE for value in late.values()),
        }
    ahead = {
        f"{ground} {n}": by_family["half"]["ratio"][n][0]
        for ground, by_family in results.items()
        if "half" in by_family
        for n in ("10", "20")
        if n in by_family["half"]["ratio"]
    }
    if ahead:
        verdict["half hostile, ratio at 10 and 20"] = {
            "values": ahead,
            "limit": 1.0,
            "holds": all(value < 1 for value in ahead.values()),
        }
    return verdict


def show(results: dict[str, dict[str, dict[str, Any]]], title: str) -> None:
    """Regrets in one table, delays in another."""
    found = {
        f"{ground}, {family}": figures
        for ground, by_family in results.items()
        for family, figures in by_family.items()
    }
    at, delays = ([*next(iter(found.values()))[key]] for key in ("regret", "delay"))
    screen.table(
        f"{title}: mean regret of solo → in the family",
        ["ground, family", *at],
        [
            [name, *(f"{each['solo'][n]:.3f} → {each['regret'][n]:.3f}" for n in at)]
            for name, each in found.items()
        ],
    )
    screen.table(
        f"{title}: delay in evaluations, ratio to solo, 95 % intervals",
        ["ground, family", *(f"delay at {n}" for n in delays), f"ratio at {at[-1]}"],
        [
            [
                name,
                *(
                    ("" if each["reached"][n] else "≥ ") + screen.estimate(each["delay"][n], 1)
                    for n in delays
                ),
                screen.estimate(each["ratio"][at[-1]]),
            ]
            for name, each in found.items()
        ],
    )


def main() -> None:
    parser = contest.arguments(__doc__)
    parser.add_argument("--family", type=_some(FAMILIES), default=FAMILIES, metavar="A,B,...")
    parser.add_argument("--ground", type=_some(GROUNDS), default=GROUNDS, metavar="A,B,...")
    parser.add_argument("--policy", default=None, help="the default one unless told")
    parser.add_argument("--table", type=Path, help=f"instead of {TABLE} in the data folder")
    options = parser.parse_args()
    policy = options.policy or contest.default_policy(fedbo.Space({"x": fedbo.Float(0, 1)}))
    known = [name for name, (make, _) in contest.POLICIES.items() if make is not None]
    if policy not in known:
        raise screen.refuse(f"--policy is {policy!r}, expected one of {', '.join(known)}")
    groups: dict[str, list[contest.Curves]] = {}
    parts: dict[str, list[contest.Curves]] = {}
    try:
        for field in fields(options):
            curves = measure(field, policy, options)
            groups.setdefault(field.group, []).append(curves)
            if field.group != field.ground.name:
                parts.setdefault(field.ground.name, []).append(curves)
    except MissingData as error:
        raise screen.refuse(f"{error} Or choose others with --ground.") from None
    results, details = _all_figures(groups), _all_figures(parts)
    show(results, policy)
    if details:
        show(details, f"{policy}, synthetic tasks by dimension")
    verdict = verdicts(results)
    for name, found in verdict.items():
        values = ", ".join(f"{key}: {value:.2f}" for key, value in found["values"].items())
        limit = f"at most {found['limit']}" if found["limit"] != 1 else "below 1"
        holds = "holds" if found["holds"] else "DOES NOT HOLD"
        line = f"{name}, {limit}: {holds} ({values or 'all'})"
        screen.out.print(line, highlight=False, soft_wrap=True)
    contest.finish(
        {
            "default": policy,
            "grounds": results,
            "dimensions": details,
            "verdicts": verdict,
            "seeds": options.seeds,
        },
        options,
    )


def _all_figures(groups: dict[str, list[contest.Curves]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Figures by ground and family; tables of one ground are taken together."""
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for name, curves in groups.items():
        together = {key: np.concatenate([each[key] for each in curves]) for key in curves[0]}
        results[name] = {
            family: figures(regret, together[SOLO])
            for family, regret in together.items()
            if family != SOLO
        }
    return results


def _some(known: Sequence[str]) -> Any:
    def read(text: str) -> tuple[str, ...]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"{unknown[0]!r} is unknown, expected some of {', '.join(known)}"
            )
        return tuple(name for name in known if name in text.split(","))

    return read
