"""Compare all policies, and samplers of Optuna and BoTorch, on any table of scores.

The file has the arrays `accuracy` (tasks x configurations, higher is better) and `config`
(configurations x D). Each column of `config` should be on a sensible scale; it is mapped to [0, 1].
Only listed configurations are evaluated. Each task in turn is the target, and all other tasks are
its peers, which have made 50 trials alone. Reported is the normalised regret (best of the table -
best so far) / (best - worst) after 1, 2, 3, 5, 10, 20 and 50 trials, of which 3 are common initial
points, and how many trials runs need to reach what an agent alone has after 20. An agent alone uses
expected improvement (EI). Two references share the best settings of all peers, which is what people
would do instead: `best-first` tries three of them and then uses EI alone, and `TPE-told-the-best`
is Optuna's TPE after the same three. The paired ratios to EI alone and to best-first have 95 %
intervals over targets. EI and Thompson sampling (TS) alone always run.

--peers 5 lets each run meet 5 random peers, --history 10 peers with 10 trials. --together 10 holds
the contest among 10 sites that start at once, without any history.

The JSON also has the regret of every run. summary.py explains all keys.

    python benchmarks/table.py PATH.npz --json out.json --seeds 10
    python benchmarks/table.py PATH.npz --policies TipsThenPool,best-first --peers 5 --history 10
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
    options.add_policies(parser)
    options.add_peers(parser)
    given = options.read(parser)
    ground = read_table(given.path)
    n, D = ground.X.shape
    screen.say(f"{given.path.name}: {ground.tasks} tasks, {n} configurations, D = {D}")
    screen.finish(hold(ground, given.path.stem, given), given.json)
