"""Compare all policies, and samplers of Optuna and BoTorch, on any table of scores.

The file has the arrays `accuracy` (tasks x configurations, higher is better) and `config`
(configurations x D). Each column of `config` should be on a sensible scale; it is mapped to [0, 1].
Only listed configurations are evaluated. Each task in turn is the target, and all other tasks are
its peers, which have made 50 evaluations alone. Reported are, at 5, 10, 20 and 50 evaluations after
3 common initial points: the normalised regret (best of the table - best so far) / (best - worst),
its paired ratio to and difference from that of an agent alone, and mean ranks, with 95 % intervals
over targets. An agent alone uses expected improvement (EI); Thompson sampling alone (TS) is a
second reference. Both always run.

--peers 5 lets each run meet 5 random peers, --history 10 peers with 10 evaluations. --together 10
holds the contest among 10 sites that start at once, without any history. The policy `portfolio`
is a reference that shares raw trials: it evaluates three configurations that suit the peers, and
then uses EI alone.

The JSON also has the regret of every run: `runs` holds, for each policy, targets x seeds x
evaluations, those of the initial points included. summary.py explains all keys.

    python benchmarks/table.py PATH.npz --json out.json --seeds 10
    python benchmarks/table.py PATH.npz --policies PTS,portfolio --peers 5 --history 10
    python benchmarks/table.py PATH.npz --together 10
"""

from __future__ import annotations

from pathlib import Path

from fedbo_paper.contests import options, screen
from fedbo_paper.contests.grounds import read_table
from fedbo_paper.contests.summary import hold


def main() -> None:
    """Run the command."""
    parser = options.contest_parser(__doc__)
    parser.add_argument("path", type=Path, metavar="PATH.npz")
    options.add_policies(parser, listed=True)
    options.add_peers(parser)
    given = options.read(parser)
    ground = read_table(given.path)
    n, D = ground.X.shape
    screen.say(f"{given.path.name}: {ground.tasks} tasks, {n} configurations, D = {D}")
    result, _ = hold(ground, given.path.stem, given)
    screen.finish(result, given.json)
