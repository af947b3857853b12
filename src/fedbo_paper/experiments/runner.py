"""Run the jobs of any experiment, several at a time, and store those that are finished.

Jobs run in processes of this machine through joblib. To use a cluster, connect to it::

    with cluster.connected("dask", "tcp://10.0.0.1:8786"):
        reproduce(wanted(["fig2"]), "results")

A job's outcome depends on the job alone. The number of processes, the backend and interruptions do
not change any number; only CPU seconds differ from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
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
    store: Store[Job],
    folder: Path | None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Run all jobs that the store does not have: first the histories of agents, then the runs.

    Args:
        plans: What to run.
        store: Where finished jobs are.
        folder: The data folder, or None for the usual places.
        jobs: How many run at once; None leaves it to `joblib.parallel_config`.
        progress: Called after every job.
    """
    alone = list(dict.fromkeys(history for plan in plans for history in plan.histories))
    later: dict[Run | Diagnosis, Plan] = {}
    for plan in plans:
        later |= dict.fromkeys((*plan.diagnoses, *plan.runs), plan)

    def stage(name: str, tasks: Sequence[_Task], total: int) -> None:
        show = progress or (lambda stage, done, of: None)
        show(name, total - len(tasks), total)
        calls = [store.guarded(job, partial(perform, job, folder, alone)) for job, alone in tasks]
        with closing(workers.run(calls, jobs)) as finished:
            for done, (i, table) in enumerate(finished, total - len(tasks) + 1):
                store.put(tasks[i][0], table)
                show(name, done, total)

    stage("agents alone", [(job, ()) for job in alone if job not in store], len(alone))
    known = {job: store.get(job) for job in alone}
    tasks: list[_Task] = []
    for job, plan in later.items():
        if job not in store:
            tables = [known[history] for history in plan.before(job)]
            tasks.append((job, tuple(table for table in tables if table is not None)))
    stage("runs", tasks, len(later))
