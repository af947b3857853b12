"""The figures of a contest, computed from its regrets and shown as tables.

The JSON of a contest holds, among others (null stands for what is not defined)

``default``              the name of the default policy
``policies``             the figures of each policy, by its name
  ``regret``             mean regret, by the number of trials
  ``ratio_ei``           its ratio to the regret of EI alone, as [ratio, low, high]
  ``ratio_ts``           its ratio to the regret of TS alone
  ``ratio_best_first``   its ratio to the regret of best-first, if that competed
  ``difference_ei``      its difference from the regret of EI alone
  ``to_target``          [trials, share]: the trials that runs need to reach what EI alone has on
                         the same target after 20, and the share of runs that get there
  ``seeds``              number of runs on each target
  ``curve``              mean regret after 1, 2, 3, … trials
``best``                 mean best score of each policy, by the number of trials; not for tables
``runs``                 the regret of every run: for each policy targets × seeds × trials, rounded
                         to 6 digits
``targets``              the tasks that were targets, in the order of ``runs``
``peers``                number of peers that a run met
``history``              trials that these peers had made
``together``             number of sites that started at once; null if peers had run before
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from fedbo_paper.contests import contest, measures, together
from fedbo_paper.contests.best_first import BEST_FIRST
from fedbo_paper.contests.compete import compete
from fedbo_paper.contests.contest import EI, TS
from fedbo_paper.contests.grounds import Boxed, Ground
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.options import chosen
from fedbo_paper.contests.screen import estimate, say, table

Figures = dict[str, Any]

AT = (1, 2, 3, 5, 10, 20, 50)  # trials after which policies are compared
FEWEST = 10  # targets for an interval that can be relied on
DIGITS = 6  # of the regret of a run
AGAINST = {"ratio_ei": EI, "ratio_ts": TS, "ratio_best_first": BEST_FIRST}


def hold(ground: Ground, title: str, options: argparse.Namespace) -> Figures:
    """Hold a whole contest, print its tables and return its figures."""
    tasks = contest.targets(ground, options.targets)
    warn_of_few(len(tasks), title)
    hold_with = together.compete if options.together else compete
    curves = hold_with(ground, chosen(options), options)
    regret = measures.regrets(ground, tasks, curves)
    result = summary(regret, contest.default_policy())
    result |= {"targets": tasks, "tasks": ground.tasks, **meeting(ground, options)}
    show(result, title + _setting(options), "normalised regret" if ground.normalise else "regret")
    if isinstance(ground, Boxed):
        result["best"] = mean_best(ground, curves)
        rows = [
            [name, *map("{:.5f}".format, by_n.values())] for name, by_n in result["best"].items()
        ]
        columns = ["policy", *result["best"][EI]]
        table("mean best score after this many trials", columns, rows)
    return result | {"runs": runs(regret)}


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
    each = f" with {options.history} trials each" if options.history < contest.HISTORY else ""
    return f", {peers}{each}" if options.peers or each else ""


def runs(regret: Curves) -> dict[str, Any]:
    """Return the regret of every run as lists (targets, seeds, trials), rounded."""
    return {name: values.round(DIGITS).tolist() for name, values in regret.items()}


def summary(regret: Curves, default: str) -> Figures:
    """Compute the figures of a contest from regrets (targets, seeds, trials)."""
    trials = regret[EI].shape[-1]
    at = {str(n): n - 1 for n in AT if n <= trials}
    policies: dict[str, Figures] = {}
    for name, values in regret.items():
        policies[name] = figures = {
            "regret": {n: float(values[..., i].mean()) for n, i in at.items()},
            "difference_ei": {
                n: measures.difference(values[..., i], regret[EI][..., i]) for n, i in at.items()
            },
            "to_target": measures.to_target(values, regret[EI]),
            "seeds": values.shape[1],
            "curve": values.mean(axis=(0, 1)).tolist(),
        }
        for key, other in AGAINST.items():
            if other in regret:
                figures[key] = {
                    n: measures.ratio(values[..., i], regret[other][..., i]) for n, i in at.items()
                }
    return {"default": default, "policies": policies}


def mean_best(ground: Ground, curves: Curves) -> dict[str, dict[str, float]]:
    """Compute the mean best score of each policy, by the number of trials."""
    means = {
        name: measures.best_so_far(ground, scores).mean(axis=(0, 1))
        for name, scores in curves.items()
    }
    return {
        name: {str(n): float(mean[n - 1]) for n in AT if n <= len(mean)}
        for name, mean in means.items()
    }


def show(result: Figures, title: str, kind: str = "normalised regret") -> None:
    """Print the figures as tables."""
    policies, default = result["policies"], result["default"]
    at = [*policies[EI]["regret"]]

    def print_table(
        title: str, key: str, text: Callable[[Any], str], left_out: str = "", more: bool = False
    ) -> None:
        rows = [
            [
                name + (" *" if name == default else ""),
                *(text(figures[key][n]) for n in at),
                *([_reached(*figures["to_target"]), str(figures["seeds"])] if more else []),
            ]
            for name, figures in policies.items()
            if name != left_out
        ]
        table(title, ["policy", *at, *(["to EI's at 20", "seeds"] if more else [])], rows)

    print_table(
        f"{title}: mean {kind} after this many trials; trials to the regret of EI alone at 20, and "
        "share of runs that get there (* is the default policy)",
        "regret",
        "{:.4f}".format,
        more=True,
    )
    for key, word in (("ratio_ei", "EI alone"), ("ratio_best_first", "best-first")):
        if key in policies[EI]:
            print_table(
                f"ratio to {word}, paired, 95 % interval", key, estimate, left_out=AGAINST[key]
            )


def _reached(trials: float, share: float) -> str:
    if math.isnan(share):
        return "–"
    return f"{trials:.1f} ({share:.0%})" if share else "never"
