"""Compare policies on 30 people's mobile phones (UCI HAR), with real training.

Each person tunes the batch size, L2 penalty and learning rate of a logistic regression; the score
is the validation error. Each person in turn is the target, and all others are its peers, which have
made 50 trials alone. The regret is the error above the person's best known error: the best of
256 Sobol points and of all runs. It is not normalised, because for many people half of the box has
the best error. The tables, the JSON and the options are those of table.py; one more table has the
mean lowest error.

    FEDBO_DATA=folder python benchmarks/har.py --json out.json
"""

from __future__ import annotations

import argparse

import numpy as np

from fedbo_paper.contests import options, screen
from fedbo_paper.contests.grounds import Trained
from fedbo_paper.contests.summary import hold
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
    result = hold(people, "HAR, error above the best known one of each person", given)
    screen.finish(result | {"box": given.box}, given.json)
