"""From what is wanted to the jobs that make it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from fedbo.space.axis import Value
from fedbo_paper.data import MissingData, folders
from fedbo_paper.experiments.published import NAME, Published
from fedbo_paper.experiments.spec import (
    POWERS,
    Diagnosis,
    Experiment,
    History,
    Points,
    Run,
    Selection,
    kind_of,
    seed_of,
)
from fedbo_paper.problems.problems import Landmine, Tasks
from fedbo_paper.problems.synthetic import Synthetic

_M, _PEERS, _FEW = 100, 10, 4  # of a diagnosis: features, peers of each target, targets if quick


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a selection, and what the agents have to do alone before them."""

    selection: Selection
    runs: tuple[Run, ...]
    histories: tuple[History, ...]
    diagnoses: tuple[Diagnosis, ...] = ()

    def before(self, job: Run | Diagnosis) -> tuple[History, ...]:
        """The histories that a job needs, one for each agent of the problem, in their order."""
        if isinstance(job, Run) and job.arm.method == "TS":
            return ()
        return tuple(history for history in self.histories if history.seed == job.seed)


def plan(selection: Selection, folder: Path | None) -> Plan:
    """The jobs of a selection; runs of all arms take turns, so that the time left can be told."""
    spec = selection.spec
    tasks = spec.problem.tasks(folder)
    published = Published.load(folder) if isinstance(spec.problem, Landmine) else None
    if spec.needs_published and published is None:
        places = " or ".join(map(str, folders(folder)))
        raise MissingData(
            f"the published landmine runs are not there: {NAME} is not in {places}. Without it "
            "there is nothing to compare with; the other experiments do without it."
        )
    others = tasks.agents if isinstance(spec.problem, Synthetic) else tasks.agents - 1
    arms = spec.arms_of(selection.figures, others, POWERS[selection.preset])
    runs = tuple(
        Run(
            experiment=selection.experiment,
            problem=spec.problem,
            preset=selection.preset,
            maximiser=selection.maximiser,
            arm=arm,
            target=target,
            repeat=repeat,
            seed=seed,
            iterations=spec.iterations,
            initial=_initial(spec, tasks, published, seed, target, repeat),
        )
        for seed in spec.seeds
        for repeat in range(spec.repeats)
        for arm, targets in arms.items()
        for target in targets
    )
    return Plan(
        selection=selection,
        runs=runs,
        histories=_histories(selection, tasks, runs),
        diagnoses=_diagnoses(selection, tasks, runs),
    )


def _histories(selection: Selection, tasks: Tasks, runs: tuple[Run, ...]) -> tuple[History, ...]:
    """Each agent's solo run for every seed, as long as the longest that a run needs."""
    spec = selection.spec
    needed = {(run.seed, _length(run)) for run in runs if run.arm.method != "TS"}
    if not needed or isinstance(spec.problem, Synthetic):
        return ()
    longest = max(length for _, length in needed)
    return tuple(
        History(
            problem=spec.problem,
            preset=selection.preset,
            maximiser=selection.maximiser,
            agent=agent,
            seed=seed,
            iterations=longest,
            initial=_random(spec, tasks, "initial alone", seed, agent),
        )
        for seed in sorted({seed for seed, _ in needed})
        for agent in range(tasks.agents)
    )


def _diagnoses(selection: Selection, tasks: Tasks, runs: tuple[Run, ...]) -> tuple[Diagnosis, ...]:
    """What the messages of figure 2 are worth to every agent, with the paper's usual M."""
    if "fig2" not in selection.figures:
        return ()
    first = next(run for run in runs if run.arm.method == "FTS" and run.arm.M == _M)
    diagnosis = Diagnosis(
        problem=first.problem,
        preset=first.preset,
        maximiser=first.maximiser,
        M=_M,
        t_n=first.arm.t_n,
        peers=_PEERS,
        targets=_FEW if selection.quick else tasks.agents,
        seed=first.seed,
    )
    return (diagnosis,)


def _length(run: Run) -> int:
    return run.arm.t_n + (run.iterations if run.arm.every else 0)


def _initial(
    spec: Experiment,
    tasks: Tasks,
    published: Published | None,
    seed: int,
    target: int,
    repeat: int,
) -> Points:
    """The published initial points where there are any, else random ones."""
    if published is not None and published.has(target, repeat):
        return _points(published.initial(target, repeat))
    return _random(spec, tasks, "initial", seed, target, repeat)


def _random(spec: Experiment, tasks: Tasks, *key: str | int) -> Points:
    rng = np.random.default_rng(seed_of(kind_of(spec.problem), *key))
    return _points([tasks.space.decode(x) for x in tasks.space.sample(rng, spec.initial)])


def _points(given: Sequence[dict[str, Value]]) -> Points:
    return tuple(tuple(params.items()) for params in given)
