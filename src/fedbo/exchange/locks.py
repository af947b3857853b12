"""Locks that do not outlive their holder, be it a thread or a process."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

if sys.platform != "win32":
    import fcntl

_WAIT, _PAUSE = 2.0, 0.001  # seconds


class Lock:
    """A lock between threads; a forked process and a copy get one that is free.

    In a forked process the thread that held it is not there to release it.
    """

    def __init__(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()

    def __enter__(self) -> None:
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


@contextlib.contextmanager
def alone(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Keep others who ask for the same file or folder waiting, processes included.

    The system frees the lock of a process that dies. False where there are no such locks (Windows,
    many network drives), or where somebody holds it for seconds: whoever asks goes on all the same.
    """
    fd = -1
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY)
    locked = fd >= 0 and _locked(fd)
    try:
        yield locked
    finally:
        if fd >= 0:
            _unlock(fd)
            os.close(fd)


def _locked(fd: int) -> bool:
    if sys.platform == "win32":
        return False
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
        except OSError:
            return False


def _unlock(fd: int) -> None:
    # To close the file is not enough: a process that was forked meanwhile has it open too.
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
