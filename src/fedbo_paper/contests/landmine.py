"""Compare policies on 29 landmine fields, with real training.

Each field tunes the C and gamma of an SVM; the score is the AUC. Each field in turn is the target,
and all others are its peers, which have made 50 trials alone. A regret of 0 is the best known
AUC of the field (of a 25 x 25 grid and of all runs), and a regret of 1 is the median of the grid.
The contest is held in the paper's linear box and in the log box. The tables and the options are
those of table.py; one more table has the mean best AUC. In the JSON, `boxes` has the figures and
runs of each box, with the keys that summary.py explains.

    FEDBO_DATA=folder python benchmarks/landmine.py --box both --json out.json
"""

from __future__ import annotations

import argparse
from typing import Any

from fedbo_paper.contests import options, screen
from fedbo_paper.contests.grounds import Trained, grid
from fedbo_paper.contests.summary import hold
from fedbo_paper.problems.problems import Box, Landmine

SIDE = 25


def ground(box: Box, given: argparse.Namespace) -> Trained:
    """Create the tasks, and survey them.

    Args:
        box: The scale of the box.
        given: The options of a contest, of which ``cache`` and ``jobs`` are used.
    """
    return Trained(Landmine(box=box), grid(SIDE, 2), given.cache, given.jobs)


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    options.add_policies(parser)
    options.add_peers(parser)
    parser.add_argument("--box", choices=("linear", "log", "both"), default="both")
    given = options.read(parser)
    boxes: dict[str, Any] = {}
    for box in ("linear", "log") if given.box == "both" else (given.box,):
        boxes[box] = hold(ground(box, given), f"landmine, {box} box", given)
    first = next(iter(boxes.values()))
    figures = {key: each for key, each in first.items() if key != "runs"}  # they are in the box
    screen.finish(figures | {"boxes": boxes}, given.json)
