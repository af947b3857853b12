"""Runs the jobs of any experiment, several at a time, and remembers those that are finished.

Jobs run in processes of this machine through joblib. Another of joblib's backends (Dask, Ray) is
taken by joblib's own switch::

    with joblib.parallel_config(backend="dask"):
        reproduce(wanted(["fig2"]), "results")

A job's outcome depends on the job alone, so neither the number of processes nor the backend, nor
how often a run was stopped, changes a number; only CPU seconds are never twice the same.
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
    from joblib import Parallel, delayed, effective_n_jobs
    from joblib.parallel import get_active_backend

    first = os.getpid()
    calls = [delayed(_apart)(*task, folder, first) for task in tasks]
    if get_active_backend()[0].supports_return_generator:
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(calls)
        return
    block = 4 * effective_n_jobs(jobs or -1)  # Ray's backend hands over all results at once
    for start in range(0, len(calls), block):
        yield from Parallel(n_jobs=jobs, batch_size=1)(calls[start : start + block])


def _apart(job: Job, alone: Sequence[Table], folder: Path | None, first: int) -> tuple[Job, Table]:
    """A job in a process of its own, where Ctrl-C is left to the first process."""
    if os.getpid() != first and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return job, perform(job, folder, alone)
