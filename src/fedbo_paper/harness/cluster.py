"""Run calls on the workers of a Dask cluster.

::

    with connected("tcp://10.0.0.1:8786") as cluster:
        reproduce(wanted("fig2"), "results", run=cluster.run)

Calls go to the workers, and results come back to this process, which alone writes files. Both
travel as pickles: use a cluster only if you trust everyone who can reach it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, TypeVar
from uuid import uuid4

from distributed import Client, KilledWorker, wait

from fedbo_paper.harness.workers import WorkersFailed

PATIENCE = 60.0  # seconds that a cluster may be without workers
_PAUSE = 2.0  # seconds between two looks at the workers
_SECONDS = 15  # that the scheduler may take to answer

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

    def threads(self) -> dict[str, int]:
        """Return how many calls each worker runs at once; nothing without an answer."""
        with suppress(OSError, TimeoutError):
            threads: dict[str, int] = self.client.sync(
                self.client.scheduler.ncores, callback_timeout=_SECONDS
            )
            return threads
        return {}

    def run(
        self, calls: Sequence[Callable[[], T]], jobs: int | None = None
    ) -> Generator[tuple[int, T], None, None]:
        """Run the calls on the workers, as `workers.run` does in processes of this machine."""
        most = jobs or 2 * max(1, len(self.threads()))
        waiting, running = iter(enumerate(calls)), dict[Any, int]()
        seen = time.monotonic()
        try:
            while True:
                for i, call in islice(waiting, most - len(running)):
                    running[self.client.submit(call, key=f"fedbo-{uuid4().hex}")] = i
                if not running:
                    return
                with suppress(TimeoutError, CancelledError):
                    wait([*running], timeout=_PAUSE, return_when="FIRST_COMPLETED")
                for future in [future for future in running if future.done()]:
                    yield running.pop(future), self._result(future)
                if self.threads():
                    seen = time.monotonic()
                elif time.monotonic() - seen > PATIENCE:
                    raise self._failure(f"has had no workers for {PATIENCE:.0f} seconds")
        finally:
            if running and self.client.status == "running":
                self.client.cancel([*running])

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except CancelledError:
            raise self._failure("was lost, or cancelled the work") from None
        except KilledWorker as error:
            raise self._failure(
                f"has lost the worker of a job several times, perhaps for want of memory ({error})"
            ) from None

    def _failure(self, what: str) -> WorkersFailed:
        return WorkersFailed(
            f"{self.name} {what}. Finished work is kept: run the same command to resume."
        )


@contextmanager
def connected(scheduler: str) -> Iterator[Cluster]:
    """Connect to a cluster, and leave it at the end of the block.

    Args:
        scheduler: The address of its scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises:
        WorkersFailed: The cluster cannot be reached, has no workers, or has one with several
            threads. The error says what to do.
    """
    name = f"The Dask cluster at {scheduler}"
    for logger in ("distributed", "distributed.client"):  # errors say it, and what to do
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        client = Client(scheduler, name="fedbo", timeout=_SECONDS)
    except (OSError, ValueError) as error:
        raise WorkersFailed(
            f"{name} cannot be used ({error}). Expected as --scheduler an address such as "
            "tcp://10.0.0.1:8786, which `dask scheduler` prints when it starts."
        ) from None
    try:
        with suppress(TimeoutError):
            client.wait_for_workers(1, timeout=PATIENCE)
        cluster = Cluster(client, name)
        threads = cluster.threads()
        if set(threads.values()) != {1}:
            raise WorkersFailed(
                f"{name} has workers with {sorted(threads.values())} threads, expected at least "
                "one worker, and one thread each, since the CPU seconds of a job are those of its "
                "process. Start them with: dask worker SCHEDULER --nworkers N --nthreads 1"
            )
        yield cluster
    finally:
        client.close(timeout=_SECONDS)
