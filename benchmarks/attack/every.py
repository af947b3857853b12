"""Measure what a newcomer loses if its peers publish less often.

Messages that are sent less often reveal less (reveal.py), and may be out of date. Here the peers on
the SVM table have made between 1 and 50 trials, a random number each, and have published by one of
these rules. A newcomer with TipsThenPool, the default policy, receives the last message of each.

every trial     a message after each score
every fifth     a message after each fifth score, as with every=5
every twentieth the same with every=20
worth it        a message after a new best score, or once the scores have doubled since the last
                message, as by default

The regret is (best − best so far) / (best − worst). Intervals are 95 % bootstraps over targets,
with all their seeds; differences are paired.

    FEDBO_DATA=folder python benchmarks/attack/every.py --json out.json
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from optuna.trial import create_trial

from fedbo.optuna.mailbox import due
from fedbo_paper.contests import contest, hostile, measures, options, screen
from fedbo_paper.contests.contest import History, Scores
from fedbo_paper.contests.grounds import Listed, read_table
from fedbo_paper.data import find
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Floats

RULES = {"every trial": 1, "every fifth": 5, "every twentieth": 20, "worth it": None}
BASE = "every trial"
AT = (1, 2, 3, 5, 10, 20)  # trials


def published(history: History, every: int | None) -> History:
    """Return the trials behind the last message; none if there was no message yet."""
    sent = due([create_trial(value=score) for _, score in history], every, "maximize")
    return history[: sent[-1]] if sent else []


def play(
    ground: Listed,
    known: Sequence[History],
    target: int,
    seeds: Sequence[int],
    trials: int,
) -> Scores:
    """Run one target with messages that its peers have published by each rule."""
    policy = contest.DEFAULT()
    agreed = contest.federation(ground, policy)
    rng = np.random.default_rng([target, seeds[0]])
    made = [history[: rng.integers(1, len(history) + 1)] for history in known]
    scores: Scores = {}
    for rule, every in RULES.items():
        behind = [published(history, every) for history in made]
        received = [
            contest.message(agreed, n, history, seeds[0])
            for n, history in enumerate(behind)
            if n != target and history
        ]
        for seed in seeds:
            here = (target, seed, trials)
            scores[rule, target, seed] = contest.run(ground, policy, received, *here)
    return scores


def figures(regret: Floats, base: Floats) -> dict[str, Any]:
    """Compute mean regrets, and paired differences from publishing after every trial."""
    found: dict[str, Any] = {"regret": {}, "difference": {}}
    for n in (n for n in AT if n <= regret.shape[-1]):
        here, there = (each[:, :, n - 1] for each in (regret, base))
        found["regret"][str(n)] = intervals.bootstrap(np.positive, here)
        found["difference"][str(n)] = intervals.bootstrap(np.subtract, here, there)
    return found


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    add = parser.add_argument
    text = f"the SVM table; default: {hostile.TABLE} in the data folder"
    add("--table", type=Path, metavar="PATH", help=text)
    text = "runs on a target; default: 6"
    add("--seeds", type=options.positive, default=6, metavar="N", help=text)
    add("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    options.add_jobs(parser)
    given = parser.parse_args()
    ground = read_table(given.table or find("tst_svm", [hostile.TABLE]))
    tasks = contest.targets(ground, "odd")
    known = contest.histories(ground, given.jobs, given.seeds)
    calls = [
        partial(play, ground, known[h], target, group, AT[-1])
        for h, group in enumerate(contest.groups(given.seeds))
        for target in tasks
    ]
    scores = screen.work("targets", calls, given.jobs)
    regrets = measures.regrets(ground, tasks, contest.curves(scores, RULES, tasks))
    found = {rule: figures(regret, regrets[BASE]) for rule, regret in regrets.items()}
    for key, title in (("regret", "mean regret"), ("difference", f"difference from {BASE!r}")):
        screen.table(
            f"{title} (95 % intervals)",
            ["peers publish", *(f"at {n}" for n in AT)],
            [
                [rule, *(screen.estimate(each[key][str(n)], 3) for n in AT)]
                for rule, each in found.items()
            ],
        )
    screen.finish({"seeds": given.seeds, "targets": len(tasks), "rules": found}, given.json)


if __name__ == "__main__":
    screen.run(main)
