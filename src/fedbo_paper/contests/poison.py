"""Measure what members that lie, and collude, cost a target.

Members have identities, so each liar is one member with one agent. `liars.py` says what they send.
40 % of the members lie, and the target is compared with one that hears only the honest 60 %; or all
of them lie, and it is compared with EI alone. Members have made 50 trials alone, and the
target runs the default policy. All runs of a target with the same seed start from the same points,
except those that hear a private release, which start where most members vote.

*False votes* are lies to a private release (ε = 2, δ = 0.001). The families of hostile.py are run
through such a release too: what do useless or hostile members cost, if nothing but a release is
heard? Every run has noise of its own.

The tasks are those of the SVM table, and the landmine fields on a grid of the linear box. With odd
targets (the default) nothing was chosen. Without --seeds each figure is of 300 runs or more.
Finished runs are kept in the folder --cache, so that a stopped contest can go on.

In the JSON, `lies` has figures by ground, share of liars and lie: `regret`; `without`, that of the
honest 60 %, or of EI alone; `ratio` and `difference`, with intervals, by the number of trials.
`useless` has `regret`, `solo_ei`, `ratio_ei`, `delay` and `reached` by ground and family, as
hostile.py explains them. `aims` has the ratios at 20 and 50 that are above the aim. `runs` has the
regret of every run, by ground and arm: targets x seeds x trials, rounded to 6 digits.

    FEDBO_DATA=folder python benchmarks/poison.py --json out.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo.privacy import Release
from fedbo_paper.contests import contest, hostile, measures, options, private, screen
from fedbo_paper.contests.contest import EI, History, Scores
from fedbo_paper.contests.grounds import Listed, read_table
from fedbo_paper.contests.hostile import Field
from fedbo_paper.contests.kept import kept
from fedbo_paper.contests.liars import DELTA, LIES, Lie, Scene, Turn, silent
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.summary import AT, runs, warn_of_few
from fedbo_paper.data import find
from fedbo_paper.harness.intervals import Effect
from fedbo_paper.harness.store import source_digest

Figures = dict[str, Any]
Arm = Callable[[Scene, int, int], list[float]]  # from scene, seed and trials to scores

GROUNDS = ("svm", "landmine")
VOTES = "false votes"
USELESS = ("unrelated", "negated", "worst", "half")  # families of hostile.py, through a release
SOME, ALL = "40 %", "100 %"  # of the members lie
SHARES = {SOME: 0.4, ALL: 1.0}
AIMS = {SOME: 1.1, ALL: 1.05}  # the largest ratio that we aim at
AIMED = (20, 50)  # trials at which we do
RUNS = 300
EPSILON = 2.0
SOURCE = ("fedbo", "fedbo_paper.contests")  # the code that decides the scores of a run


# Runs


def divided(scene: Scene, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Divide the members of a run into liars and honest ones, at random.

    Args:
        scene: The members.
        share: The share of liars.
        seed: The seed of the run.
    """
    others = np.delete(np.arange(scene.ground.tasks), scene.target)
    order = np.random.default_rng([8, seed, scene.target]).permutation(others).tolist()
    lying = round(share * len(order))
    return sorted(order[:lying]), sorted(order[lying:])


def alone(scene: Scene, seed: int, trials: int) -> list[float]:
    """Run EI alone."""
    return contest.run(scene.ground, fedbo.EI(), [], scene.target, seed, trials)


def among(lie: Lie, share: float, scene: Scene, seed: int, trials: int) -> list[float]:
    """Run a target that receives the messages of liars and of honest members.

    Args:
        lie: What liars send.
        share: The share of liars.
        scene: The members.
        seed: The seed of the run.
        trials: Trials of the run.
    """
    liars, others = divided(scene, share, seed)
    ground, target = scene.ground, scene.target
    first = [*(scene.honest[n] for n in others), *lie(Turn(scene, liars, 0))]
    agent = contest.site(ground, fedbo.TipsThenPool(), target, seed, first)
    scores = []
    for t in range(trials):
        if t:
            agent.receive(lie(Turn(scene, liars, t, agent)))
        scores += [score for _, score in contest.evaluate(agent, ground, target, 1)]
    return scores


def voting(
    share: float, lying: bool, epsilon: float, scene: Scene, seed: int, trials: int
) -> list[float]:
    """Run a target that hears one private release.

    Args:
        share: The share of liars.
        lying: Whether liars contribute; otherwise only the honest members do.
        epsilon: ε of the release.
        scene: The members.
        seed: The seed of the run.
        trials: Trials of the run.
    """
    liars, others = divided(scene, share, seed)
    contributed = [scene.contributions[n] for n in others]
    contributed += [scene.false_votes[n] for n in liars if lying]
    agreed, published = publish(scene, contributed, epsilon, seed)
    return private.run(scene.ground, agreed, published, scene.target, seed, trials)


def hearing(
    family: str,
    met: dict[str, list[History]],
    epsilon: float,
    scene: Scene,
    seed: int,
    trials: int,
) -> list[float]:
    """Run a target that hears one private release of useless or hostile members.

    Args:
        family: The family of hostile.py.
        met: The histories of honest, negated and unrelated members.
        epsilon: ε of the release.
        scene: The members.
        seed: The seed of the run.
        trials: Trials of the run.
    """
    ground, target = scene.ground, scene.target
    known = hostile.peers(family, ground, met, target, scene.seed)
    contributed = scene.contributions_of(known)
    del contributed[target]
    agreed, published = publish(scene, contributed, epsilon, seed)
    return private.run(ground, agreed, published, target, seed, trials)


def publish(
    scene: Scene, contributed: Sequence[fedbo.Message], epsilon: float, seed: int
) -> tuple[fedbo.Federation, Release]:
    """Make a release with simulated noise, which depends on the target and the seed.

    Args:
        scene: The members.
        contributed: Their contributions.
        epsilon: ε of the release.
        seed: The seed of the run.
    """
    agreed = private.planned(scene.ground, epsilon, DELTA)
    return agreed, private.publish(agreed, contributed, [seed, scene.target], contest.HISTORY)


def honest(name: str) -> str:
    """Name the arm in which the liars of another arm are silent."""
    return "honest votes" if name == VOTES else "honest"


def arms(given: argparse.Namespace, met: dict[str, list[History]]) -> dict[str, Arm]:
    """List all arms: EI alone, honest members alone, lies, and useless members.

    Args:
        given: The options of the command.
        met: The histories of honest, negated and unrelated members.
    """
    found: dict[str, Arm] = {EI: alone}
    for name in given.lie:
        if name == VOTES:
            found[honest(name)] = partial(voting, SHARES[SOME], False, given.epsilon)
        else:
            found[honest(name)] = partial(among, silent, SHARES[SOME])
        for label, share in SHARES.items():
            if name == VOTES:
                found[f"{name}, {label}"] = partial(voting, share, True, given.epsilon)
            else:
                found[f"{name}, {label}"] = partial(among, LIES[name], share)
    for family in given.useless:
        found[family] = partial(hearing, family, met, given.epsilon)
    return found


def play(
    field: Field, met: dict[str, list[History]], given: argparse.Namespace, target: int, seed: int
) -> Scores:
    """Run all arms on one target with one seed, except runs that are kept.

    Args:
        field: The tasks.
        met: The histories of honest, negated and unrelated members.
        given: The options of the command.
        target: The task that is tuned.
        seed: The seed of the run.
    """
    scores: Scores = {}
    scene = Scene(field.ground, met["honest"], target, seed)
    code = source_digest(*SOURCE)
    for name, arm in arms(given, met).items():
        file = f"{field.group}-{name}-{target}-{seed}".replace(", ", "-").replace(" ", "-")
        compute = partial(arm, scene, seed, given.trials)
        details = (code, field.ground.digest, name, target, seed, str(given.epsilon))
        found = kept(given.cache / "poison", file, given.trials, compute, *details)
        scores[name, target, seed] = found
    return scores


def measure(field: Field, given: argparse.Namespace) -> Curves:
    """Compute the regrets (targets, seeds, trials) of all arms.

    Args:
        field: The tasks.
        given: The options of the command.
    """
    ground = field.ground
    tasks = contest.targets(ground, given.targets)
    warn_of_few(len(tasks), field.group)
    seeds = given.seeds or -(-RUNS // len(tasks))
    tables = {"honest": ground.Y}
    if given.useless:
        tables |= {"negated": -ground.Y, "unrelated": field.unrelated}
    histories = {
        sort: contest.histories(Listed(ground.X, Y), given.jobs, seeds, f"{ground.name}, {sort}")
        for sort, Y in tables.items()
    }
    calls = []
    for seed in range(seeds):
        met = {sort: known[seed % contest.HISTORIES] for sort, known in histories.items()}
        calls += [partial(play, field, met, given, target, seed) for target in tasks]
    scores = screen.work(ground.name, calls, given.jobs)
    return measures.regrets(ground, tasks, contest.curves(scores, arms(given, {}), tasks))


# Results


def figures(regret: Curves, name: str, label: str) -> Figures:
    """Compute the regret with a lie and without it, their ratio and their difference.

    Args:
        regret: Regrets (targets, seeds, trials) of all arms.
        name: The lie.
        label: The share of liars, "40 %" or "100 %".
    """
    own, without = regret[f"{name}, {label}"], regret[EI if label == ALL else honest(name)]
    result: Figures = {"regret": {}, "without": {}, "ratio": {}, "difference": {}}
    for n in (n for n in AT if n <= own.shape[-1]):
        a, b = own[:, :, n - 1], without[:, :, n - 1]
        result["regret"][str(n)] = float(a.mean())
        result["without"][str(n)] = float(b.mean())
        result["ratio"][str(n)] = measures.ratio(a, b)
        result["difference"][str(n)] = measures.difference(a, b)
    return result


def all_figures(grounds: dict[str, Curves], lies: Sequence[str]) -> Figures:
    """Compute figures by ground, share and lie.

    Args:
        grounds: Regrets of all arms, by ground.
        lies: The lies.
    """
    return {
        ground: {label: {name: figures(regret, name, label) for name in lies} for label in SHARES}
        for ground, regret in grounds.items()
    }


def useless_figures(grounds: dict[str, Curves], families: Sequence[str]) -> Figures:
    """Compute figures of useless members by ground and family.

    Args:
        grounds: Regrets of all arms, by ground.
        families: The families.
    """
    return {
        ground: {family: hostile.figures(regret[family], regret[EI]) for family in families}
        for ground, regret in grounds.items()
    }


def aims(found: Figures) -> Figures:
    """Find the ratios at 20 and 50 that are above the aim of their share.

    Args:
        found: What `all_figures` returns.
    """
    result: Figures = {}
    for label, limit in AIMS.items():
        ratios: dict[str, Effect] = {
            f"{ground}, {name}, at {n}": each["ratio"][str(n)]
            for ground, by_share in found.items()
            for name, each in by_share[label].items()
            for n in AIMED
            if str(n) in each["ratio"]
        }
        above = {key: ratio for key, ratio in ratios.items() if not ratio.value <= limit}
        result[label] = {"limit": limit, "ratios": len(ratios), "above": above}
    return result


def show(found: Figures, missed: Figures) -> None:
    """Print a table for each share of liars, and what is above the aim.

    Args:
        found: What `all_figures` returns.
        missed: What `aims` returns.
    """
    for label, without in ((SOME, "the honest 60 %"), (ALL, "EI alone")):
        rows, at = [], list[str]()
        for ground, by_share in found.items():
            for name, each in by_share[label].items():
                at = [*each["ratio"]]
                regrets = (f"{each['without'][n]:.3f} → {each['regret'][n]:.3f}" for n in at[-2:])
                ratios = (screen.estimate(each["ratio"][n]) for n in at)
                rows.append([f"{ground}, {name}", *regrets, *ratios])
        columns = [*(f"regret at {n}" for n in at[-2:]), *(f"ratio at {n}" for n in at)]
        screen.table(
            f"{label} of the members lie: regret of {without} → with liars, and the ratio, 95 % "
            "intervals",
            ["ground, lie", *columns],
            rows,
        )
        each = missed[label]
        above = ", ".join(f"{key}: {ratio.value:.2f}" for key, ratio in each["above"].items())
        line = f"{len(each['above'])} of {each['ratios']} ratios are above the aim, {each['limit']}"
        screen.out.print(f"{line} ({above or 'none'})", highlight=False, soft_wrap=True)


def show_useless(found: Figures, epsilon: float) -> None:
    """Print the delays and ratios of useless members that are heard through a release.

    Args:
        found: What `useless_figures` returns.
        epsilon: ε of the releases.
    """
    rows, delays, at = [], list[str](), list[str]()
    for ground, by_family in found.items():
        for family, each in by_family.items():
            delays, at = [*each["delay"]], [*each["ratio_ei"]]
            late = (
                ("" if each["reached"][n] else "≥ ") + screen.estimate(each["delay"][n], 1)
                for n in delays
            )
            ratios = (screen.estimate(each["ratio_ei"][n]) for n in at[-2:])
            rows.append([f"{ground}, {family}", *late, *ratios])
    columns = [*(f"delay at {n}" for n in delays), *(f"ratio at {n}" for n in at[-2:])]
    title = f"useless members, one private release of ε = {epsilon:g}: delay in trials behind"
    screen.table(f"{title} EI alone, and ratio to it", ["ground, family", *columns], rows)


def fields(given: argparse.Namespace) -> Iterator[Field]:
    """Create the selected grounds, one after another."""
    if "svm" in given.ground:
        ground = read_table(given.table or find("tst_svm", [hostile.TABLE]))
        yield Field("svm", ground, hostile.shuffled(ground.Y))
    if "landmine" in given.ground:
        ground = hostile.landmine_grid("linear", given.cache, given.jobs)
        yield Field("landmine", ground, hostile.shuffled(ground.Y))


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    parser.set_defaults(seeds=None, targets="odd")
    lies = (*LIES, VOTES)
    for name, known in (("--lie", lies), ("--useless", USELESS), ("--ground", GROUNDS)):
        text = f"some of {', '.join(known)}; default: all"
        parser.add_argument(
            name, type=options.some(known), default=known, metavar="A,B,...", help=text
        )
    text = "of private releases; default: 2"
    parser.add_argument("--epsilon", type=float, default=EPSILON, metavar="E", help=text)
    text = f"the SVM table; default: {hostile.TABLE} in the data folder"
    parser.add_argument("--table", type=Path, help=text)
    given = parser.parse_args()
    regret = {field.group: measure(field, given) for field in fields(given)}
    found, useless = all_figures(regret, given.lie), useless_figures(regret, given.useless)
    missed = aims(found)
    show(found, missed)
    show_useless(useless, given.epsilon)
    screen.finish(
        {
            "lies": found,
            "aims": missed,
            "useless": useless,
            "epsilon": given.epsilon,
            "delta": DELTA,
            "targets": given.targets,
            "runs": {ground: runs(curves) for ground, curves in regret.items()},
        },
        given.json,
    )
