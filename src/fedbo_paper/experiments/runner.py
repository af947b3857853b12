"""Run the jobs of any experiment, several at a time, and store those that are finished.

A job's outcome depends on the job alone. The number of processes, the cluster and interruptions do
not change any number; only CPU seconds differ from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from fedbo.table import Table
from fedbo_paper.experiments.plan import Job, Plan
from fedbo_paper.experiments.run import perform
from fedbo_paper.harness import store as stores
from fedbo_paper.harness.store import Store

#: Called with the name of a stage, how many of its jobs are done, and how many there are.
Progress = Callable[[str, int, int], None]
#: Runs calls somewhere, as `workers.run` and `Cluster.run` do.
Calls = Sequence[Callable[[], Table]]
RunCalls = Callable[[Calls], Generator[tuple[int, Table], None, None]]

#: The modules that decide the numbers of a job.
SOURCE = (
    "fedbo",
    "fedbo_paper.preset",
    "fedbo_paper.problems",
    *(f"fedbo_paper.experiments.{name}" for name in ("plan", "run", "spec")),
)
key = partial(stores.key, source=SOURCE)

J = TypeVar("J", bound=stores.Job)


def run(
    plans: Sequence[Plan],
    store: Store[Job],
    folder: Path | None,
    run_calls: RunCalls,
    progress: Progress,
) -> None:
    """Run all jobs that the store does not have: first the histories of agents, then the runs.

    Args:
        plans: What to run.
        store: Where finished jobs are.
        folder: The data folder, or None for the usual places.
        run_calls: Runs calls in processes or on a cluster.
        progress: Called after every job.
    """
    first: dict[Job, Callable[[], Table]] = {
        history: partial(perform, history, folder) for plan in plans for history in plan.histories
    }
    alone = finish("agents alone", first, store, run_calls, progress)
    calls: dict[Job, Callable[[], Table]] = {
        run: partial(perform, run, folder, [alone[history] for history in plan.before(run)])
        for plan in plans
        for run in plan.runs
    }
    finish("runs", calls, store, run_calls, progress)


def finish(
    stage: str,
    calls: Mapping[J, Callable[[], Table]],
    store: Store[J],
    run_calls: RunCalls,
    progress: Progress,
) -> dict[J, Table]:
    """Return the tables of all jobs; those that are missing are run, and stored as they finish.

    Args:
        stage: What progress is called for.
        calls: Computes the table of each job.
        store: Where finished jobs are.
        run_calls: Runs calls in processes or on a cluster.
        progress: Called after every job.
    """
    tables = {job: store.get(job) for job in calls}
    missing = [job for job, table in tables.items() if table is None]
    before = len(calls) - len(missing)
    progress(stage, before, len(calls))
    with closing(run_calls([store.guarded(job, calls[job]) for job in missing])) as finished:
        for done, (i, table) in enumerate(finished, before + 1):
            store.put(missing[i], table)
            tables[missing[i]] = table
            progress(stage, done, len(calls))
    return {job: table for job, table in tables.items() if table is not None}
