"""A cluster of Dask."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

from distributed import Client, KilledWorker
from distributed.comm import get_address_host_port

from fedbo_paper.harness.cluster import Cluster, T, probe, within
from fedbo_paper.harness.workers import WorkersFailed

_SECONDS = 15  # that the scheduler may take to answer
_LOGGERS = ("distributed", "distributed.client")  # silent: errors say it, and what to do


class DaskCluster(Cluster):
    """A connection to the scheduler of a Dask cluster.

    Args:
        scheduler: Its address, such as ``tcp://10.0.0.1:8786``.

    Raises:
        WorkersFailed: It cannot be reached.
    """

    deaths = (KilledWorker,)

    def __init__(self, scheduler: str) -> None:
        super().__init__(f"The Dask cluster at {scheduler}")
        self._levels = {logger: logger.level for logger in map(logging.getLogger, _LOGGERS)}
        for logger in self._levels:
            logger.setLevel(logging.CRITICAL)
        try:
            probe(*get_address_host_port(scheduler))
            start = partial(Client, scheduler, name="fedbo", set_as_default=False)
            self._client = within(_SECONDS, start)
        except (OSError, ValueError, ImportError) as error:
            self._log_again()
            raise WorkersFailed(
                f"{self.name} cannot be used ({error}). Expected as --scheduler an address such as "
                "tcp://10.0.0.1:8786, which `dask scheduler` prints when it starts: check that it "
                "is running, and that no firewall is in between."
            ) from None
        self._futures: set[Any] = set()

    def perform(self, call: Callable[[], T]) -> T:
        future = self._client.submit(call, key=f"fedbo-{uuid4().hex}")
        self._futures.add(future)
        try:
            result: T = future.result()
            return result
        finally:
            self._futures.discard(future)

    def cancel(self) -> None:
        if self._client.status == "running":  # otherwise the scheduler is lost, and all with it
            self._client.cancel([*self._futures])

    def workers(self) -> int:
        return len(self._thread_counts())

    def everywhere(self, call: Callable[[], T]) -> dict[str, T | BaseException]:
        for worker, threads in self._thread_counts().items():
            if threads > 1:
                raise WorkersFailed(
                    f"The worker {worker} has {threads} threads, expected 1, since the CPU seconds "
                    "of a job are those of its process. Start it again: dask worker SCHEDULER "
                    f"--nworkers {threads} --nthreads 1"
                )
        answers: dict[str, Any] = self._client.run(call, on_error="return")
        return answers

    def disconnect(self) -> None:
        self._client.close(timeout=_SECONDS)
        self._log_again()

    def _log_again(self) -> None:
        for logger, level in self._levels.items():
            logger.setLevel(level)

    def _thread_counts(self) -> dict[str, int]:
        """The number of threads of every worker."""
        try:
            threads: dict[str, int] = self._client.sync(
                self._client.scheduler.ncores, callback_timeout=_SECONDS
            )
        except (OSError, TimeoutError):
            return {}
        return threads
