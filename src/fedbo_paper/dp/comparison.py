"""Which methods are compared, what was published about them, and the runs that this needs.

The published values are 1 − AUC at round 60, averaged over all 29 fields (NeurIPS 2021, and the
notebook in its authors' code). Their scores are of noisy probabilities, ours are of decision values
unless ``scoring`` says otherwise, so levels may differ; differences between methods are what to
compare.
"""

from __future__ import annotations

import msgspec

from fedbo_paper.dp.methods import FTS, Alone, Method, Served
from fedbo_paper.dp.one_release import ExpectedImprovement, Released
from fedbo_paper.dp.run import Job
from fedbo_paper.dp.server import PrivateMean
from fedbo_paper.problems.problems import Landmine

#: Seeds of the whole comparison: see docs/experiments.md for what they cost.
SEEDS = 10
#: The round of the published values.
PUBLISHED_ROUND = 60


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A method in the table and in the figure.

    Args:
        method: The method.
        label: What it is called in the table and in the figure.
        published: The published 1 − AUC at round 60, if there is one.
        published_epsilon: The published ε.
        is_drawn: Whether the figure shows its curve against rounds, beside its last value.
    """

    method: Method
    label: str
    published: float | None = None
    published_epsilon: float | None = None
    is_drawn: bool = True


#: Everything that is compared, in the order of tables and legends; differences are taken to the
#: first. A further method is one more entry.
CURVES = (
    Curve(method=Alone(name="TS"), label="TS"),
    Curve(method=FTS(name="FTS"), label="FTS", is_drawn=False),
    Curve(method=Served(name="FTS-DE"), label="FTS-DE", published=0.2314),
    Curve(
        method=Served(name="DP-FTS-DE-z1", aggregate=PrivateMean(z=1.0)),
        label="DP-FTS-DE, z = 1",
        published=0.2319,
        published_epsilon=15.17,
    ),
    Curve(
        method=Served(name="DP-FTS-DE-z2", aggregate=PrivateMean(z=2.0)),
        label="DP-FTS-DE, z = 2",
        published=0.2332,
        published_epsilon=5.14,
    ),
    Curve(
        method=Served(name="DP-FTS-DE-z4", aggregate=PrivateMean(z=4.0)),
        label="DP-FTS-DE, z = 4",
        published=0.2373,
        published_epsilon=2.16,
    ),
    Curve(method=ExpectedImprovement(name="EI"), label="EI alone"),
    Curve(method=Released(name="release-2"), label="one release, ε ≤ 2"),
    Curve(
        method=Released(name="release-1", epsilon=1.0), label="one release, ε ≤ 1", is_drawn=False
    ),
    Curve(
        method=Released(name="release-200", epsilon=200.0),
        label="one release, ε ≤ 200",
        is_drawn=False,
    ),
    Curve(method=Released(name="null", is_empty=True), label="null (noise alone)"),
    Curve(
        method=Alone(name="TS-box", starts=1),
        label="TS, whole box",
        published=0.2375,
        is_drawn=False,
    ),
    Curve(
        method=Served(name="FTS-mean-box", starts=1, parts=1),
        label="FTS-mean, whole box",
        published=0.2346,
        is_drawn=False,
    ),
    Curve(
        method=ExpectedImprovement(name="EI-box", starts=1),
        label="EI alone, whole box",
        is_drawn=False,
    ),
    Curve(
        method=Released(name="release-2-box", starts=1),
        label="one release, whole box",
        is_drawn=False,
    ),
    Curve(
        method=Released(name="null-box", starts=1, is_empty=True),
        label="null, whole box",
        is_drawn=False,
    ),
)

#: Who is compared with whom, beside TS: a method, and what it is judged against. Both have the same
#: settings and the same initial points.
PAIRS = (
    ("release-2", "EI"),
    ("release-2", "null"),
    ("release-1", "EI"),
    ("release-200", "EI"),
    ("null", "EI"),
    ("release-2-box", "EI-box"),
    ("release-2-box", "null-box"),
)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of the comparison: each method with each seed.

    Args:
        problem: What the agents tune: the landmine fields in the linear box by default.
        first_seed: The first seed.
        seeds: Number of seeds.
        agents: Number of agents.
        rounds: Number of rounds.

    >>> len(Comparison(seeds=2).jobs())
    32
    """

    problem: Landmine = Landmine()
    first_seed: int = 0
    seeds: int = SEEDS
    agents: int = 29
    rounds: int = 60

    def jobs(self) -> list[Job]:
        """Return the runs; methods alternate, so that the remaining time can be estimated."""
        return [
            self.job(curve, seed)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for curve in CURVES
        ]

    def job(self, curve: Curve, seed: int) -> Job:
        """Return the run of a method with a seed."""
        return Job(
            problem=self.problem,
            method=curve.method,
            seed=seed,
            agents=self.agents,
            rounds=self.rounds,
        )


def quick(comparison: Comparison) -> Comparison:
    """Return a small part of a comparison, to see that everything works."""
    return msgspec.structs.replace(comparison, seeds=2, rounds=10)
