"""Run calls on the workers of a Dask cluster.

::

    with connected("tcp://10.0.0.1:8786") as cluster:
        reproduce(wanted(["fig2"]), "results", run=cluster.run)

Calls go to the workers, and results come back to this process, which alone writes files. Both
travel as pickles: use a cluster only if you trust everyone who can reach it.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, TypeVar
from uuid import uuid4

from distributed import Client, KilledWorker, wait
from distributed.comm import get_address_host_port

from fedbo_paper.harness.workers import WorkersFailed

PATIENCE = 60.0  # seconds that a cluster may be without workers
_PAUSE = 2.0  # seconds between two looks at the workers
_SECONDS = 15  # that the scheduler may take to answer
_KEPT = "Finished work is kept: run the same command to resume."

T = TypeVar("T")


class Cluster:
    """A connection to the scheduler of a Dask cluster.

    A call whose worker dies is run again on another worker, up to three times.

    Args:
        client: The client of the scheduler.
        name: What errors call it, at the beginning of a sentence.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name

    def workers(self) -> int:
        """Return how many calls can run at once; 0 if the scheduler does not answer."""
        return len(self._thread_counts())

    def run(
        self, calls: Sequence[Callable[[], T]], jobs: int | None = None
    ) -> Generator[tuple[int, T], None, None]:
        """Run the calls on the workers, as `workers.run` does in processes of this machine."""
        most = jobs or 2 * max(1, self.workers())
        waiting, running = iter(enumerate(calls)), dict[Any, int]()
        seen = time.monotonic()
        try:
            while True:
                for i, call in islice(waiting, most - len(running)):
                    running[self.client.submit(call, key=f"fedbo-{uuid4().hex}")] = i
                if not running:
                    return
                for future in self._finished([*running]):
                    yield running.pop(future), self._result(future)
                if self.workers():
                    seen = time.monotonic()
                elif time.monotonic() - seen > PATIENCE:
                    raise WorkersFailed(
                        f"{self.name} has had no workers for {PATIENCE:.0f} seconds. Start some "
                        f"first. {_KEPT}"
                    )
        finally:
            if running and self.client.status == "running":
                self.client.cancel([*running])

    def _finished(self, futures: list[Any]) -> list[Any]:
        """Wait for a moment, and return the futures that are done."""
        with self.client.as_current(), suppress(TimeoutError, CancelledError):
            wait(futures, timeout=_PAUSE, return_when="FIRST_COMPLETED")
        return [future for future in futures if future.done()]

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except CancelledError:
            raise WorkersFailed(
                f"{self.name} was lost, or cancelled the work: check that it is running. {_KEPT}"
            ) from None
        except KilledWorker as error:
            raise WorkersFailed(
                "A job ended the process of its worker several times, perhaps because memory ran "
                f"out ({error}). {_KEPT}"
            ) from None

    def wait_for_workers(self) -> None:
        """Wait until there are workers, each with one thread.

        Raises:
            WorkersFailed: There are none, or one has several threads.
        """
        deadline = time.monotonic() + PATIENCE
        while not (counts := self._thread_counts()):
            if time.monotonic() > deadline:
                raise WorkersFailed(
                    f"{self.name} has no workers, and none came in {PATIENCE:.0f} seconds: start "
                    "some, and check that they can reach it."
                )
            time.sleep(0.2)
        for worker, threads in counts.items():
            if threads > 1:
                raise WorkersFailed(
                    f"The worker {worker} has {threads} threads, expected 1, since the CPU seconds "
                    "of a job are those of its process. Start it again: dask worker SCHEDULER "
                    f"--nworkers {threads} --nthreads 1"
                )

    def _thread_counts(self) -> dict[str, int]:
        """The number of threads of every worker."""
        try:
            threads: dict[str, int] = self.client.sync(
                self.client.scheduler.ncores, callback_timeout=_SECONDS
            )
        except (OSError, TimeoutError):
            return {}
        return threads


@contextmanager
def connected(scheduler: str) -> Iterator[Cluster]:
    """Connect to a cluster, and leave it at the end of the block.

    Args:
        scheduler: The address of its scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises:
        WorkersFailed: The cluster cannot be reached or has no workers. The error says what to do.
    """
    name = f"The Dask cluster at {scheduler}"
    with _silenced("distributed", "distributed.client"):  # errors say it, and what to do
        try:
            with socket.create_connection(get_address_host_port(scheduler), timeout=10.0):
                pass  # Dask's client would try for long
            client = Client(scheduler, name="fedbo", set_as_default=False, timeout=_SECONDS)
        except (OSError, ValueError, ImportError) as error:
            raise WorkersFailed(
                f"{name} cannot be used ({error}). Expected as --scheduler an address such as "
                "tcp://10.0.0.1:8786, which `dask scheduler` prints when it starts: check that it "
                "is running, and that no firewall is in between."
            ) from None
        try:
            cluster = Cluster(client, name)
            cluster.wait_for_workers()
            yield cluster
        finally:
            client.close(timeout=_SECONDS)


@contextmanager
def _silenced(*loggers: str) -> Iterator[None]:
    levels = {logger: logger.level for logger in map(logging.getLogger, loggers)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
