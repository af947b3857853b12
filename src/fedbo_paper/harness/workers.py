"""Run calls in several processes of this machine with joblib, and end them after Ctrl-C."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")


class WorkersFailed(RuntimeError):
    """Workers cannot be used, or were lost; the text says what to do."""


def run(
    calls: Sequence[Callable[[], T]], jobs: int | None = None
) -> Generator[tuple[int, T], None, None]:
    """Run the calls in parallel and yield each result as soon as it is there.

    Close the iterator to cancel the rest, and call `stop` after `KeyboardInterrupt`.

    Args:
        calls: Functions without arguments that can be pickled, such as `functools.partial`.
        jobs: Number of calls that are under way at once; all cores by default.

    Yields:
        The index of a call and its result, in the order in which the calls finish.

    >>> from functools import partial
    >>> dict(run([partial(pow, 2, 3), partial(pow, 2, 4)], jobs=1))
    {0: 8, 1: 16}
    """
    from joblib import Parallel, delayed

    parent = os.getpid()
    parallel = Parallel(n_jobs=jobs or -1, return_as="generator_unordered", batch_size=1)
    results = parallel(delayed(_call)(i, call, parent) for i, call in enumerate(calls))
    try:
        for result in results:  # noqa: UP028  (`yield from` would close joblib first: it warns)
            yield result
    finally:
        with warnings.catch_warnings():  # that not all results were used: it is meant
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _call(i: int, call: Callable[[], T], parent: int) -> tuple[int, T]:
    """Run one call. A worker process ignores Ctrl-C: the parent handles it."""
    if os.getpid() != parent and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return i, call()


def stop() -> None:
    """End joblib's worker processes, which it may forget at Ctrl-C: Python would wait for them."""
    from joblib.externals.loky.backend.process import LokyProcess

    for process in multiprocessing.active_children():
        if isinstance(process, LokyProcess) and process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
