"""Locks that are released when the thread or process that holds them dies."""

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
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a pipe makes nobody wait


class Lock:
    """A lock between threads. A forked process and a copy get a new lock that is free.

    In a forked process, the thread that held the lock does not exist and could never release it.
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
def alone(path: int | str | os.PathLike[str]) -> Iterator[bool]:
    """Lock a file or folder against other processes and threads.

    Yields False, without a lock, where there are no such locks (Windows, many network drives), or
    if another process holds the lock for seconds.

    Args:
        path: The file or folder. A descriptor if others could replace it by a link, else a path.
    """
    fd = path if isinstance(path, int) else -1
    if not isinstance(path, int):
        with contextlib.suppress(OSError):
            fd = os.open(path, _OPEN)
    is_locked = fd >= 0 and _lock(fd)
    try:
        yield is_locked
    finally:
        # Closing the file is not enough: a process forked in the meantime has it open too.
        if is_locked and sys.platform != "win32":
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        if fd >= 0 and fd != path:
            os.close(fd)


def _lock(fd: int) -> bool:
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
