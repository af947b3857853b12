"""Runs the jobs of any experiment, several at a time, and remembers those that are finished.

Jobs run in processes of this machine through joblib. Another of joblib's backends (Dask, Ray) is
taken by joblib's own switch::

    with joblib.parallel_config(backend="dask"):
        reproduce(wanted(["fig2"]), "results")

A job's outcome depends on the job alone, so neither the number of processes nor the backend, nor
how often a run was stopped, changes a number; only CPU seconds are never twice the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from fedbo.table import Table
from fedbo_paper.experiments.plan import Plan
from fedbo_paper.experiments.run import perform
from fedbo_paper.experiments.spec import Diagnosis, Job, Run
from fedbo_paper.harness import workers
from fedbo_paper.harness.store import Store

#: Called with the name of a stage, how many of its jobs are done, and how many there are.
Progress = Callable[[str, int, int], None]

_Task = tuple[Job, tuple[Table, ...]]


def run(
    plans: Sequence[Plan],
    store: Store,
    folder: Path | None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Do all jobs that the store does not have: first what agents do alone, then the runs."""
    show = progress or (lambda stage, done, of: None)
    alone = list(dict.fromkeys(history for plan in plans for history in plan.histories))
    later: dict[Run | Diagnosis, Plan] = {}
    for plan in plans:
        later |= dict.fromkeys((*plan.diagnoses, *plan.runs), plan)
    histories = [(job, ()) for job in alone if job not in store]
    _stage("agents alone", histories, len(alone), store, folder, jobs, show)
    known = {job: store.get(job) for job in alone}
    tasks: list[_Task] = []
    for job, plan in later.items():
        if job not in store:
            tables = [known[history] for history in plan.before(job)]
            tasks.append((job, tuple(table for table in tables if table is not None)))
    _stage("runs", tasks, len(later), store, folder, jobs, show)


def _stage(
    name: str,
    tasks: Sequence[_Task],
    of: int,
    store: Store,
    folder: Path | None,
    jobs: int | None,
    show: Progress,
) -> None:
    done = of - len(tasks)
    show(name, done, of)
    for job, table in _finished(tasks, folder, jobs):
        store.put(job, table)
        done += 1
        show(name, done, of)


def _finished(
    tasks: Sequence[_Task], folder: Path | None, jobs: int | None
) -> Iterator[tuple[Job, Table]]:
    """Jobs and their tables, in the order in which they end."""
    calls = [partial(perform, job, folder, alone) for job, alone in tasks]
    for i, table in workers.run(calls, jobs):
        yield tasks[i][0], table
