"""Leave one task out on any table of scores: every policy, and Optuna's samplers alone, paired.

The file has arrays `accuracy` (tasks x configurations, higher is better) and `config`
(configurations x D, columns on a sensible scale, mapped to [0, 1] here); queries are restricted to
the listed configurations. Each task in turn is the target and all others its peers, which have
made 50 evaluations alone. Reported at 5, 10, 20 and 50 evaluations after 3 common initial points:
the normalised regret (best of the table - best so far) / (best - worst), its paired ratio to and
difference from solo Thompson sampling, and mean ranks, with 95 % intervals over targets.

    python benchmarks/table.py PATH.npz --json out.json --seeds 10
"""

from __future__ import annotations

from pathlib import Path

from fedbo_paper.contests import contest, screen
from fedbo_paper.contests.grounds import read_table


def main() -> None:
    parser = contest.arguments(__doc__)
    parser.add_argument("path", type=Path, metavar="PATH.npz")
    contest.policy_arguments(parser)
    options = parser.parse_args()
    ground = read_table(options.path)
    if ground.tasks < 2:
        raise screen.refuse(f"{options.path} has {ground.tasks} task, expected 2 or more")
    n, D = ground.X.shape
    screen.say(f"{options.path.name}: {ground.tasks} tasks, {n} configurations, D = {D}")
    result, _ = contest.hold(ground, options.path.stem, options)
    contest.finish(result, options)
