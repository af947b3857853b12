"""A folder as an exchange: a shared drive, a synchronised folder, or files carried by hand.

``FOLDER/<fingerprint>/epoch-<n>/<sender>-<8 hex digits>.fedbo`` holds the message of one sender,
after a title line and a digest that reveals damage. These names are only for people: a reader looks
into every ``.fedbo`` file in the folder and up to three levels below, so files may be copied
anywhere by hand. Names that start with a dot are ignored: these files are still being written, or
belong to programs that synchronise.

Whoever may write to the folder may put anything into it, at any moment. Links in it are neither
followed nor read. A file that is larger than a message of the federation is not read.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from fedbo import files
from fedbo.caller import warn
from fedbo.exchange.base import (
    Exchange,
    ExchangeError,
    ExchangeWarning,
    failed,
    foreign_notice,
    same_federation,
)
from fedbo.exchange.search import SUFFIX, Search, home_of, unreadable
from fedbo.exchange.tree import OpenFolder
from fedbo.federation import Federation
from fedbo.files import FileRefused
from fedbo.locks import Lock
from fedbo.message import Fingerprint, Kind, Message, MessageRefused
from fedbo.outside import printable, shortened

LARGEST = 64 * 2**20  # bytes: larger files are not read; enough for a belief with M = 5,700
NAMED = 5  # skipped files that one fetch names; the rest are counted
_TITLE = "fedbo message 1"
_LONGEST = 200  # characters of a name or a fault that a warning shows
_BESIDE = 512  # bytes of a file beside its numbers, or more: title, digest, header, signature
_UNFINISHED = re.compile(rf"\..+\{SUFFIX}\.[0-9a-f]{{8}}")  # as `files.write` names it
# A file may be replaced within one tick of the clock by one of the same size and inode. So a file
# younger than this is always read again. The longest ticks in use, those of FAT, take 2 s.
_SETTLED = 3 * 10**9  # ns


class _File(NamedTuple):
    """What is in a file: a message, a fault, or neither if the message is of another epoch."""

    version: tuple[int, int, int, int]  # times of the content and of the status, size and inode
    seen: int  # when this version was first seen, in ns of a clock that nobody can set
    is_settled: bool
    message: Message | None = None
    fault: str | None = None
    foreign: bytes | None = None  # the fingerprint of another federation


@dataclass
class _Memory:
    """What the last fetch for a federation found."""

    files: dict[str, dict[str, _File]] = field(default_factory=dict)  # by folder and name
    faults: dict[str, str] = field(default_factory=dict)  # of links and folders, by path
    notices: list[str] = field(default_factory=list)
    foreign: set[bytes] = field(default_factory=set)  # other federations that were reported

    def faulty(self) -> dict[str, tuple[object, str]]:
        """Return every fault, with the version of its file, by path."""
        faulty: dict[str, tuple[object, str]] = {
            path: (None, fault) for path, fault in self.faults.items()
        }
        for folder, found in self.files.items():
            for name, file in found.items():
                if file.fault is not None:
                    faulty[os.path.join(folder, name)] = (file.version, file.fault)
        return faulty


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
        self._memory: dict[tuple[bytes, int], _Memory] = {}  # by federation and epoch
        self._is_there()

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads the files itself. It can be made while the drive is unmounted.
        return self.__dict__ | {"_memory": {}}

    def publish(self, message: Message) -> bool:
        what = f"message {message.sequence} of {message.sender!r} was not put into {self.address}"
        data = files.seal(_TITLE, message.encode())
        if len(data) > LARGEST:
            raise ExchangeError(
                f"{what}: it has {len(data):,} bytes, and peers read at most {LARGEST:,}; "
                "agree on fewer features, or on messages of weights"
            )
        fingerprint, epoch = home_of(Fingerprint(message.fingerprint), message.epoch)
        name = _name(message.sender)
        with self._lock:
            if not self._is_there():
                try:
                    self.folder.mkdir(exist_ok=True)
                except OSError as error:
                    raise failed(f"the folder {self.address} cannot be created", error) from error
            try:
                with (
                    OpenFolder(self.folder) as root,
                    root.subfolder(fingerprint, create=True) as parent,
                    parent.subfolder(epoch, create=True) as home,
                ):
                    with home.alone():
                        newer = _as_new(home, name, message)
                        if newer is None:
                            home.write(name, data)
                    home.sweep(name, _UNFINISHED)
            except OSError as error:
                raise failed(what, error) from error
        return newer is None or newer.encode() == message.encode()

    def fetch(self, federation: Federation) -> list[Message]:
        with self._lock:
            if not self._is_there():
                return []
            place = (bytes(federation.fingerprint), federation.epoch)
            before = self._memory.get(place, _Memory())
            found = self._memory[place] = self._look(federation, before)
        for text in [*self._skipped(before, found), *found.notices]:
            if text not in before.notices:
                warn(text, ExchangeWarning)
        everything = (file.message for one in found.files.values() for file in one.values())
        return _latest(message for message in everything if message is not None)

    def withdraw(self, federation: Federation, sender: str) -> bool:
        name = _name(sender)
        is_gone = False
        with self._lock:
            if not self._is_there():
                return False
            with self._opened() as root:
                own = os.path.join(root.path, *home_of(federation.fingerprint, federation.epoch))
                for folder, names in Search(root, federation, epochs=True):
                    is_home = folder.path == own
                    for one in {*names, name} if is_home else names:
                        by_name = is_home and one == name
                        is_gone |= _remove(folder, one, federation, sender, by_name=by_name)
        return is_gone

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

    def _opened(self) -> OpenFolder:
        try:
            return OpenFolder(self.folder)
        except OSError as error:
            raise failed(f"the folder {self.address} cannot be read", error) from error

    def _look(self, federation: Federation, before: _Memory) -> _Memory:
        """Read the files that are new or have changed; return all that concern this federation."""
        found = _Memory(foreign=before.foreign)
        with self._opened() as root:
            search = Search(root, federation, known=before.foreign)
            for folder, names in search:
                known = before.files.get(folder.path, {})
                # Some file systems do not list a file that is being replaced at this moment.
                listed = dict.fromkeys([*names, *known])
                looked_at = {
                    name: _looked_at(folder, name, known.get(name), federation) for name in listed
                }
                found.files[folder.path] = {
                    name: file for name, file in looked_at.items() if file is not None
                }
        found.faults, found.notices = search.faults, [*search.bounds]
        foreign = search.foreign + Counter(
            file.foreign
            for one in found.files.values()
            for file in one.values()
            if file.foreign is not None and file.foreign not in before.foreign
        )
        if foreign:
            found.notices.append(foreign_notice(self.address, federation, foreign))
            found.foreign = before.foreign | foreign.keys()
        return found

    def _shown(self, path: str) -> str:
        """Return a path in the folder for people; others chose its names."""
        below = path.removeprefix(self.address)
        return self.address + printable(shortened(below, _LONGEST))

    def _skipped(self, before: _Memory, found: _Memory) -> list[str]:
        """Return what to say about files and folders that were not skipped before."""
        known = before.faulty()
        news = [
            f"{self._shown(path)} was skipped: {printable(shortened(why[1], _LONGEST))}"
            for path, why in found.faulty().items()
            if known.get(path) != why
        ]
        if len(news) > NAMED:
            news[NAMED:] = [f"{len(news) - NAMED:,} more files in {self.address} were skipped"]
        return news


def _name(sender: str) -> str:
    """Make a file name that all file systems accept, even if two senders differ only in case.

    >>> _name("Köln.1")
    'K%C3%B6ln%2E1-8db13081.fedbo'
    """
    escaped = quote(sender, safe="").replace(".", "%2E").replace("~", "%7E")
    return f"{escaped}-{hashlib.sha256(sender.encode()).hexdigest()[:8]}{SUFFIX}"


def _most(kind: Kind, M: int) -> int:
    """Return how many bytes a file with a message of this kind can have."""
    numbers = M if kind == "weights" else M + M * (M + 1) // 2 + 2
    return min(LARGEST, 4 * numbers + _BESIDE)


def _load(folder: OpenFolder, name: str, most: int) -> Message:
    """Read the message in a file; raise `FileRefused`, `MessageRefused` or `OSError`."""
    data = folder.read(name, most, start=_TITLE.encode())
    return Message.decode(files.unseal(_TITLE, data, "it"))


def _looked_at(
    folder: OpenFolder, name: str, known: _File | None, federation: Federation
) -> _File | None:
    """Return what is in the file for this federation; None if there is no file."""
    try:
        status = folder.status(name)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _File((0, 0, 0, 0), 0, False, fault=unreadable(error))
    version = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
    is_known = known is not None and known.version == version
    if known is not None and is_known and known.is_settled:
        return known
    now = time.monotonic_ns()
    seen = known.seen if known is not None and is_known else now
    # Whoever sets the time of a file to the future does not make us read it again and again.
    is_settled = max(time.time_ns() - status.st_mtime_ns, now - seen) > _SETTLED
    file = _File(version, seen, is_settled)
    try:
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused("it is not a regular file")
        message = _load(folder, name, _most(federation.kind, federation.features))
        if not same_federation(federation, message):
            return file._replace(foreign=message.fingerprint)
        federation.check(message)
    except FileNotFoundError:
        return None
    except OSError as error:
        return file._replace(is_settled=False, fault=unreadable(error))
    except (FileRefused, MessageRefused) as error:
        return file._replace(fault=str(error))
    return file._replace(message=message if message.epoch == federation.epoch else None)


def _latest(messages: Iterable[Message]) -> list[Message]:
    """Keep the latest message of each sender; of equally late ones, all readers keep the same."""
    latest: dict[str, Message] = {}
    for message in messages:
        other = latest.get(message.sender)
        if other is not None:
            message = max(message, other, key=lambda one: (one.sequence, one.encode()))
        latest[message.sender] = message
    return [latest[sender] for sender in sorted(latest)]


def _as_new(home: OpenFolder, name: str, message: Message) -> Message | None:
    """Return the sender's message in the file if it is at least as new as this one."""
    try:
        there = _load(home, name, _most(message.kind, message.M))
    except (OSError, FileRefused, MessageRefused):
        return None
    place, own_place = ((one.fingerprint, one.epoch, one.sender) for one in (there, message))
    return there if place == own_place and there.sequence >= message.sequence else None


def _remove(
    folder: OpenFolder, name: str, federation: Federation, sender: str, *, by_name: bool
) -> bool:
    """Remove the file if the sender's message is in it; if it is unreadable, ``by_name``."""
    try:
        try:
            message = _load(folder, name, LARGEST)
            is_theirs = message.sender == sender and same_federation(federation, message)
        except FileNotFoundError:
            return False
        except (OSError, FileRefused, MessageRefused):
            is_theirs = by_name
        if is_theirs:
            folder.unlink(name)
    except FileNotFoundError:
        return False
    except OSError as error:
        path = os.path.join(folder.path, name)
        raise failed(f"the message of {sender!r} in {path} is still handed out", error) from error
    return is_theirs
