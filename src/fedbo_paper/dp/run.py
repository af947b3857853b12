"""One run of a whole federation: all agents start, and then take part in every round."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from fedbo.agent import Agent
from fedbo.model.kernel import one_thread
from fedbo.space.axis import Value
from fedbo.table import Cell, Table
from fedbo_paper.dp.methods import Method
from fedbo_paper.dp.regions import Regions
from fedbo_paper.experiments.spec import seed_of
from fedbo_paper.problems.problems import Landmine, Objective, Tasks

COLUMNS = ("agent", "round", "source", "score")


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
    initial: int = 10
    rounds: int = 60

    @property
    def name(self) -> str:
        return f"dp-{self.method.name}-{self.seed}"

    @property
    def rows(self) -> int:
        """The number of rows of the run's table."""
        return self.agents * (self.initial + self.rounds)


def perform(job: Job, folder: Path | None) -> Table:
    """Run a federation.

    Args:
        job: What to run.
        folder: The data folder, or None for the usual places.

    Returns:
        A row for each evaluation, in order; those of initial points have round 0.
    """
    tasks = job.problem.tasks(folder)
    federation = job.method.federation(tasks, _seed(job, "features"))
    relay = job.method.relay(federation, _seed(job, "server"))
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
            received = relay(t, agents)
            for n, agent in enumerate(agents):
                agent.receive(received)
                rows.append([n, t, *_evaluate(agent, objectives[n])])
    return Table.from_rows(COLUMNS, rows)


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
