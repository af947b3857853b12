"""Run calls on the workers of a cluster, through joblib.

::

    with connected("dask", "tcp://10.0.0.1:8786") as cluster:
        cluster.compare(describe)
        ...  # joblib, and so `workers.run`, uses the cluster here

Calls go to the workers, and results come back to this process, which alone writes files. Both
travel as pickles: use a cluster only if you trust everyone who can reach it.

The usual backends of joblib do not suffice. That of Dask waits for ever for a task that Dask has
given up, ignores ``n_jobs``, and runs everything in the client if the cluster has one worker (1.6).
That of Ray returns all results at once. `ClusterBackend` serves both.
"""

from __future__ import annotations

import abc
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar

import joblib
from joblib.parallel import ParallelBackendBase

from fedbo_paper.harness.workers import WorkersFailed

Backend = Literal["dask", "ray"]

PATIENCE = 60.0  # seconds that a cluster may be without workers
_PAUSE = 2.0  # seconds between two looks at the workers
_KEPT = "Finished work is kept: run the same command to resume."

T = TypeVar("T")


class Cluster(abc.ABC):
    """A connection to a cluster.

    A call whose worker dies is run again on another worker, up to three times. Methods may be
    called from several threads.

    Args:
        name: What errors call it, at the beginning of a sentence.
    """

    #: What a future raises if all workers died that tried to run its call.
    deaths: tuple[type[BaseException], ...]

    def __init__(self, name: str) -> None:
        self.name = name
        self._closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a call on some worker."""
        return _in_thread(partial(self.perform, call))

    @abc.abstractmethod
    def perform(self, call: Callable[[], T]) -> T:
        """Run a call on some worker, and wait for its result."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """Cancel all calls that were submitted and are not finished."""

    @abc.abstractmethod
    def workers(self) -> int:
        """Return how many calls can run at once; 0 if the cluster does not answer."""

    @abc.abstractmethod
    def everywhere(self, call: Callable[[], T]) -> dict[str, T | BaseException]:
        """Run a call on every machine or worker; return its results or errors by their names."""

    @abc.abstractmethod
    def disconnect(self) -> None:
        """End the connection; whoever waits for a result gets an error."""

    def close(self) -> None:
        """Cancel what is not finished, and end the connection."""
        self.abort()
        self._closed = True
        self.disconnect()

    def abort(self) -> None:
        """Cancel what is not finished, unless the connection has ended and so all is cancelled."""
        if not self._closed:
            self.cancel()

    def compare(self, describe: Callable[[], Mapping[str, str]]) -> None:
        """Check that the workers have all that decides the results.

        Args:
            describe: Returns names and versions; it can be pickled.

        Raises:
            WorkersFailed: A worker cannot run the call, or returns something else than it returns
                here.
        """
        here = describe()
        for worker, there in sorted(self.everywhere(describe).items()):
            if isinstance(there, FileNotFoundError):
                raise WorkersFailed(
                    f"The worker {worker} lacks data: {there} Note that --data and FEDBO_DATA "
                    "name a folder on the workers: every worker needs its own copy, or a shared "
                    "folder."
                )
            if isinstance(there, BaseException):
                raise WorkersFailed(
                    f"The worker {worker} cannot run fedbo's experiments "
                    f"({type(there).__name__}: {there}): install the same version of fedbo there, "
                    "with the extra [cluster], and start the worker again."
                )
            if others := [
                f"{name} {there.get(name, 'none')} (here {value})"
                for name, value in here.items()
                if there.get(name) != value
            ]:
                raise WorkersFailed(
                    f"The worker {worker} would compute other results than this machine, since it "
                    f"has {', '.join(others)}. Install the same versions and data on all workers, "
                    "and start them again."
                )


@contextmanager
def connected(backend: Backend, scheduler: str | None = None) -> Iterator[Cluster]:
    """Connect to a cluster, and let joblib use it inside this context.

    Args:
        backend: "dask" or "ray".
        scheduler: The address of the scheduler. Without one, Ray is started on this machine.

    Raises:
        WorkersFailed: The cluster cannot be reached or has no workers. The error says what to do.
    """
    cluster = _connect(backend, scheduler)
    try:
        _wait_for_workers(cluster)
        with joblib.parallel_config(backend=ClusterBackend(cluster)):
            yield cluster
    finally:
        cluster.close()


def probe(host: str, port: int) -> None:
    """Raise an `OSError` that says why, if nothing listens at an address."""
    with socket.create_connection((host, port), timeout=10.0):
        pass


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call, or raise `TimeoutError` if it takes too long.

    Clients of Dask and Ray wait for ever if something else than their cluster listens at the
    address.
    """
    answer = _in_thread(call)
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():
            raise
        raise TimeoutError(f"no answer for {seconds:.0f} seconds") from None


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """Run a call in a thread. Whatever it waits for, the program may end without it."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="fedbo-cluster", daemon=True).start()
    return answer


def _connect(backend: Backend, scheduler: str | None) -> Cluster:
    if backend == "ray":
        from fedbo_paper.harness.ray_cluster import RayCluster

        return RayCluster(scheduler)
    from fedbo_paper.harness.dask_cluster import DaskCluster

    if scheduler is None:
        raise ValueError("scheduler is None, expected the address of Dask's scheduler")
    return DaskCluster(scheduler)


def _wait_for_workers(cluster: Cluster) -> None:
    deadline = time.monotonic() + PATIENCE
    while not cluster.workers():
        if time.monotonic() > deadline:
            raise WorkersFailed(
                f"{cluster.name} has no workers, and none came in {PATIENCE:.0f} seconds: start "
                "some, and check that they can reach it."
            )
        time.sleep(0.2)


class ClusterBackend(ParallelBackendBase):  # type: ignore[misc]
    """What joblib needs to use a cluster.

    Args:
        cluster: The cluster.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(nesting_level=0)
        self._cluster = cluster
        self._waiting: dict[Future[Any], Callable[[Future[Any]], None]] = {}
        self._ended = threading.Event()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of workers, but at least 2: for 1, joblib would not use the cluster."""
        return max(2, self._cluster.workers())

    def start_call(self) -> None:
        self._ended = threading.Event()
        threading.Thread(target=self._watch, args=(self._ended,), daemon=True).start()

    def stop_call(self) -> None:
        self._ended.set()

    def submit(self, func: Callable[[], Any], callback: Callable[..., None]) -> Future[Any]:
        future = self._cluster.submit(func)
        self._waiting[future] = callback
        future.add_done_callback(self._hand_over)
        return future

    def _hand_over(self, future: Future[Any]) -> None:
        if callback := self._waiting.pop(future, None):
            callback(future)

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        try:
            return out.result()
        except CancelledError:
            raise WorkersFailed(
                f"{self._cluster.name} was lost, or cancelled the work: check that it is running. "
                f"{_KEPT}"
            ) from None
        except self._cluster.deaths as error:
            raise WorkersFailed(
                "A job ended the process of its worker several times, perhaps because memory ran "
                f"out ({error}). {_KEPT}"
            ) from None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self._waiting.clear()
        self._cluster.abort()

    def _watch(self, ended: threading.Event) -> None:
        """Give up if there are no workers for too long."""
        seen = time.monotonic()
        while not ended.wait(_PAUSE):
            if self._cluster.workers():
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE:
                lost: Future[Any] = Future()
                lost.set_exception(
                    WorkersFailed(
                        f"{self._cluster.name} has had no workers for {PATIENCE:.0f} seconds. "
                        f"Start some first. {_KEPT}"
                    )
                )
                for callback in [*self._waiting.values()]:
                    callback(lost)
                return
