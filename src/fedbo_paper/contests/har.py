"""Compare policies on 30 people's mobile phones (UCI HAR), with real training.

Each person tunes the batch size, L2 penalty and learning rate of a logistic regression; the score
is the validation error. Each person in turn is the target, and all others are its peers, which have
made 50 evaluations alone. The regret is the error above the person's best known error: the best of
256 Sobol points and of all runs. It is not normalised, because for many people half of the box has
the best error. The tables, the JSON and the options for peers are those of table.py; differences
from EI and TS alone are errors. No portfolio is possible, because no configurations are listed.

    FEDBO_DATA=folder python benchmarks/har.py --json out.json
"""

from __future__ import annotations

import argparse

import numpy as np

from fedbo_paper.contests import options, screen
from fedbo_paper.contests.grounds import Trained
from fedbo_paper.contests.summary import hold, mean_best
from fedbo_paper.problems.problems import Box, Har

SURVEY = 8  # 2^8 points


def ground(box: Box, given: argparse.Namespace) -> Trained:
    """Create the tasks, and survey them.

    Args:
        box: The scale of the box.
        given: The options of a contest, of which ``cache`` and ``jobs`` are used.
    """
    from scipy.stats.qmc import Sobol

    points = Sobol(3, rng=np.random.default_rng(0)).random_base2(SURVEY)
    return Trained(Har(box=box), points, given.cache, given.jobs, normalise=False)


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    options.add_policies(parser)
    options.add_peers(parser)
    parser.add_argument("--box", choices=("linear", "log"), default="linear")
    given = options.read(parser)
    people = ground(given.box, given)
    result, curves = hold(people, "HAR, error above the best known one of each person", given)
    errors = {name: mean_best(people, each, given.evaluations) for name, each in curves.items()}
    screen.table(
        "mean lowest error after this many evaluations",
        ["policy", *next(iter(errors.values()))],
        [[name, *(f"{error:.5f}" for error in by_n.values())] for name, by_n in errors.items()],
    )
    screen.finish(result | {"errors": errors, "box": given.box}, given.json)
