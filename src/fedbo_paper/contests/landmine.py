"""Compare policies on 29 landmine fields, with real training.

Each field tunes the C and gamma of an SVM; the score is the AUC. Each field in turn is the target,
and all others are its peers, which have made 50 evaluations alone. A regret of 0 is the best known
AUC of the field (of a 25 x 25 grid and of all runs), and a regret of 1 is the median of the grid.
The contest is held in the paper's linear box and in the log box. The tables and the options for
peers are those of table.py. One more table says how many evaluations each policy needs until its
mean best AUC is that of EI alone, or of TS alone, at 20 and 50. In the JSON, `boxes` has the
figures and runs of each box, with the keys that summary.py explains. `scores` has the mean best AUC
and the evaluations needed: `reach_ei` to reach EI alone, `reach` to reach TS alone. No portfolio is
possible, because no configurations are listed.

    FEDBO_DATA=folder python benchmarks/landmine.py --box both --json out.json
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from fedbo_paper.contests import options, screen
from fedbo_paper.contests.contest import EI, TS
from fedbo_paper.contests.grounds import INITIAL, Trained, grid
from fedbo_paper.contests.measures import Curves, best_so_far
from fedbo_paper.contests.summary import hold, mean_best
from fedbo_paper.harness.intervals import Floats
from fedbo_paper.problems.problems import Box, Landmine

SIDE = 25
REACH = (20, 50)


def ground(box: Box, given: argparse.Namespace) -> Trained:
    """Create the tasks, and survey them.

    Args:
        box: The scale of the box.
        given: The options of a contest, of which ``cache`` and ``jobs`` are used.
    """
    return Trained(Landmine(box=box), grid(SIDE, 2), given.cache, given.jobs)


def reach(ground: Trained, curves: Curves, evaluations: int) -> dict[str, Any]:
    """Compute when each policy's mean best score reaches that of an agent alone at 20 and 50.

    Returns:
        For each policy ``mean``, ``reach_ei`` (EI alone) and ``reach`` (TS alone); None is never.
    """
    result: dict[str, Any] = {}
    for name, scores in curves.items():
        ei, ts, own = (
            best_so_far(ground, each[:, : scores.shape[1]]).mean(axis=(0, 1))
            for each in (curves[EI], curves[TS], scores)
        )
        at = [n for n in REACH if n <= evaluations]
        result[name] = {
            "mean": mean_best(ground, scores, evaluations),
            "reach_ei": {str(n): _reached(own, ei[INITIAL + n - 1]) for n in at},
            "reach": {str(n): _reached(own, ts[INITIAL + n - 1]) for n in at},
        }
    return result


def _reached(curve: Floats, level: float) -> int | None:
    """Return after how many evaluations after the initial points a curve reaches a level."""
    there = np.flatnonzero(curve >= level)
    return max(int(there[0]) + 1 - INITIAL, 0) if len(there) else None


def show(found: dict[str, Any]) -> None:
    """Print the table of `reach`."""
    at, reached = ([*found[EI][key]] for key in ("mean", "reach_ei"))
    rows = [
        [
            name,
            *(f"{figures['mean'][n]:.4f}" for n in at),
            *(
                "never" if figures[key][n] is None else str(figures[key][n])
                for key in ("reach_ei", "reach")
                for n in reached
            ),
        ]
        for name, figures in found.items()
    ]
    screen.table(
        "mean best AUC after this many evaluations, and evaluations needed to reach that of an "
        "agent alone",
        ["policy", *at, *(f"{alone}'s at {n}" for alone in (EI, TS) for n in reached)],
        rows,
    )


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    options.add_policies(parser)
    options.add_peers(parser)
    parser.add_argument("--box", choices=("linear", "log", "both"), default="both")
    given = options.read(parser)
    boxes: dict[str, Any] = {}
    for box in ("linear", "log") if given.box == "both" else (given.box,):
        fields = ground(box, given)
        figures, curves = hold(fields, f"landmine, {box} box", given)
        found = reach(fields, curves, given.evaluations)
        show(found)
        boxes[box] = figures | {"scores": found}
    first = next(iter(boxes.values()))
    figures = {key: each for key, each in first.items() if key != "runs"}  # they are in the box
    screen.finish(figures | {"boxes": boxes}, given.json)
