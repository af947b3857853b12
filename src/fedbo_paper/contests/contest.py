"""The contest: each task in turn is the target, all others are its peers, and policies compete.

Peers have worked alone before: 50 evaluations of solo Thompson sampling each, from which they hand
out messages of the kind that a policy wants. Every run of a target starts at the same 3 points; a
policy that chooses its first points itself gets only those that it wants, and is compared at the
same total number of evaluations.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo_paper.contests import outside, paired
from fedbo_paper.contests.grounds import INITIAL, Listed, Params, Trained, remember, remembered
from fedbo_paper.contests.screen import Call, estimate, number, refuse, say, table, work, write_json
from fedbo_paper.data.places import user_folder

Array = np.ndarray
Ground = Listed | Trained
History = list[tuple[Params, float]]
Curves = dict[str, Array]  # by policy: (targets, seeds, evaluations)

AT = (5, 10, 20, 50)  # evaluations after the initial ones
HISTORY = 50  # evaluations of a peer
HISTORIES = 3  # of each peer; seeds take turns with them
SOLO = "TS"

#: Policies by name, with the kind of message that they want; None where the library has none.
POLICIES: dict[str, tuple[Callable[[], fedbo.Policy] | None, str]] = {
    SOLO: (fedbo.TS, "weights"),
    "FTS": (fedbo.FTS, "weights"),
    "RGPE": (fedbo.RGPE, "belief"),
    "TAF": (fedbo.TAF, "belief+incumbent"),
    "PTS": (getattr(fedbo, "PTS", None), "weights"),
}
RANDOM = "random"


def federation(space: fedbo.Space, kind: str, peers: Sequence[History]) -> fedbo.Federation:
    """What the agents agree on, from what the peers have seen: the only place that decides it."""
    return fedbo.Federation(space, kind=kind)


def default_policy(space: fedbo.Space) -> str:
    """The name of the policy that an agent has unless told otherwise."""
    return type(fedbo.Agent(federation(space, "weights", [])).policy).__name__


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1)[0])


# What peers did before, and their messages


def alone(ground: Ground, task: int, seed: int) -> History:
    """What a peer did: a default agent alone, that is, with solo Thompson sampling."""
    agent = fedbo.Agent(
        federation(ground.space, "weights", []),
        fedbo.TS(),
        name=f"task-{task}",
        seed=_seed(1, seed, task),
    )
    for _ in range(HISTORY):
        trial = agent.ask()
        agent.tell(trial, ground.score(task, trial.params))
    return [(trial.params, trial.score) for trial in agent.trials]


def _alone(ground: Ground, task: int, seed: int) -> tuple[int, int, History]:
    return task, seed, alone(ground, task, seed)


def histories(
    ground: Ground, jobs: int, stage: str = "peers alone", seeds: int = HISTORIES
) -> dict[int, list[History]]:
    """By seed, what each task's agent did alone."""
    calls: list[Call] = [
        (_alone, (ground, task, seed), 1) for seed in range(seeds) for task in range(ground.tasks)
    ]
    found = {(seed, task): history for task, seed, history in work(stage, calls, jobs)}
    return {seed: [found[seed, task] for task in range(ground.tasks)] for seed in range(seeds)}


def message(agreed: fedbo.Federation, task: int, history: History, seed: int) -> fedbo.Message:
    """What a peer with this history hands out."""
    policy = fedbo.TS()
    agent = fedbo.Agent(agreed, policy, name=f"task-{task}", seed=_seed(2, seed, task))
    for params, score in history:
        agent.tell(params, score)
    return agent.message()


def messages(
    agreed: fedbo.Federation, target: int, known: Sequence[History], seed: int
) -> list[fedbo.Message]:
    """The messages of all tasks but the target."""
    return [message(agreed, n, known[n], seed) for n in range(len(known)) if n != target]


# Runs


def run(
    ground: Ground,
    agreed: fedbo.Federation,
    policy: fedbo.Policy,
    received: Sequence[fedbo.Message],
    target: int,
    seed: int,
    evaluations: int,
) -> list[float]:
    """The scores of one run, the initial ones first."""
    first = ground.initial(target, seed)
    starts = getattr(policy, "starts", lambda n_initial, messages: n_initial)
    agent = fedbo.Agent(
        agreed,
        policy,
        name="target",
        seed=_seed(3, seed, target),
        initial=first[: starts(len(first), len(received))],
    )
    agent.receive(received)
    for _ in range(len(first) + evaluations):
        trial = agent.ask()
        agent.tell(trial, ground.score(target, trial.params))
    return [trial.score for trial in agent.trials]


def run_random(ground: Ground, target: int, seed: int, evaluations: int) -> list[float]:
    tried = ground.initial(target, seed)
    rng = np.random.default_rng([4, seed, target])
    for _ in range(evaluations):
        tried.append(ground.random(rng, tried))
    return [ground.score(target, params) for params in tried]


def play(
    ground: Ground,
    known: Sequence[History],
    names: Sequence[str],
    target: int,
    seeds: Sequence[int],
    evaluations: int,
) -> tuple[int, dict[tuple[str, int], list[float]]]:
    """Scores of runs of our own policies on one target, by policy and seed."""
    others = [history for n, history in enumerate(known) if n != target]
    scores = {}
    received: dict[str, tuple[fedbo.Federation, list[fedbo.Message]]] = {}
    for name in names:
        if name == RANDOM:
            runner = partial(run_random, ground)
        else:
            make, kind = POLICIES[name]
            assert make is not None
            if kind not in received:
                agreed = federation(ground.space, kind, others)
                received[kind] = agreed, messages(agreed, target, known, seeds[0] % HISTORIES)
            agreed, arrived = received[kind]
            runner = partial(run, ground, agreed, make(), [] if name == SOLO else arrived)
        for seed in seeds:
            scores[name, seed] = runner(target, seed, evaluations)
    return target, scores


def play_outside(
    ground: Ground, name: str, target: int, seed: int, evaluations: int, cache: Path, version: str
) -> tuple[int, dict[tuple[str, int], list[float]]]:
    """Scores of a run of an outside sampler, from the cache if it has been run before."""
    key = [ground.name, ground.digest, name, version, target, seed, evaluations]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:20]
    path = cache / "outside" / f"{digest}.json"
    kept = remembered(path)
    if kept is not None:
        return target, {(name, seed): json.loads(kept)["scores"]}
    sign, tried = ground.space.sign, []

    def evaluate(x: Array) -> tuple[Array, float]:
        params = ground.instead(x, tried)
        tried.append(params)
        return ground.space.encode(params), sign * ground.score(target, params)

    first = np.array([ground.space.encode(params) for params in ground.initial(target, seed)])
    scores = [
        sign * score
        for score in outside.run(name, first, evaluate, evaluations, _seed(5, seed, target))
    ]
    remember(path, json.dumps({"key": key, "scores": scores}).encode())
    return target, {(name, seed): scores}


# A whole contest


def chosen(options: argparse.Namespace) -> list[str]:
    """The policies that are to compete, solo always among them."""
    there = [name for name, (make, _) in POLICIES.items() if make is not None]
    known = [*there, RANDOM, *outside.SAMPLERS]
    named = [name.strip() for name in options.policies.split(",")] if options.policies else known
    unknown = [name for name in named if name not in known and name not in POLICIES]
    if unknown:
        raise refuse(f"--policies has {unknown[0]!r}, expected some of {', '.join(known)}")
    for name in [name for name in named if name not in known]:
        say(f"This fedbo has no {name}: left out.")
    asked = [name for name in known if name in named or name == SOLO]
    if options.no_outside:
        return [name for name in asked if name not in outside.SAMPLERS]
    if outside.optuna_version() is None and {*asked} & {*outside.SAMPLERS}:
        if options.policies:
            raise refuse(outside.MISSING)
        say(f"Left out {' and '.join(outside.SAMPLERS)}: {outside.MISSING}.")
        return [name for name in asked if name not in outside.SAMPLERS]
    return asked


def targets(ground: Ground, which: str) -> list[int]:
    """The tasks that are targets; all of them are peers."""
    return [task for task in range(ground.tasks) if which == "all" or task % 2 == (which == "odd")]


def compete(ground: Ground, names: Sequence[str], options: argparse.Namespace) -> Curves:
    """The scores of all runs, (targets, seeds, evaluations) for each policy, in trial order."""
    tasks, seeds = targets(ground, options.targets), range(options.seeds)
    own = [name for name in names if name not in outside.SAMPLERS]
    slow = [name for name in names if name in outside.SAMPLERS]
    known = histories(ground, options.jobs, seeds=min(HISTORIES, options.seeds))
    groups = [[s for s in seeds if s % HISTORIES == h] for h in range(min(HISTORIES, len(seeds)))]
    calls: list[Call] = [
        (
            play,
            (ground, known[group[0] % HISTORIES], own, target, group, options.evaluations),
            len(own) * len(group),
        )
        for group in groups
        for target in tasks
    ]
    scores: dict[tuple[int, str, int], list[float]] = {}
    for target, found in work("policies", calls, options.jobs):
        scores |= {(target, *key): each for key, each in found.items()}
    version = outside.optuna_version()
    for name in slow:
        few: list[Call] = [
            (
                play_outside,
                (ground, name, target, seed, options.evaluations, options.cache, version),
                1,
            )
            for seed in seeds[: options.outside_seeds]
            for target in tasks
        ]
        for target, found in work(name, few, options.jobs):
            scores |= {(target, *key): each for key, each in found.items()}
    return {
        name: np.array(
            [
                [scores[target, name, seed] for seed in seeds if (target, name, seed) in scores]
                for target in tasks
            ]
        )
        for name in names
    }


def best_so_far(ground: Ground, scores: Array) -> Array:
    sign = ground.space.sign
    return sign * np.maximum.accumulate(sign * scores, axis=-1)


def regrets(ground: Ground, tasks: Sequence[int], curves: Curves) -> Curves:
    """Normalised regrets so far: 0 at a task's best score, 1 at its other limit."""
    sign = ground.space.sign
    result = {name: np.empty(scores.shape) for name, scores in curves.items()}
    for k, task in enumerate(tasks):
        found = sign * max(float((sign * scores[k]).max()) for scores in curves.values())
        best, other = ground.limits(task, found)
        for name, scores in curves.items():
            result[name][k] = (best - best_so_far(ground, scores[k])) / (best - other)
    return result


def summary(regret: Curves, default: str, evaluations: int) -> dict[str, Any]:
    """The figures of a contest, from normalised regrets (targets, seeds, evaluations)."""
    policies: dict[str, dict[str, Any]] = {
        name: {
            **{key: {} for key in ("regret", "ratio", "difference", "rank", "rank_difference")},
            "seeds": values.shape[1],
            "curve": values.mean(axis=(0, 1))[-evaluations - 1 :].tolist(),
        }
        for name, values in regret.items()
    }
    for n in (n for n in AT if n <= evaluations):
        at = {name: values[:, :, INITIAL + n - 1] for name, values in regret.items()}
        ranks = dict(zip(at, paired.ranks([*at.values()]), strict=True))
        for name, values in at.items():
            figures = policies[name]
            figures["regret"][str(n)] = float(values.mean())
            figures["ratio"][str(n)] = paired.ratio(values, at[SOLO])
            figures["difference"][str(n)] = paired.difference(values, at[SOLO])
            figures["rank"][str(n)] = float(ranks[name].mean())
            if default in ranks:
                behind = paired.difference(ranks[name], ranks[default])
                figures["rank_difference"][str(n)] = behind
    return {"default": default, "policies": policies}


def show(result: dict[str, Any], title: str, kind: str = "normalised regret") -> None:
    """The figures as tables."""
    policies, default = result["policies"], result["default"]
    at = [*policies[SOLO]["regret"]]
    columns = ["policy", *at]

    def rows(cell: Callable[[dict[str, Any], str], str], left_out: str = "") -> list[list[str]]:
        return [
            [name + (" *" if name == default else ""), *(cell(figures, n) for n in at)]
            for name, figures in policies.items()
            if name != left_out
        ]

    table(
        f"{title}: mean {kind} after so many evaluations (* the default)",
        [*columns, "seeds"],
        [
            [*row, str(figures["seeds"])]
            for row, figures in zip(
                rows(lambda p, n: number(p["regret"][n])), policies.values(), strict=True
            )
        ],
    )
    table(
        "ratio to solo TS, paired, 95 % interval",
        columns,
        rows(lambda p, n: estimate(p["ratio"][n]), SOLO),
    )
    table(
        "difference to solo TS, paired, 95 % interval",
        columns,
        rows(lambda p, n: estimate(p["difference"][n], 4), SOLO),
    )
    table(
        "mean rank (on the seeds that all have)",
        columns,
        rows(lambda p, n: f"{p['rank'][n]:.2f}"),
    )
    if default in policies and len(policies) > 2:
        table(
            f"mean rank behind {default}, 95 % interval (above 0: {default} is ahead)",
            columns,
            rows(lambda p, n: estimate(p["rank_difference"][n]), default),
        )


def arguments(description: str) -> argparse.ArgumentParser:
    """What all contests can be told."""
    parser = argparse.ArgumentParser(
        description=description.partition("\n")[0],
        epilog=description.partition("\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=_writable, metavar="OUT", help="also write figures there")
    parser.add_argument("--seeds", type=_positive, default=10, metavar="N", help="10 unless told")
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="J",
        help="processes; all cores unless told",
    )
    parser.add_argument(
        "--targets",
        choices=("even", "odd", "all"),
        default="all",
        help="which tasks are targets; peers are always all the others",
    )
    parser.add_argument("--evaluations", type=_positive, default=50, metavar="N")
    parser.add_argument(
        "--cache",
        type=Path,
        default=user_folder() / "benchmarks",
        metavar="DIR",
        help="where results of slow samplers are kept",
    )
    return parser


def policy_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policies", metavar="A,B,...", help="all unless told")
    parser.add_argument("--no-outside", action="store_true", help="without Optuna's samplers")
    parser.add_argument(
        "--outside-seeds",
        type=_positive,
        default=3,
        metavar="N",
        help="of Optuna's samplers, which are slow: 3 unless told",
    )


def _writable(text: str) -> Path:
    """A path whose folder is there: better said now than after hours."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}; make it first")
    return path


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def hold(ground: Ground, title: str, options: argparse.Namespace) -> tuple[dict[str, Any], Curves]:
    """A whole contest, from its options to its tables: the figures, and the scores of all runs."""
    names = chosen(options)
    curves = compete(ground, names, options)
    tasks = targets(ground, options.targets)
    result = summary(
        regrets(ground, tasks, curves), default_policy(ground.space), options.evaluations
    )
    result |= {"targets": tasks, "tasks": ground.tasks, "histories": HISTORIES}
    show(result, title, "normalised regret" if ground.normalise else "regret")
    return result, curves


def finish(result: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        write_json(options.json, result)
