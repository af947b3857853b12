"""Which methods are compared, what was published about them, and one run of a whole federation.

The published values are 1 − AUC at round 60, averaged over all 29 fields (NeurIPS 2021, and the
notebook in its authors' code). Their scores are of noisy probabilities, ours are of decision values
unless ``scoring`` says otherwise, so levels may differ; differences between methods are what to
compare.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from fedbo.agent import Agent
from fedbo.model.kernel import one_thread
from fedbo.space.axis import Value
from fedbo.table import Cell, Table
from fedbo_paper.dp.methods import (
    FTS,
    INITIAL,
    Alone,
    ExpectedImprovement,
    Method,
    Released,
    Served,
)
from fedbo_paper.dp.server import PrivateMean, Regions
from fedbo_paper.experiments.plan import seed_of
from fedbo_paper.problems.problems import Landmine, Objective, Tasks

#: Seeds of the whole comparison.
SEEDS = 10
#: The round of the published values.
PUBLISHED_ROUND = 60


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A method in the table and in the figure.

    Args:
        method: The method.
        label: Its name in the table and in the figure.
        published: The published 1 − AUC at round 60, if there is one.
        published_epsilon: The published ε.
        rival: The method that it is judged against.
        is_drawn: Whether the figure shows its curve against rounds, beside its last value.
    """

    method: Method
    label: str
    published: float | None = None
    published_epsilon: float | None = None
    rival: str = "TS"
    is_drawn: bool = True


#: Everything that is compared, in the order of tables and legends. A further method is one more
#: entry.
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
    Curve(method=Released(name="release-2"), label="one release, ε ≤ 2", rival="null"),
    Curve(method=Released(name="null", is_empty=True), label="null (noise alone)", rival="EI"),
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
)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A run: its fields decide all its numbers.

    Args:
        problem: What the agents tune.
        method: How the federation runs.
        seed: Seed of everything random. Methods with the same seed are paired: they have the same
            features, seeds of agents and uniform numbers behind the initial points.
        agents: Number of agents, the first ones of the problem.
        initial: Number of initial points of each agent.
        rounds: Number of rounds; every agent makes one query in each.
    """

    problem: Landmine
    method: Method
    seed: int
    agents: int = 29
    initial: int = INITIAL
    rounds: int = 60

    @property
    def name(self) -> str:
        return f"dp-{self.method.name}-{self.seed}"

    @property
    def rows(self) -> int:
        """The number of rows of the run's table."""
        return self.agents * (self.initial + self.rounds)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of the comparison: each method with each seed.

    Args:
        problem: What the agents tune: the landmine fields in the linear box by default.
        first_seed: The first seed.
        seeds: Number of seeds.
        agents: Number of agents.
        rounds: Number of rounds.

    >>> len(Comparison(seeds=2).jobs())
    22
    """

    problem: Landmine = Landmine()
    first_seed: int = 0
    seeds: int = SEEDS
    agents: int = 29
    rounds: int = 60

    def jobs(self) -> list[Job]:
        """Return the runs; methods alternate, so that the remaining time can be estimated."""
        return [
            Job(
                problem=self.problem,
                method=curve.method,
                seed=seed,
                agents=self.agents,
                rounds=self.rounds,
            )
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for curve in CURVES
        ]


def quick(comparison: Comparison) -> Comparison:
    """Return a small part of a comparison, to see that everything works."""
    return msgspec.structs.replace(comparison, seeds=2, rounds=10)


def perform(job: Job, folder: Path | None) -> Table:
    """Run a federation.

    Returns:
        A row for each evaluation, in order; those of initial points have round 0.
    """
    tasks = job.problem.tasks(folder)
    federation = job.method.federation(tasks, _seed(job, "features"))
    rng = np.random.default_rng(_seed(job, "server"))
    agents = [
        Agent(
            federation,
            job.method.policy(),
            name=f"agent-{n}",
            seed=_seed(job, "agent", n),
            settings=job.method.settings(),
            initial=initial_points(job, tasks, n),
        )
        for n in range(job.agents)
    ]
    objectives = [tasks.objective(n, _seed(job, "noise", n)) for n in range(job.agents)]
    rows: list[list[Cell]] = []
    with one_thread():
        for n, agent in enumerate(agents):
            rows += [[n, 0, *_evaluate(agent, objectives[n])] for _ in range(job.initial)]
        for t in range(1, job.rounds + 1):
            received = job.method.handed_out(t, agents, federation, rng)
            for n, agent in enumerate(agents):
                agent.receive(received)
                rows.append([n, t, *_evaluate(agent, objectives[n])])
    return Table.from_rows(("agent", "round", "source", "score"), rows)


def initial_points(job: Job, tasks: Tasks, n: int) -> list[dict[str, Value]]:
    """Return the initial points of agent n: uniformly random in its region of `Method.starts`."""
    regions = Regions(tasks.space.dimensions, job.method.starts)
    rng = np.random.default_rng(_seed(job, "initial", n))
    U = rng.random((job.initial, tasks.space.dimensions))
    region = int(regions.assigned(job.agents)[n])
    return [tasks.space.decode(x) for x in regions.place(U, region)]


def _evaluate(agent: Agent, objective: Objective) -> tuple[str, float]:
    trial = agent.ask()
    score = objective(dict(trial.params))
    agent.tell(trial, score)
    return trial.source, score


def _seed(job: Job, purpose: str, *parts: int) -> int:
    """The same for every method, so that methods are paired."""
    return seed_of("dp", purpose, job.seed, *parts)
