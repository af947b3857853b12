"""The contest on 30 people's mobile phones (UCI HAR) with real training: logistic regression.

Each tunes batch size, L2 penalty and learning rate; the score is the validation error. Every person
in turn is the target and all others peers, which have made 50 evaluations alone. Regret is the
error beyond the best known of that person (of 256 Sobol points, and of any run), as it is: for many
people half of the box has the best error, so that there is nothing to divide by. Reported as by
table.py; the difference from solo is a difference in error.

    FEDBO_DATA=folder python benchmarks/har.py --json out.json
"""

from __future__ import annotations

import numpy as np

from fedbo_paper.contests import contest, screen
from fedbo_paper.contests.grounds import INITIAL, Trained
from fedbo_paper.data import MissingData
from fedbo_paper.problems.problems import Har

SURVEY = 8  # 2^8 points


def main() -> None:
    from scipy.stats.qmc import Sobol

    parser = contest.arguments(__doc__)
    contest.policy_arguments(parser)
    parser.add_argument("--box", choices=("linear", "log"), default="linear")
    options = parser.parse_args()
    try:
        ground = Trained(Har(box=options.box), normalise=False)
    except MissingData as error:
        raise screen.refuse(str(error)) from None
    points = Sobol(ground.space.dimensions, rng=np.random.default_rng(0)).random_base2(SURVEY)
    ground.look_around(points, options.cache, options.jobs)
    result, curves = contest.hold(
        ground, "HAR, error beyond the best known of each person", options
    )
    means = {
        name: contest.best_so_far(ground, scores).mean(axis=(0, 1))
        for name, scores in curves.items()
    }
    at = [n for n in contest.AT if n <= options.evaluations]
    errors = {
        name: {str(n): float(mean[INITIAL + n - 1]) for n in at} for name, mean in means.items()
    }
    screen.table(
        "mean lowest error after so many evaluations",
        ["policy", *map(str, at)],
        [[name, *(f"{error:.5f}" for error in by_n.values())] for name, by_n in errors.items()],
    )
    contest.finish(result | {"errors": errors, "box": options.box}, options)
