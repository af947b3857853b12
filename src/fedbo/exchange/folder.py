"""A folder as an exchange: a shared drive, a synchronised folder, or files carried by hand.

``FOLDER/<fingerprint>/epoch-<n>/<sender>-<8 hex digits>.fedbo`` holds the message of one sender,
after a title line and a digest that reveals damage. These names are only for people: a reader looks
into every ``.fedbo`` file in the folder and up to three levels below, so files may be copied
anywhere by hand. Names that start with a dot are ignored: these files are still being written, or
belong to programs that synchronise. Links to folders are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from fedbo import files
from fedbo.exchange.base import (
    Exchange,
    ExchangeError,
    ExchangeWarning,
    failed,
    same_federation,
)
from fedbo.federation import Federation
from fedbo.files import FileRefused
from fedbo.locks import Lock, alone
from fedbo.message import Fingerprint, Message, MessageRefused
from fedbo.outside import printable

SUFFIX = ".fedbo"
DEPTH = 3  # levels of folders below that are searched
LARGEST = 64 * 2**20  # bytes: larger files are not read; enough for a belief with M = 5,700
NAMED = 5  # skipped files that one fetch names; the rest are counted
_TITLE = "fedbo message 1"
_FINGERPRINT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{8}){3}")
_UNFINISHED = re.compile(rf"\..+\{SUFFIX}\.[0-9a-f]{{8}}")  # as `files.write` names it
_ABANDONED = 3600 * 10**9  # ns after which the writer of an unfinished file must be dead
# A file may be replaced within one tick of the clock by one of the same size and inode. So a file
# younger than this is always read again. The longest ticks in use, those of FAT, take 2 s.
_SETTLED = 3 * 10**9  # ns


class _File(NamedTuple):
    """What is in a file: a message, a fault, or neither if the message is of another epoch."""

    version: tuple[int, int, int] | None = None  # time, size and inode
    settled: bool = False
    message: Message | None = None
    fault: str | None = None


class FolderExchange(Exchange):
    """An exchange through a folder that all participants can reach.

    Use the folder for nothing else. Its sub-folders get its permissions: whoever may write to it
    can participate. If the folder existed and has disappeared, that is an error, because its drive
    may be unmounted. If two processes publish for one sender at the same moment, the later sequence
    stays; on Windows, and on drives without locks, the earlier one may stay until the next message.

    Args:
        folder: The path of the folder; ``~`` is expanded. The first message creates the folder if
            it does not exist, but not its parent.

    Raises:
        ExchangeError: If the folder cannot be reached or created.

    >>> import tempfile
    >>> from fedbo import Agent, Federation, Float
    >>> agent = Agent(federation := Federation({"x": Float(0, 1)}), name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     FolderExchange(folder).publish(agent.message())
    ...     FolderExchange(folder).fetch(federation)
    True
    [Message(weights, sender='site-a', sequence=1, epoch=0, t_n=1, M=100, 442 bytes)]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not os.fspath(folder):
            raise ExchangeError("the address is '', expected a folder")
        self.folder = Path(os.path.abspath(os.path.expanduser(folder)))
        self.address = str(self.folder)
        self._was_there = False
        self._lock = Lock()
        self._known: dict[tuple[bytes, int], dict[str, _File]] = {}  # by federation and path
        self._is_there()

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads the files itself. It can be made while the drive is unmounted.
        return self.__dict__ | {"_known": {}}

    def publish(self, message: Message) -> bool:
        what = f"message {message.sequence} of {message.sender!r} was not put into {self.address}"
        data = files.seal(_TITLE, message.encode())
        if len(data) > LARGEST:
            raise ExchangeError(
                f"{what}: it has {len(data):,} bytes, and peers read at most {LARGEST:,}; "
                "agree on fewer features, or on messages of weights"
            )
        home = self._home(Fingerprint(message.fingerprint), message.epoch)
        path = home / _name(message.sender)
        with self._lock:
            if not self._is_there():
                try:
                    self.folder.mkdir(exist_ok=True)
                except OSError as error:
                    raise failed(f"the folder {self.address} cannot be created", error) from error
            try:
                _make(home.parent)
                _make(home)
                with alone(home):
                    newer = _as_new(path, message)
                    if newer is None:
                        files.write(path, data)
                        _let_read(path)
            except OSError as error:
                raise failed(what, error) from error
            _sweep(path)
        return newer is None or newer.encode() == message.encode()

    def fetch(self, federation: Federation) -> list[Message]:
        with self._lock:
            if not self._is_there():
                return []
            key = (bytes(federation.fingerprint), federation.epoch)
            before = self._known.get(key, {})
            found = self._known[key] = self._look(federation, before)
        news = []
        for path, file in found.items():
            known = before.get(path, _File())
            is_old = (file.version, file.fault) == (known.version, known.fault)
            if file.fault is not None and not is_old:
                news.append(printable(f"{path} was skipped: {file.fault}"))
        if len(news) > NAMED:
            news[NAMED:] = [f"{len(news) - NAMED:,} more files in {self.address} were skipped"]
        for sentence in news:
            warnings.warn(sentence, ExchangeWarning, stacklevel=2)
        return _latest(file.message for file in found.values() if file.message is not None)

    def withdraw(self, federation: Federation, sender: str) -> bool:
        own = str(self._home(federation.fingerprint, federation.epoch) / _name(sender))
        is_gone = False
        with self._lock:
            if not self._is_there():
                return False
            for path in self._paths(federation, {}, epochs=True):
                try:
                    if _is_from(path, federation, sender, by_name=path == own):
                        os.unlink(path)
                        is_gone = True
                except FileNotFoundError:
                    continue
                except OSError as error:
                    what = f"the message of {sender!r} in {path} is still handed out"
                    raise failed(what, error) from error
        return is_gone

    def _home(self, fingerprint: Fingerprint, epoch: int) -> Path:
        return self.folder / str(fingerprint) / f"epoch-{epoch}"

    def _is_there(self) -> bool:
        try:
            mode = os.stat(self.folder).st_mode
        except FileNotFoundError:
            if not self.folder.parent.is_dir():
                raise ExchangeError(
                    f"the folder {self.address} cannot be created because {self.folder.parent} "
                    "does not exist; check the address, and whether its drive is mounted"
                ) from None
            if self._was_there:
                raise ExchangeError(
                    f"the folder {self.address} has disappeared; check whether its drive is still "
                    "mounted, or create it again"
                ) from None
            return False
        except ValueError as error:  # a null byte, for example
            raise ExchangeError(f"{self.address!r} cannot be a folder: {error}") from None
        except OSError as error:
            raise failed(f"the folder {self.address} cannot be reached", error) from error
        if not stat.S_ISDIR(mode):
            raise ExchangeError(f"{self.address} is a file, expected a folder; check the address")
        self._was_there = True
        return True

    def _look(self, federation: Federation, before: dict[str, _File]) -> dict[str, _File]:
        """Read the files that are new or have changed; return all that concern this federation."""
        found: dict[str, _File] = {}
        paths = dict.fromkeys(self._paths(federation, found))
        # Some file systems do not list a file that is being replaced at this moment.
        unlisted = [path for path in before if path not in paths and os.path.isfile(path)]
        for path in [*paths, *unlisted]:
            file = _looked_at(path, before.get(path), federation)
            if file is not None:
                found[path] = file
        return found

    def _paths(
        self, federation: Federation, faults: dict[str, _File], *, epochs: bool = False
    ) -> Iterator[str]:
        """Find all message files, except in folders named after other federations.

        ``epochs`` adds the folders of other epochs. An unreadable folder is put into ``faults``, or
        raises an error if this federation's messages may be in it.
        """
        home = self._home(federation.fingerprint, federation.epoch)
        vital = {self.address, str(home.parent), str(home)}
        wanted = (None, "scalars") if epochs else (None,)

        def is_searched(name: str) -> bool:
            if _FINGERPRINT.fullmatch(name):
                there = bytes.fromhex(name.replace("-", ""))
                return federation.fingerprint.difference(there) in wanted
            return not name.startswith(".")

        def complain(error: OSError) -> None:
            folder = str(error.filename)
            if isinstance(error, FileNotFoundError):
                return  # it was removed just now
            if folder in vital:
                raise failed(f"the folder {folder} cannot be read", error) from error
            faults[folder] = _File(fault=_unreadable(error))

        for folder, below, names in os.walk(self.address, onerror=complain):
            depth = len(Path(folder).relative_to(self.folder).parts)
            below[:] = filter(is_searched, below) if depth < DEPTH else ()
            for name in names:
                if not name.startswith(".") and name.lower().endswith(SUFFIX):
                    yield os.path.join(folder, name)


def _name(sender: str) -> str:
    """Make a file name that all file systems accept, even if two senders differ only in case.

    >>> _name("Köln.1")
    'K%C3%B6ln%2E1-8db13081.fedbo'
    """
    escaped = quote(sender, safe="").replace(".", "%2E").replace("~", "%7E")
    return f"{escaped}-{hashlib.sha256(sender.encode()).hexdigest()[:8]}{SUFFIX}"


def _make(folder: Path) -> None:
    """Create the folder with its parent's permissions; refuse a link, which may lead anywhere."""
    if os.path.islink(folder):
        raise OSError(errno.ELOOP, f"{folder} is a link, and could lead anywhere")
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # another user created it just before
            folder.chmod(stat.S_IMODE(folder.parent.stat().st_mode))


def _let_read(path: Path) -> None:
    """Let everybody who may read the folder read the file, whatever this user's umask is."""
    with contextlib.suppress(OSError):
        path.chmod(stat.S_IMODE(path.stat().st_mode) | path.parent.stat().st_mode & 0o044)


def _sweep(written: Path) -> None:
    """Remove old unfinished files beside this one; the clock of the drive tells their age."""
    with contextlib.suppress(OSError):
        oldest = written.stat().st_mtime_ns - _ABANDONED
        for path in written.parent.glob(f".*{SUFFIX}.*"):
            with contextlib.suppress(OSError):  # this user may not remove it
                if _UNFINISHED.fullmatch(path.name) and path.lstat().st_mtime_ns < oldest:
                    path.unlink()


def _load(path: str | os.PathLike[str]) -> Message:
    """Read the message in a file; raise `FileRefused`, `MessageRefused` or `OSError`."""
    # With O_NONBLOCK, a pipe does not make the reader wait.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused("it is not a regular file")
        if (size := status.st_size) > LARGEST:
            raise FileRefused(f"it has {size:,} bytes, and no message has more than {LARGEST:,}")
        if not size:
            raise FileRefused("it is empty; perhaps it was not copied completely")
        return Message.decode(files.unseal(_TITLE, file.read(size), "it"))


def _looked_at(path: str, known: _File | None, federation: Federation) -> _File | None:
    """Return what is in the file for this federation; None if the file is gone."""
    version = None
    try:
        status = os.stat(path)
        version = status.st_mtime_ns, status.st_size, status.st_ino
        if known is not None and known.settled and known.version == version:
            return known
        settled = time.time_ns() - status.st_mtime_ns > _SETTLED
        message = _load(path)
        federation.check(message)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _File(version, fault=_unreadable(error))
    except (FileRefused, MessageRefused) as error:
        return _File(version, settled, fault=str(error))
    return _File(version, settled, message if message.epoch == federation.epoch else None)


def _latest(messages: Iterable[Message]) -> list[Message]:
    """Keep the latest message of each sender; of equally late ones, all readers keep the same."""
    latest: dict[str, Message] = {}
    for message in messages:
        other = latest.get(message.sender)
        if other is not None:
            message = max(message, other, key=lambda one: (one.sequence, one.encode()))
        latest[message.sender] = message
    return [latest[sender] for sender in sorted(latest)]


def _as_new(path: Path, message: Message) -> Message | None:
    """Return the sender's message in the file if it is at least as new as this one."""
    try:
        there = _load(path)
    except (OSError, FileRefused, MessageRefused):
        return None
    place, own_place = ((one.fingerprint, one.epoch, one.sender) for one in (there, message))
    return there if place == own_place and there.sequence >= message.sequence else None


def _is_from(path: str, federation: Federation, sender: str, *, by_name: bool) -> bool:
    """Return whether this sender wrote the file for this federation; if unreadable, ``by_name``."""
    try:
        message = _load(path)
    except (OSError, FileRefused, MessageRefused):
        return by_name
    return message.sender == sender and same_federation(federation, message)


def _unreadable(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or error}"
