"""From a selection to the jobs that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

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
    """The runs of a selection, and the histories that its agents need first."""

    selection: Selection
    runs: tuple[Run, ...]
    histories: tuple[History, ...]
    diagnoses: tuple[Diagnosis, ...] = ()

    def before(self, job: Run | Diagnosis) -> tuple[History, ...]:
        """Return the histories that a job needs, one for each agent of the problem, in order."""
        if isinstance(job, Run) and job.arm.method == "TS":
            return ()
        return tuple(history for history in self.histories if history.seed == job.seed)


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
    return Plan(
        selection=selection,
        runs=runs,
        histories=_histories(spec, tasks, runs, shared),
        diagnoses=_diagnoses(selection, tasks, runs, shared),
    )


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


def _diagnoses(
    selection: Selection, tasks: Tasks, runs: tuple[Run, ...], shared: Mapping[str, Any]
) -> tuple[Diagnosis, ...]:
    """What the messages of figure 2 are worth to every agent, with M = 100."""
    if "fig2" not in selection.figures:
        return ()
    first = next(run for run in runs if run.arm.method == "FTS" and run.arm.M == _M)
    targets = _FEW if selection.quick else tasks.agents
    t_n, seed = first.arm.t_n, first.seed
    return (Diagnosis(**shared, M=_M, t_n=t_n, peers=_PEERS, targets=targets, seed=seed),)


def _random_points(spec: Experiment, tasks: Tasks, *key: str | int) -> Points:
    rng = np.random.default_rng(seed_of(kind_of(spec.problem), *key))
    return _points(tasks.space.decode(x) for x in tasks.space.sample(rng, spec.initial))


def _points(given: Iterable[Mapping[str, Value]]) -> Points:
    return tuple(tuple(params.items()) for params in given)
