"""Where ``fedbo reproduce`` runs its jobs: on this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from rich.console import Console

from fedbo.cli import checks
from fedbo_paper.cli import extras


class Where(NamedTuple):
    """The options that say where jobs run.

    Args:
        backend: "processes" for this machine, "dask" or "ray".
        scheduler: The address of the cluster.
        jobs: How many jobs run at once; None for all cores or workers.
    """

    backend: Literal["processes", "dask", "ray"]
    scheduler: str | None
    jobs: int | None

    def check(self) -> None:
        """Refuse options that do not go together; end the program if a package is missing."""
        if self.backend != "processes":
            extras.require_cluster(self.backend)
        if self.backend == "processes" and self.scheduler is not None:
            raise checks.refused(
                f"{self.scheduler} is given, but jobs run in processes of this machine: add "
                "--backend dask or --backend ray, or leave it out",
                "--scheduler",
            )
        if self.backend == "dask" and not self.scheduler:
            raise checks.refused(
                "--backend dask needs the address of a scheduler, such as tcp://10.0.0.1:8786; "
                "`dask scheduler` prints it when it starts",
                "--scheduler",
            )

    @contextmanager
    def workers(
        self, console: Console, describe: Callable[[], dict[str, str]]
    ) -> Iterator[int | None]:
        """Provide the workers, and yield the number of jobs that joblib may run at once.

        Args:
            console: Says which workers are used, if they are those of a cluster.
            describe: Returns what has to be the same on all workers.
        """
        if self.backend == "processes":
            from joblib import cpu_count

            yield self.jobs or int(cpu_count())
            return
        from fedbo_paper.harness.cluster import connected

        with connected(self.backend, self.scheduler) as cluster:
            cluster.compare(describe)
            n = cluster.workers()
            console.print(f"{cluster.name}: {n} worker{'' if n == 1 else 's'}.", soft_wrap=True)
            yield self.jobs
