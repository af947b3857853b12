"""The figures of a contest, computed from its regrets and shown as tables.

The JSON of a contest holds, among others

``policies``          the figures of each policy, by its name
  ``regret``          mean regret, by the number of evaluations after the initial points
  ``ratio_ei``        its ratio to the regret of EI alone, with an interval
  ``ratio``           its ratio to the regret of TS alone
  ``difference_ei``   its difference from the regret of EI alone
  ``difference``      its difference from the regret of TS alone
  ``rank``            mean rank among all policies
  ``rank_difference`` mean rank behind the default policy
  ``seeds``           number of runs on each target
  ``curve``           mean regret after 0, 1, 2, … evaluations after the initial points
``runs``              the regret of every run: for each policy targets × seeds × evaluations,
                      those of the initial points included, rounded to 6 digits
``targets``           the tasks that were targets, in the order of ``runs``
``peers``             number of peers that a run met
``history``           evaluations that these peers had made
``together``          number of sites that started at once; null if peers had run before
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fedbo_paper.contests import contest, measures, together
from fedbo_paper.contests.compete import compete
from fedbo_paper.contests.contest import EI, TS
from fedbo_paper.contests.grounds import INITIAL, Ground
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.options import chosen
from fedbo_paper.contests.screen import estimate, say, table
from fedbo_paper.harness.intervals import Floats

Figures = dict[str, Any]

AT = (5, 10, 20, 50)  # evaluations after the initial points at which policies are compared
FEWEST = 10  # targets for an interval that can be relied on
DIGITS = 6  # of the regret of a run


def hold(ground: Ground, title: str, options: argparse.Namespace) -> tuple[Figures, Curves]:
    """Hold a whole contest and print its tables.

    Returns:
        The figures, and the scores of all runs.
    """
    tasks = contest.targets(ground, options.targets)
    warn_of_few(len(tasks), title)
    hold_with = together.compete if options.together else compete
    curves = hold_with(ground, chosen(options), options)
    regret = measures.regrets(ground, tasks, curves)
    result = summary(regret, contest.default_policy(), options.evaluations)
    result |= {"targets": tasks, "tasks": ground.tasks, **meeting(ground, options)}
    show(result, title + _setting(options), "normalised regret" if ground.normalise else "regret")
    return result | {"runs": runs(regret)}, curves


def warn_of_few(targets: int, title: str) -> None:
    """Warn if there are too few targets for intervals."""
    if targets < FEWEST:
        say(
            f"Warning: {title} has {targets} target{'s' if targets != 1 else ''}. Intervals over "
            f"fewer than {FEWEST} targets are unreliable."
        )


def meeting(ground: Ground, options: argparse.Namespace) -> Figures:
    """Return what the peers of a run are like."""
    if options.together:
        return {"peers": options.together - 1, "history": 0, "together": options.together}
    peers = options.peers or ground.tasks - 1
    histories = {"history": options.history, "histories": contest.HISTORIES}
    return {"peers": peers, **histories, "together": None}


def _setting(options: argparse.Namespace) -> str:
    """Name the options that a table's title should mention."""
    if options.together:
        return f", {options.together} sites start together"
    peers = f"{options.peers or ''} peer{'' if options.peers == 1 else 's'}".strip()
    each = f" with {options.history} evaluations each" if options.history < contest.HISTORY else ""
    return f", {peers}{each}" if options.peers or each else ""


def runs(regret: Curves) -> dict[str, Any]:
    """Return the regret of every run as lists (targets, seeds, evaluations), rounded."""
    return {name: values.round(DIGITS).tolist() for name, values in regret.items()}


def summary(regret: Curves, default: str, evaluations: int) -> Figures:
    """Compute the figures of a contest from regrets (targets, seeds, evaluations)."""
    by_n = "regret", "ratio_ei", "ratio", "difference_ei", "difference", "rank", "rank_difference"
    policies: dict[str, Figures] = {
        name: {
            **{key: {} for key in by_n},
            "seeds": values.shape[1],
            "curve": values.mean(axis=(0, 1))[-evaluations - 1 :].tolist(),
        }
        for name, values in regret.items()
    }
    for n in (n for n in AT if n <= evaluations):
        at = {name: values[:, :, INITIAL + n - 1] for name, values in regret.items()}
        ranks = dict(zip(at, measures.ranks([*at.values()]), strict=True))
        for name, values in at.items():
            figures = policies[name]
            figures["regret"][str(n)] = float(values.mean())
            for alone, suffix in ((EI, "_ei"), (TS, "")):
                figures["ratio" + suffix][str(n)] = measures.ratio(values, at[alone])
                figures["difference" + suffix][str(n)] = measures.difference(values, at[alone])
            figures["rank"][str(n)] = float(ranks[name].mean())
            if default in ranks:
                behind = measures.difference(ranks[name], ranks[default])
                figures["rank_difference"][str(n)] = behind
    return {"default": default, "policies": policies}


def mean_best(ground: Ground, scores: Floats, evaluations: int) -> dict[str, float]:
    """Compute the mean best score, by the number of evaluations."""
    mean = measures.best_so_far(ground, scores).mean(axis=(0, 1))
    return {str(n): float(mean[INITIAL + n - 1]) for n in AT if n <= evaluations}


def show(result: Figures, title: str, kind: str = "normalised regret") -> None:
    """Print the figures as tables."""
    policies, default = result["policies"], result["default"]
    at = [*policies[EI]["regret"]]

    def print_table(
        title: str, key: str, text: Callable[[Any], str], left_out: str = "", seeds: bool = False
    ) -> None:
        rows = [
            [
                name + (" *" if name == default else ""),
                *(text(figures[key][n]) for n in at),
                *([str(figures["seeds"])] if seeds else []),
            ]
            for name, figures in policies.items()
            if name != left_out
        ]
        table(title, ["policy", *at, *(["seeds"] if seeds else [])], rows)

    print_table(
        f"{title}: mean {kind} after this many evaluations (* is the default policy)",
        "regret",
        "{:.4f}".format,
        seeds=True,
    )
    for alone, suffix in ((EI, "_ei"), (TS, "")):
        print_table(
            f"ratio to {alone} alone, paired, 95 % interval", "ratio" + suffix, estimate, alone
        )
    for alone, suffix in ((EI, "_ei"), (TS, "")):
        print_table(
            f"difference from {alone} alone, paired, 95 % interval",
            "difference" + suffix,
            lambda effect: estimate(effect, 4),
            alone,
        )
    print_table("mean rank, on the seeds that all policies have", "rank", "{:.2f}".format)
    if default in policies and len(policies) > 2:
        print_table(
            f"mean rank behind {default}, 95 % interval (positive: {default} is ahead)",
            "rank_difference",
            estimate,
            default,
        )
