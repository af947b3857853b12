"""The contest on 29 landmine fields with real training: each tunes the C and gamma of an SVM.

The score is the AUC. Every field in turn is the target and all others its peers, which have made 50
evaluations alone. Regret is measured from the best AUC known of the field (of a grid of 25 x 25,
and of any run) and normalised by what a random point loses (the median of the grid), in the paper's
linear box and in the log box. Reported as by table.py, and also after how many evaluations each
policy's mean best AUC reaches solo's after 20 and after 50.

    FEDBO_DATA=folder python benchmarks/landmine.py --box both --json out.json
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo_paper.contests import contest, screen
from fedbo_paper.contests.grounds import INITIAL, Trained, grid
from fedbo_paper.data import MissingData
from fedbo_paper.problems.problems import Landmine

SIDE = 25
REACH = (20, 50)


def reach(ground: Trained, curves: contest.Curves, evaluations: int) -> dict[str, Any]:
    """After how many evaluations the mean best score is solo's after 20 and 50; None if never."""
    result: dict[str, Any] = {}
    for name, scores in curves.items():
        solo, own = (
            contest.best_so_far(ground, each[:, : scores.shape[1]]).mean(axis=(0, 1))
            for each in (curves[contest.SOLO], scores)
        )
        result[name] = {
            "mean": {str(n): float(own[INITIAL + n - 1]) for n in contest.AT if n <= evaluations},
            "reach": {},
        }
        for n in (n for n in REACH if n <= evaluations):
            there = np.flatnonzero(own >= solo[INITIAL + n - 1])
            after = max(int(there[0]) + 1 - INITIAL, 0) if len(there) else None
            result[name]["reach"][str(n)] = after
    return result


def show(found: dict[str, Any]) -> None:
    at = [*found[contest.SOLO]["mean"]]
    reached = [*found[contest.SOLO]["reach"]]
    screen.table(
        "mean best AUC after so many evaluations, and after how many solo's mean is reached",
        ["policy", *at, *(f"solo's at {n}" for n in reached)],
        [
            [
                name,
                *(f"{figures['mean'][n]:.4f}" for n in at),
                *(
                    "never" if (after := figures["reach"][n]) is None else str(after)
                    for n in reached
                ),
            ]
            for name, figures in found.items()
        ],
    )


def main() -> None:
    parser = contest.arguments(__doc__)
    contest.policy_arguments(parser)
    parser.add_argument("--box", choices=("linear", "log", "both"), default="both")
    options = parser.parse_args()
    boxes: dict[str, Any] = {}
    for box in ("linear", "log") if options.box == "both" else (options.box,):
        try:
            ground = Trained(Landmine(box=box))
        except MissingData as error:
            raise screen.refuse(str(error)) from None
        ground.look_around(grid(SIDE, 2), options.cache, options.jobs)
        figures, curves = contest.hold(ground, f"landmine, {box} box", options)
        found = reach(ground, curves, options.evaluations)
        show(found)
        boxes[box] = figures | {"scores": found}
    contest.finish(next(iter(boxes.values())) | {"boxes": boxes}, options)
