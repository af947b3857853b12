"""Compare policies on 29 landmine fields, with real training.

Each field tunes the C and gamma of an SVM; the score is the AUC. Each field in turn is the target,
and all others are its peers, which have made 50 evaluations alone. A regret of 0 is the best known
AUC of the field (of a 25 x 25 grid and of all runs), and a regret of 1 is the median of the grid.
The contest is held in the paper's linear box and in the log box. The tables are those of table.py,
and one more: how many evaluations each policy needs until its mean best AUC is solo's at 20 and 50.

    FEDBO_DATA=folder python benchmarks/landmine.py --box both --json out.json
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo_paper.contests import options, screen
from fedbo_paper.contests.contest import SOLO
from fedbo_paper.contests.grounds import INITIAL, Trained, grid
from fedbo_paper.contests.measures import Curves, best_so_far
from fedbo_paper.contests.summary import hold, mean_best
from fedbo_paper.problems.problems import Landmine

SIDE = 25
REACH = (20, 50)


def reach(ground: Trained, curves: Curves, evaluations: int) -> dict[str, Any]:
    """Compute when each policy's mean best score reaches solo's at 20 and 50; None if never."""
    result: dict[str, Any] = {}
    for name, scores in curves.items():
        solo, own = (
            best_so_far(ground, each[:, : scores.shape[1]]).mean(axis=(0, 1))
            for each in (curves[SOLO], scores)
        )
        result[name] = {"mean": mean_best(ground, scores, evaluations), "reach": {}}
        for n in (n for n in REACH if n <= evaluations):
            there = np.flatnonzero(own >= solo[INITIAL + n - 1])
            after = max(int(there[0]) + 1 - INITIAL, 0) if len(there) else None
            result[name]["reach"][str(n)] = after
    return result


def show(found: dict[str, Any]) -> None:
    """Print the table of `reach`."""
    at, reached = ([*found[SOLO][key]] for key in ("mean", "reach"))
    rows = [
        [
            name,
            *(f"{figures['mean'][n]:.4f}" for n in at),
            *(
                "never" if figures["reach"][n] is None else str(figures["reach"][n])
                for n in reached
            ),
        ]
        for name, figures in found.items()
    ]
    screen.table(
        "mean best AUC after this many evaluations, and evaluations needed to reach solo's mean",
        ["policy", *at, *(f"solo's at {n}" for n in reached)],
        rows,
    )


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    options.add_policies(parser)
    parser.add_argument("--box", choices=("linear", "log", "both"), default="both")
    given = parser.parse_args()
    boxes: dict[str, Any] = {}
    for box in ("linear", "log") if given.box == "both" else (given.box,):
        ground = Trained(Landmine(box=box), grid(SIDE, 2), given.cache, given.jobs)
        figures, curves = hold(ground, f"landmine, {box} box", given)
        found = reach(ground, curves, given.evaluations)
        show(found)
        boxes[box] = figures | {"scores": found}
    screen.finish(next(iter(boxes.values())) | {"boxes": boxes}, given.json)
