"""Files that are written completely or not at all, and that reveal damage; and locks.

These functions take ``dir_fd`` as those of `os` do: the path is then a name in the folder that this
descriptor has open.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import sys
import threading
import time
from collections.abc import Iterator
from typing import BinaryIO

from fedbo.errors import FileRefused

if sys.platform != "win32":
    import fcntl

_DIGEST = 32
_WAIT, _PAUSE = 2.0, 0.001  # seconds for a lock
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
#: With O_NONBLOCK, a pipe does not make the reader wait.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NOT_ON_DISK = (errno.EIO, errno.ENOSPC, errno.EDQUOT)


def write(
    path: str | os.PathLike[str],
    data: bytes,
    mode: int | None = None,
    *,
    dir_fd: int | None = None,
) -> None:
    """Write a file completely or not at all: a reader sees the old one or the new one.

    When this returns, the file is on the disk under its name. Nobody can read it, or write to it,
    before it has its permissions. A link at ``path`` is replaced, not followed.

    Args:
        path: Where the file is put.
        data: What is in it.
        mode: Its permissions; by default those of any new file of this user.
        dir_fd: The folder in which ``path`` is, as an open descriptor; by default it is looked up.
    """
    with replacing(path, mode, dir_fd=dir_fd) as (_, file):
        file.write(data)


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], mode: int | None = None, *, dir_fd: int | None = None
) -> Iterator[tuple[str, BinaryIO]]:
    """Open a new file, which takes the place of ``path`` at the end; yield its path and the file.

    It is for what is too large for `write`. After an exception the new file is removed.
    """
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}")
    fd = os.open(temporary, _CREATE | _NO_LINKS, 0o666 if mode is None else 0o600, dir_fd=dir_fd)
    try:
        with open(fd, "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                with contextlib.suppress(OSError):  # some file systems have no permissions
                    os.fchmod(fd, mode)
            yield temporary, file
            file.flush()
            os.fsync(fd)
        os.replace(temporary, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=dir_fd)
        raise
    sync(folder if dir_fd is None else dir_fd)


def read(
    path: str | os.PathLike[str], most: int, *, links: bool = True, dir_fd: int | None = None
) -> bytes:
    """Return the content of a regular file. Anything else, such as a pipe, is never waited for.

    Args:
        path: The file.
        most: The most bytes that it may have.
        links: Whether to follow a link (default).
        dir_fd: The folder in which ``path`` is, as an open descriptor; by default it is looked up.

    Raises:
        FileRefused: If it is not a regular file, or is too large.
    """
    fd = os.open(path, _READ | (0 if links else _NO_LINKS), dir_fd=dir_fd)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused("it is not a regular file")
        if status.st_size > most:
            raise FileRefused(f"it has {status.st_size:,} bytes, expected at most {most:,}")
        return file.read(status.st_size)


def sync(folder: str | int) -> None:
    """Let the names in a folder, a path or a descriptor, reach the disk too, where they can."""
    fd = folder if isinstance(folder, int) else -1
    try:
        if not isinstance(folder, int):
            fd = os.open(folder or ".", _FOLDER)
        os.fsync(fd)
    except OSError as error:
        if error.errno in _NOT_ON_DISK:
            raise
    finally:
        if fd >= 0 and fd != folder:
            os.close(fd)


def seal(title: str, payload: bytes) -> bytes:
    """Put a title line and a digest before the payload, so that damage is noticed.

    >>> unseal("fedbo agent 1", seal("fedbo agent 1", b"..."), "a file")
    b'...'
    """
    return title.encode() + b"\n" + hashlib.sha256(payload).digest() + payload


def unseal(title: str, data: bytes, name: str) -> bytes:
    """Return the payload of what `seal` made.

    Raises:
        FileRefused: If the title is another one, or the digest does not match; the text has the
            ``name`` of the file.
    """
    first = title.encode() + b"\n"
    if not data.startswith(first):
        raise FileRefused(
            f"{name} does not hold a {title!r}: it is empty, or was written by another program or "
            "another version of fedbo"
        )
    digest, payload = data[len(first) :][:_DIGEST], data[len(first) + _DIGEST :]
    if hashlib.sha256(payload).digest() != digest:
        raise FileRefused(f"{name} is damaged or cut short: its digest does not match; use a copy")
    return payload


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
def alone(path: int | str | os.PathLike[str], wait: float | None = None) -> Iterator[bool]:
    """Lock a file or folder against other processes and threads.

    Yields False, without a lock, where there are no such locks (Windows, many network drives), or
    if another process holds the lock for longer.

    Args:
        path: The file or folder. A descriptor if others could replace it by a link, else a path.
        wait: Seconds to wait for another process, by default two.
    """
    fd = path if isinstance(path, int) else -1
    if not isinstance(path, int):
        with contextlib.suppress(OSError):
            fd = os.open(path, _READ)
    is_locked = fd >= 0 and _lock(fd, _WAIT if wait is None else wait)
    try:
        yield is_locked
    finally:
        # Closing the file is not enough: a process forked in the meantime has it open too.
        if is_locked and sys.platform != "win32":
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        if fd >= 0 and fd != path:
            os.close(fd)


def _lock(fd: int, wait: float) -> bool:
    if sys.platform == "win32":
        return False
    begin = time.monotonic()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if (waited := time.monotonic() - begin) > wait:
                return False
            time.sleep(max(_PAUSE, waited / 20))
        except OSError:
            return False
