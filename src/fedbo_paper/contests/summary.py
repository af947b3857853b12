"""The figures of a contest, computed from its regrets and shown as tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fedbo_paper.contests import contest, measures
from fedbo_paper.contests.contest import SOLO
from fedbo_paper.contests.grounds import INITIAL, Ground
from fedbo_paper.contests.measures import Curves
from fedbo_paper.contests.options import chosen
from fedbo_paper.contests.screen import estimate, table
from fedbo_paper.harness.intervals import Floats

Figures = dict[str, Any]

AT = (5, 10, 20, 50)  # evaluations after the initial points at which policies are compared


def hold(ground: Ground, title: str, options: argparse.Namespace) -> tuple[Figures, Curves]:
    """Hold a whole contest and print its tables.

    Returns:
        The figures, and the scores of all runs.
    """
    curves = contest.compete(ground, chosen(options), options)
    tasks = contest.targets(ground, options.targets)
    regret = measures.regrets(ground, tasks, curves)
    result = summary(regret, contest.default_policy(), options.evaluations)
    result |= {"targets": tasks, "tasks": ground.tasks, "histories": contest.HISTORIES}
    show(result, title, "normalised regret" if ground.normalise else "regret")
    return result, curves


def summary(regret: Curves, default: str, evaluations: int) -> Figures:
    """Compute the figures of a contest from regrets (targets, seeds, evaluations)."""
    policies: dict[str, Figures] = {
        name: {
            **{key: {} for key in ("regret", "ratio", "difference", "rank", "rank_difference")},
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
            figures["ratio"][str(n)] = measures.ratio(values, at[SOLO])
            figures["difference"][str(n)] = measures.difference(values, at[SOLO])
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
    at = [*policies[SOLO]["regret"]]

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
    print_table("ratio to solo TS, paired, 95 % interval", "ratio", estimate, SOLO)
    print_table(
        "difference from solo TS, paired, 95 % interval",
        "difference",
        lambda effect: estimate(effect, 4),
        SOLO,
    )
    print_table("mean rank, on the seeds that all policies have", "rank", "{:.2f}".format)
    if default in policies and len(policies) > 2:
        print_table(
            f"mean rank behind {default}, 95 % interval (positive: {default} is ahead)",
            "rank_difference",
            estimate,
            default,
        )
