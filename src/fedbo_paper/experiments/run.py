"""Perform one job: a target's run among its peers, or an agent's history.

`fedbo.simulate` runs the target. Peers are agents that were told their own trials. Where messages
are sent before every iteration, peers replay their histories, one trial per iteration. All
randomness comes from the job itself, so its outcome is the same wherever it runs. Where peers have
no later trials (synthetic functions), each of their messages is a new draw from the same belief.

The preset "paper" has the settings of the paper and of its authors' code, "default" those of the
library. Synthetic functions define both themselves (`fedbo_paper.problems.synthetic`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from fedbo.agent import Agent
from fedbo.agent.settings import Stream
from fedbo.federation import Federation
from fedbo.message import Kind, Message
from fedbo.model.kernel import Array, one_thread
from fedbo.model.linear import Posterior
from fedbo.policy import FTS, RGPE, TAF, TS, Policy, Query, Target
from fedbo.policy.base import Power
from fedbo.simulation import Party, simulate
from fedbo.space.axis import Value
from fedbo.table import Table
from fedbo_paper.experiments.plan import History, Job, Run, kind_of, seed_of
from fedbo_paper.experiments.spec import Arm, Maximiser, Preset
from fedbo_paper.preset import PAPER, PaperSettings, paper_federation
from fedbo_paper.problems.problems import Objective, Tasks
from fedbo_paper.problems.synthetic import SyntheticTasks

Trials = Sequence[tuple[dict[str, Value], float]]

_KINDS: dict[str, Kind] = {"RGPE": "belief", "TAF": "belief"}
_FUNCTIONS = 1_000_000  # of each seed, so that no two seeds share a function


def perform(job: Job, folder: Path | None, alone: Sequence[Table] = ()) -> Table:
    """Perform a job.

    Args:
        job: What to do.
        folder: The data folder, or None for the usual places.
        alone: The histories of all agents, which runs on real data need.

    Returns:
        One row for each trial of the target.
    """
    tasks = job.problem.tasks(folder)
    with one_thread():
        return _alone(job, tasks) if isinstance(job, History) else _run(job, tasks, alone)


def federation(
    tasks: Tasks, preset: Preset, M: int, seed: int, kind: Kind = "weights"
) -> Federation:
    """Return the federation of all agents of a problem, with M features drawn from ``seed``."""
    seed %= 2**63
    if isinstance(tasks, SyntheticTasks):
        return tasks.federation(preset, M, seed)
    if preset == "paper":
        return paper_federation(tasks.space, features=M, seed=seed, kind=kind)
    return Federation(tasks.space, features=M, seed=seed, kind=kind)


def settings(tasks: Tasks, preset: Preset, maximiser: Maximiser) -> PaperSettings:
    """Return how an agent of a problem models its scores and maximises."""
    if isinstance(tasks, SyntheticTasks):
        return tasks.settings(preset)
    chosen = PAPER if preset == "paper" else PaperSettings()
    return msgspec.structs.replace(chosen, direct=maximiser == "direct")


def _alone(job: History, tasks: Tasks) -> Table:
    """One agent's Thompson sampling, from its own initial points."""
    agent = Agent(
        federation(tasks, job.preset, 1, 0),
        TS(),
        name=_name(job.agent),
        seed=seed_of(kind_of(job.problem), "alone", job.seed, job.agent),
        settings=settings(tasks, job.preset, job.maximiser),
        initial=[dict(point) for point in job.initial],
    )
    noise = seed_of(kind_of(job.problem), "noise alone", job.seed, job.agent)
    objective = tasks.objective(job.agent, noise)
    return simulate([Party(agent=agent, objective=objective)], job.iterations, every=None)


def _run(job: Run, tasks: Tasks, alone: Sequence[Table]) -> Table:
    arm = job.arm
    kind = _KINDS.get(arm.method, "weights")
    shared = federation(tasks, job.preset, max(arm.M, 1), _seed(job, "features"), kind)
    objective = _Clocked(tasks.objective(_task(job, tasks), _seed(job, "noise")))
    target = Agent(
        shared,
        _policy(arm),
        name="target",
        seed=_seed(job, "target"),
        settings=settings(tasks, job.preset, job.maximiser),
        initial=[dict(point) for point in job.initial],
    )
    truth, optimum = objective.truth, objective.optimum
    party = Party(agent=target, objective=objective, truth=truth, optimum=optimum)
    peers = [] if arm.method == "TS" else _peers(job, tasks, shared, alone)
    Agent.messages([peer.agent for peer in peers])  # now: their time does not count as the target's
    objective.start()
    table = simulate([party, *peers], job.iterations, every=arm.every)
    target_rows = table.where(agent="target")
    return _timed(target_rows, objective, alone=not arm.every)


class _Clocked:
    """The target's objective; it records the CPU time at which each evaluation starts and ends."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.truth = objective.truth
        self.optimum = objective.optimum
        self.times: list[float] = []

    def start(self) -> None:
        self.times.append(time.process_time())

    def __call__(self, params: dict[str, Value]) -> float:
        self.times.append(time.process_time())
        score = self.objective(params)
        self.times.append(time.process_time())
        return score


def _timed(table: Table, clock: _Clocked, alone: bool) -> Table:
    """The table with CPU seconds; the target's are known only if no peer worked in between."""
    spans = np.diff(clock.times)
    seconds = spans[0::2] if alone else np.full(table.height, math.nan)
    columns = {name: table[name] for name in table.columns}
    return Table(columns | {"seconds_evaluation": spans[1::2], "seconds": seconds})


def _peers(job: Run, tasks: Tasks, shared: Federation, alone: Sequence[Table]) -> list[Party]:
    """All agents but the target, with the trials they know when the target starts."""
    own = settings(tasks, job.preset, job.maximiser)
    if isinstance(tasks, SyntheticTasks):
        return [_peer(job, n, shared, own, _observed(job, tasks, n)) for n in range(job.arm.N)]
    others = [n for n in range(tasks.agents) if n != job.target]
    parties = []
    for i in range(job.arm.N):
        again, n = divmod(i, len(others))
        known, later = _known(alone[others[n]], job.arm.t_n, own)
        name = others[n] + again * tasks.agents
        parties.append(_peer(job, name, shared, own, known, later if job.arm.every else ()))
    return parties


def _peer(
    job: Run, n: int, shared: Federation, own: PaperSettings, known: Trials, later: Trials = ()
) -> Party:
    """A peer that knows some trials, and replays the later ones while the target runs."""
    kind = _Redrawing if job.arm.every and not later else Agent
    agent = kind(
        shared,
        _Replay(tuple(shared.space.encode(params) for params, _ in later)) if later else TS(),
        name=_name(n),
        seed=_seed(job, "peer", n),
        settings=msgspec.structs.replace(own, repeats="allow", random_repeats=False),
        initial=[],
    )
    for params, score in known:
        agent.tell(params, score)
    scores = iter([score for _, score in later])
    return Party(agent=agent, objective=(lambda params: next(scores)) if later else None)


class _Redrawing(Agent):
    """A peer whose observations stay: each message after the first is a new draw of its weights."""

    _redrawn = -1

    def message(self) -> Message:
        first = super().message()
        self._redrawn += 1
        if not self._redrawn:
            return first
        sequence = first.sequence + self._redrawn
        return Message.of_weights(
            self._belief.draw(self.stream(Stream.MESSAGE, sequence)),
            fingerprint=first.fingerprint,
            sender=first.sender,
            sequence=sequence,
            t_n=first.t_n,
        )

    @cached_property
    def _belief(self) -> Posterior:
        regression, y = self._outbox.evidence()
        return regression.posterior(y)


class _Replay(Policy, frozen=True):
    """Repeats earlier queries, one after the other."""

    points: tuple[Array, ...]

    def query(self, target: Target) -> Query:
        return Query(self.points[target.t - 1])


def _observed(job: Run, tasks: SyntheticTasks, n: int) -> Trials:
    seed = _seed(job, "observed", n)
    return tasks.observed(_task(job, tasks), n, job.arm.t_n, job.arm.d_n or 0.0, seed)


def _task(job: Run, tasks: Tasks) -> int:
    """The index of the target's task: a field, a person, or one of the seed's functions."""
    return job.target + _FUNCTIONS * job.seed * isinstance(tasks, SyntheticTasks)


def _known(alone: Table, t_n: int, own: PaperSettings) -> tuple[Trials, Trials]:
    """The trials that an agent's first message is based on, after t_n queries, and later ones."""
    columns = [name for name in alone.columns if name.startswith("param_")]
    names = [name.removeprefix("param_") for name in columns]
    values = zip(*(alone[name].tolist() for name in columns), strict=True)
    points = [dict(zip(names, each, strict=True)) for each in values]
    trials = list(zip(points, alone["score"].tolist(), strict=True))
    initial = int(np.count_nonzero(alone["iteration"] == 0))
    first = 0 if own.initial_in_messages else initial
    return trials[first : initial + t_n], trials[initial + t_n :]


def _policy(arm: Arm) -> Policy:
    if arm.power is not None:
        return FTS(schedule=Power(arm.power))
    return {"TS": TS(), "RGPE": RGPE(), "TAF": TAF()}[arm.method]


def _seed(job: Run, purpose: str, *parts: int) -> int:
    """The same for every arm, so that methods are paired."""
    return seed_of(kind_of(job.problem), purpose, job.seed, job.target, job.repeat, *parts)


def _name(n: int) -> str:
    return f"agent-{n}"
