"""Folders that others may change at any moment, and in which no link is ever followed.

A folder is opened once, and everything in it is reached through its descriptor. So whoever replaces
a folder by a link while it is used does not lead us elsewhere. This holds on POSIX. Windows opens
folders by their paths; there, a link is refused where one is seen, but may be put there just after.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Self

from fedbo import files
from fedbo.files import alone

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


class OpenFolder:
    """A folder that is open until the ``with`` statement ends.

    Args:
        path: The folder. It may be a link: only what is below is never reached through one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, OpenFolder(place) as folder:
    ...     with folder.subfolder("below", create=True) as below:
    ...         below.write("file", b"...")
    ...         below.read("file", most=10)
    b'...'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.fd = os.open(path, _FOLDER) if _BY_DESCRIPTOR else None
        if self.fd is None:
            os.scandir(path).close()  # or an error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd is not None:
            os.close(self.fd)

    def subfolder(self, name: str, *, create: bool = False) -> OpenFolder:
        """Open a folder in this one; an OSError with ``errno.ELOOP`` if it is a link.

        With ``create``, it is created with this folder's permissions if it does not exist.
        """
        is_new = False
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._at(name), dir_fd=self.fd)
                is_new = True
        below = OpenFolder.__new__(OpenFolder)
        below.path, below.fd = os.path.join(self.path, name), None
        if self._is_link(name):
            raise OSError(errno.ELOOP, f"{below.path} is a link, and could lead anywhere")
        if self.fd is not None:  # without following a link that has just been put there
            below.fd = os.open(name, _FOLDER | _NO_LINKS, dir_fd=self.fd)
            if is_new:
                _permit(below.fd, self._mode())
                files.sync(self.fd)
        return below

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """List what is in the folder, in any order."""
        with os.scandir(self.path if self.fd is None else self.fd) as entries:
            yield from entries

    def stamp(self) -> tuple[int, int, int]:
        """Return which version of the folder this is: its time, which changes with its names."""
        status = os.stat(self.path if self.fd is None else self.fd)
        return status.st_mtime_ns, status.st_size, status.st_ino

    def status(self, name: str) -> os.stat_result:
        """Return the status of a file, or of the link itself."""
        return os.stat(self._at(name), dir_fd=self.fd, follow_symlinks=False)

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a regular file; see `files.read`."""
        if self.fd is None and self._is_link(name):
            raise OSError(errno.ELOOP, "it is a link", name)
        return files.read(self._at(name), most, links=False, dir_fd=self.fd)

    def write(self, name: str, data: bytes) -> None:
        """Write a file that everybody who may read the folder may read, whatever the umask is.

        A folder of that name, which somebody has put there, gets another one.
        """
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(self.status(name).st_mode):
                away = self._at(f".{name}.{secrets.token_hex(4)}")
                os.rename(self._at(name), away, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        files.write(self._at(name), data, 0o600 | self._mode() & 0o044, dir_fd=self.fd)

    def unlink(self, name: str) -> None:
        """Remove a file, or the link itself."""
        os.unlink(self._at(name), dir_fd=self.fd)

    def alone(self) -> AbstractContextManager[bool]:
        """Lock the folder against other processes and threads; see `fedbo.files.alone`."""
        return alone(self.path if self.fd is None else self.fd)

    def _mode(self) -> int:
        return stat.S_IMODE(os.stat(self.path if self.fd is None else self.fd).st_mode)

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name) if self.fd is None else name

    def _is_link(self, name: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return stat.S_ISLNK(self.status(name).st_mode)
        return False


def _permit(fd: int, mode: int) -> None:
    """Set the permissions of a folder that we created.

    Somebody may have put another folder of ours in its place. That one has something in it.
    """
    with contextlib.suppress(OSError):  # some file systems have no permissions
        if os.fstat(fd).st_uid == os.geteuid() and not os.listdir(fd):
            os.fchmod(fd, mode)
