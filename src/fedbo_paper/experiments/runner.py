"""Run the jobs of any experiment, several at a time, and store those that are finished.

Jobs run in processes of this machine through joblib. To use another of joblib's backends (Dask,
Ray), select it with joblib::

    with joblib.parallel_config(backend="dask"):
        reproduce(wanted(["fig2"]), "results")

A job's outcome depends on the job alone. The number of processes, the backend and interruptions do
not change any number; only CPU seconds differ from run to run.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedbo.table import Table
from fedbo_paper.experiments.plan import Plan
from fedbo_paper.experiments.run import perform
from fedbo_paper.experiments.spec import Diagnosis, Job, Run
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
    """Run all jobs that the store does not have: first the histories of agents, then the runs.

    Args:
        plans: What to run.
        store: Where finished jobs are.
        folder: The data folder, or None for the usual places.
        jobs: The number of processes; None leaves it to `joblib.parallel_config`.
        progress: Called after every job.
    """
    alone = list(dict.fromkeys(history for plan in plans for history in plan.histories))
    later: dict[Run | Diagnosis, Plan] = {}
    for plan in plans:
        later |= dict.fromkeys((*plan.diagnoses, *plan.runs), plan)

    def stage(name: str, tasks: Sequence[_Task], total: int) -> None:
        show = progress or (lambda stage, done, of: None)
        show(name, total - len(tasks), total)
        finished = _finished(tasks, folder, jobs)
        for done, (job, table) in enumerate(finished, total - len(tasks) + 1):
            store.put(job, table)
            show(name, done, total)

    stage("agents alone", [(job, ()) for job in alone if job not in store], len(alone))
    known = {job: store.get(job) for job in alone}
    tasks: list[_Task] = []
    for job, plan in later.items():
        if job not in store:
            tables = [known[history] for history in plan.before(job)]
            tasks.append((job, tuple(table for table in tables if table is not None)))
    stage("runs", tasks, len(later))


def _finished(
    tasks: Sequence[_Task], folder: Path | None, jobs: int | None
) -> Iterator[tuple[Job, Table]]:
    """Jobs and their tables, in the order in which they finish."""
    from joblib import Parallel, delayed, effective_n_jobs
    from joblib.parallel import get_active_backend

    first = os.getpid()
    calls = [delayed(_in_worker)(*task, folder, first) for task in tasks]
    if get_active_backend()[0].supports_return_generator:
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(calls)
        return
    block = 4 * effective_n_jobs(jobs or -1)  # Ray's backend returns all results at once
    for start in range(0, len(calls), block):
        yield from Parallel(n_jobs=jobs, batch_size=1)(calls[start : start + block])


def _in_worker(
    job: Job, alone: Sequence[Table], folder: Path | None, first: int
) -> tuple[Job, Table]:
    """Do a job; a worker process leaves Ctrl-C to the first process."""
    if os.getpid() != first and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return job, perform(job, folder, alone)
