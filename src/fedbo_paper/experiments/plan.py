"""The jobs of a selection: runs, and the histories of agents that they need first.

A `Run` is one target in one arm from one set of initial points. A `History` is what an agent does
alone before it sends its first message. The fields of a job decide all its numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fedbo.space.axis import Value
from fedbo_paper.data import MissingData, folders
from fedbo_paper.experiments.published import NAME, Published
from fedbo_paper.experiments.spec import POWERS, Arm, Experiment, Maximiser, Preset, Selection
from fedbo_paper.problems.problems import Landmine, Problem, Tasks
from fedbo_paper.problems.synthetic import Synthetic

#: Initial points, each with the name and value of every parameter.
Points = tuple[tuple[tuple[str, Value], ...], ...]


class _Trials(msgspec.Struct, frozen=True, kw_only=True):
    problem: Problem
    preset: Preset
    maximiser: Maximiser
    seed: int
    iterations: int
    initial: Points

    @property
    def rows(self) -> int:
        """The number of rows of the job's table."""
        return len(self.initial) + self.iterations


class Run(_Trials, frozen=True, kw_only=True, tag=True):
    """One target in one arm."""

    experiment: str
    arm: Arm
    target: int
    repeat: int

    @property
    def name(self) -> str:
        arm, which = self.arm, f"{self.target}.{self.repeat}"
        return f"{self.experiment}-{self.preset}-{arm.method}-M{arm.M}-{which}"


class History(_Trials, frozen=True, kw_only=True, tag=True):
    """What an agent does alone, by Thompson sampling, before it sends its first message."""

    agent: int

    @property
    def name(self) -> str:
        return f"{kind_of(self.problem)}-{self.preset}-alone-{self.agent}"


Job = Run | History


def kind_of(problem: Problem) -> str:
    """Return the problem's name in files.

    >>> from fedbo_paper.problems.problems import Har
    >>> kind_of(Har())
    'har'
    """
    return type(problem).__name__.lower()


def seed_of(*parts: str | int) -> int:
    """Return a seed that differs for every tuple of words and numbers.

    >>> seed_of("har", "noise", 0) == seed_of("har", "noise", 0) != seed_of("har", "noise", 0, 0)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "little")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a selection, and the histories that its agents need first."""

    selection: Selection
    runs: tuple[Run, ...]
    histories: tuple[History, ...]

    def before(self, run: Run) -> tuple[History, ...]:
        """Return the histories that a run needs, one for each agent of the problem, in order."""
        if run.arm.method == "TS":
            return ()
        return tuple(history for history in self.histories if history.seed == run.seed)


def plan(selection: Selection, folder: Path | None) -> Plan:
    """Plan the jobs of a selection.

    The runs of all arms alternate, so that the remaining time can be estimated.

    Args:
        selection: What to run.
        folder: The data folder, or None for the usual places.

    Raises:
        MissingData: The experiment's data are not in the folder.
    """
    spec = selection.spec
    tasks = spec.problem.tasks(folder)
    published = Published.load(folder) if isinstance(spec.problem, Landmine) else None
    if spec.needs_published and published is None:
        places = " or ".join(map(str, folders(folder)))
        raise MissingData(
            f"the published landmine runs are missing: {NAME} is not in {places}. This experiment "
            "compares with them and cannot run without; the other experiments can."
        )
    others = tasks.agents if isinstance(spec.problem, Synthetic) else tasks.agents - 1
    arms = spec.arms_of(selection.figures, others, POWERS[selection.preset])
    shared: dict[str, Any] = {
        "problem": spec.problem,
        "preset": selection.preset,
        "maximiser": selection.maximiser,
    }
    runs = tuple(
        Run(
            **shared,
            experiment=selection.experiment,
            arm=arm,
            target=target,
            repeat=repeat,
            seed=seed,
            iterations=spec.iterations,
            initial=(published and _points(published.initial(target, repeat)))
            or _random_points(spec, tasks, "initial", seed, target, repeat),
        )
        for seed in spec.seeds
        for repeat in range(spec.repeats)
        for arm, targets in arms.items()
        for target in targets
    )
    histories = _histories(spec, tasks, runs, shared)
    return Plan(selection=selection, runs=runs, histories=histories)


def _histories(
    spec: Experiment, tasks: Tasks, runs: tuple[Run, ...], shared: Mapping[str, Any]
) -> tuple[History, ...]:
    """A history of each agent for every seed, as long as the longest that a run needs."""
    federated = [run for run in runs if run.arm.method != "TS"]
    if not federated or isinstance(spec.problem, Synthetic):
        return ()
    longest = max(run.arm.t_n + run.iterations * bool(run.arm.every) for run in federated)
    return tuple(
        History(
            **shared,
            agent=agent,
            seed=seed,
            iterations=longest,
            initial=_random_points(spec, tasks, "initial alone", seed, agent),
        )
        for seed in sorted({run.seed for run in federated})
        for agent in range(tasks.agents)
    )


def _random_points(spec: Experiment, tasks: Tasks, *key: str | int) -> Points:
    rng = np.random.default_rng(seed_of(kind_of(spec.problem), *key))
    return _points(tasks.space.decode(x) for x in tasks.space.sample(rng, spec.initial))


def _points(points: Iterable[Mapping[str, Value]]) -> Points:
    return tuple(tuple(params.items()) for params in points)
