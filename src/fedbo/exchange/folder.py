"""A folder as an exchange: a shared drive, a synchronised folder, or one that is carried by hand.

``FOLDER/<fingerprint>/epoch-<n>/<sender>-<8 hex digits>.fedbo`` is the message of one sender,
behind a line that says what it is and a digest that shows damage. Names are for people: whoever
reads goes by the content of every ``.fedbo`` file in the folder and up to three folders below, so
that files may be copied in by hand, anywhere. Names that start with a dot are passed over: files on
their way, and the attics of programs that synchronise. Links to folders are not followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from fedbo import files
from fedbo.exchange.base import (
    Exchange,
    ExchangeError,
    ExchangeWarning,
    failed,
    refusal,
    same_federation,
)
from fedbo.exchange.locks import Lock, alone
from fedbo.federation import Federation
from fedbo.files import FileRefused
from fedbo.message import Fingerprint, Message, MessageRefused

SUFFIX = ".fedbo"
DEPTH = 3  # of folders below that are looked into
LARGEST = 64 * 2**20  # bytes of a file that is read: a belief of M = 5,700
NAMED = 5  # files that are told of one by one in a fetch
_TITLE = "fedbo message 1"
_FINGERPRINT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{8}){3}")
_ON_ITS_WAY = re.compile(rf"\..+\{SUFFIX}\.[0-9a-f]{{8}}")  # as `files.write` calls it
_ABANDONED = 3600 * 10**9  # ns after which its writer must be dead
# A file may be replaced within one tick of the clock, by one as long that gets the freed inode; so
# a file as young as this is read again. The coarsest ticks in use, those of FAT, are 2 s.
_SETTLED = 3 * 10**9  # ns

Version = tuple[int, int, int]
Said = dict[str, tuple[Version | None, str]]


class _File(NamedTuple):
    """What was made of a file: a message, a fault, or neither where it is of another epoch."""

    version: Version | None
    settled: bool = False
    message: Message | None = None
    fault: str | None = None


class _Shelf:
    """What is known of one federation: files as they were read, and what was said against some."""

    def __init__(self) -> None:
        self.files: dict[str, _File] = {}
        self.said: Said = {}


class FolderExchange(Exchange):
    """Messages in a folder that others see too.

    The folder should be there for this alone. It is made with the first message, in a folder that
    must exist. Its sub-folders get its permissions: who may write into it can take part. A folder
    that was there and is gone is an error, because its drive may be off.

    Of two processes that publish for one sender at the same moment, the later sequence stays. On
    Windows and on drives without locks the earlier one may, until the next message is published.
    An unchanged file is not read twice; its message is kept in memory. Whoever publishes looks only
    at the file that the sender's messages go to, and not for later ones that were put elsewhere.

    >>> import tempfile
    >>> from fedbo import Agent, Federation, Float
    >>> federation = Federation({"x": Float(0, 1)})
    >>> agent = Agent(federation, name="site-a", seed=0)
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
        self._was_there = _there(self.folder)
        self._lock = Lock()
        self._shelves: dict[tuple[bytes, int], _Shelf] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads for itself, and may be made while the drive is off.
        return self.__dict__ | {"_shelves": {}}

    def publish(self, message: Message) -> bool:
        what = f"message {message.sequence} of {message.sender!r} was not put into {self.address}"
        data = files.seal(_TITLE, message.encode())
        if len(data) > LARGEST:
            raise ExchangeError(
                f"{what}: it has {len(data):,} bytes, and nobody reads more than {LARGEST:,}; "
                "agree on fewer features, or on messages of weights"
            )
        home = self._home(Fingerprint(message.fingerprint), message.epoch)
        path = home / _name(message.sender)
        with self._lock:
            self._require_folder()
            _require_no_link(what, home.parent, home)
            try:
                _make_below(self.folder, home)
                with alone(home):
                    there = _one_as_new(path, message)
                    if there is None:
                        files.write(path, data)
                        _let_read(path)
            except OSError as error:
                raise failed(what, error) from error
            _sweep(path)
        return there is None or there.encode() == message.encode()

    def fetch(self, federation: Federation) -> list[Message]:
        with self._lock:
            if not self._is_there():
                return []
            key = (bytes(federation.fingerprint), federation.epoch)
            shelf = self._shelves.setdefault(key, _Shelf())
            before, shelf.said = shelf.said, self._look(federation, shelf)
            news = [
                _printable(f"{path} was skipped: {what[1]}")
                for path, what in shelf.said.items()
                if before.get(path) != what
            ]
            found = _latest(shelf)
        if len(news) > NAMED:
            news[NAMED:] = [f"{len(news) - NAMED:,} more files in {self.address} were skipped"]
        for sentence in news:
            warnings.warn(sentence, ExchangeWarning, stacklevel=2)
        return found

    def withdraw(self, federation: Federation, sender: str) -> bool:
        def is_ours(name: str) -> bool:
            there = bytes.fromhex(name.replace("-", ""))
            return federation.fingerprint.difference(there) in (None, "scalars")

        home = self._home(federation.fingerprint, federation.epoch)
        mine = str(home / _name(sender))
        gone = False
        with self._lock:
            if not self._is_there():
                return False
            for path in self._files(is_ours, home, {}):
                if not _is_of(path, federation, sender, by_name=path == mine):
                    continue
                try:
                    os.unlink(path)
                    gone = True
                except FileNotFoundError:
                    continue
                except OSError as error:
                    what = f"the message of {sender!r} in {path} is still handed out"
                    raise failed(what, error) from error
        return gone

    def _home(self, fingerprint: Fingerprint, epoch: int) -> Path:
        return self.folder / str(fingerprint) / f"epoch-{epoch}"

    def _is_there(self) -> bool:
        there = _there(self.folder)
        if self._was_there and not there:
            raise ExchangeError(
                f"the folder {self.address} was there and is gone; see whether its drive is still "
                "mounted, or make it again"
            )
        self._was_there = there
        return there

    def _require_folder(self) -> None:
        if not self._is_there():
            try:
                self.folder.mkdir(exist_ok=True)
            except OSError as error:
                raise failed(f"the folder {self.address} cannot be made", error) from error
            self._was_there = True

    def _look(self, federation: Federation, shelf: _Shelf) -> Said:
        """Bring the shelf up to date; what is wrong with which version of which file."""
        said: Said = {}
        ours = str(federation.fingerprint)
        home = self._home(federation.fingerprint, federation.epoch)
        paths = dict.fromkeys(self._files(lambda name: name == ours, home, said))
        # Some file systems do not list a file that is replaced at this very moment.
        missed = [path for path in shelf.files if path not in paths and os.path.exists(path)]
        known, shelf.files = shelf.files, {}
        for path in [*paths, *missed]:
            file = _looked_at(path, known.get(path), federation)
            if file is None:
                continue
            shelf.files[path] = file
            if file.fault is not None:
                said[path] = file.version, file.fault
        return said

    def _files(self, is_ours: Callable[[str], bool], home: Path, said: Said) -> Iterator[str]:
        """All files of messages, but for those in folders that are named as another federation's.

        ``home`` must be readable if it is there; of other folders that are not, ``said`` tells.
        """
        vital = {self.address, str(home.parent), str(home)}
        been: set[str] = set()  # Windows has junctions, which are no links and may lead back
        level = [self.address]
        for _ in range(DEPTH + 1):
            below = []
            for folder in level:
                real = os.path.realpath(folder)
                if real in been:
                    continue
                been.add(real)
                try:
                    entries = _entries(folder)
                except OSError as error:
                    if folder in vital:
                        raise failed(f"the folder {folder} cannot be read", error) from error
                    said[folder] = None, _unreadable(error)
                    continue
                for path, name, is_folder in entries:
                    if not is_folder and name.lower().endswith(SUFFIX):
                        yield path
                    elif is_folder and (not _FINGERPRINT.fullmatch(name) or is_ours(name)):
                        below.append(path)
            level = below


# The folder


def _there(folder: Path) -> bool:
    """Whether the folder is there; an error where it cannot be."""
    try:
        mode = os.stat(folder).st_mode
    except FileNotFoundError:
        if folder.parent.is_dir():
            return False
        raise ExchangeError(
            f"the folder {folder} cannot be made, because {folder.parent} is not there; "
            "check the address, and whether its drive is mounted"
        ) from None
    except ValueError as error:
        raise ExchangeError(f"the address is {str(folder)!r}: {error}; give a folder") from None
    except OSError as error:
        raise failed(f"the folder {folder} cannot be reached", error) from error
    if not stat.S_ISDIR(mode):
        raise ExchangeError(f"{folder} is a file, expected a folder; check the address")
    return True


def _require_no_link(what: str, *places: Path) -> None:
    """Who may write into the root could make a link there that leads out of it."""
    for place in places:
        if os.path.islink(place):
            raise ExchangeError(
                f"{what}: {place} is a link, and could lead anywhere; put a folder there instead"
            )


def _make_below(root: Path, home: Path) -> None:
    """Make home and what is between; who may write into the root may write into them too."""
    if home.is_dir():
        return
    if home.parent != root:
        _make_below(root, home.parent)
    home.mkdir(exist_ok=True)
    with contextlib.suppress(OSError):  # somebody else made it just before
        home.chmod(stat.S_IMODE(home.parent.stat().st_mode))


def _entries(folder: str) -> list[tuple[str, str, bool]]:
    """Paths and names in the folder, and whether they are folders; none if it is gone."""
    try:
        with os.scandir(folder) as entries:
            return [
                (entry.path, entry.name, _is_folder(entry))
                for entry in entries
                if not entry.name.startswith(".")
            ]
    except FileNotFoundError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # it cannot be asked
        return False


def _sweep(written: Path) -> None:
    """Remove what dead writers left beside a file, if it is old by the clock of the drive."""
    with contextlib.suppress(OSError):
        oldest = written.stat().st_mtime_ns - _ABANDONED
        with os.scandir(written.parent) as entries:
            left = [entry for entry in entries if _ON_ITS_WAY.fullmatch(entry.name)]
        for entry in left:
            with contextlib.suppress(OSError):  # not ours to remove
                if entry.stat(follow_symlinks=False).st_mtime_ns < oldest:
                    os.unlink(entry.path)


# The files


def _name(sender: str) -> str:
    """A name that every file system takes, and that differs where only capitals do.

    >>> _name("Köln.1")
    'K%C3%B6ln%2E1-8db13081.fedbo'
    """
    plain = quote(sender, safe="").replace(".", "%2E").replace("~", "%7E")
    return f"{plain}-{hashlib.sha256(sender.encode()).hexdigest()[:8]}{SUFFIX}"


def _load(path: str | os.PathLike[str]) -> Message:
    """The message in the file; anything else is refused, or an error of the system."""
    # A pipe must not keep anybody waiting for what it never says.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused("it is not a plain file")
        if status.st_size > LARGEST:
            raise FileRefused(
                f"it has {status.st_size:,} bytes, and no message has more than {LARGEST:,}"
            )
        if not status.st_size:
            raise FileRefused("it is empty; perhaps it was not carried over whole")
        return Message.decode(files.unseal(_TITLE, file.read(status.st_size), "it"))


def _looked_at(path: str, known: _File | None, federation: Federation) -> _File | None:
    """What the file is to this federation; None if it is gone."""
    version: Version | None = None
    try:
        status = os.stat(path)
        version = status.st_mtime_ns, status.st_size, status.st_ino
        if known is not None and known.settled and known.version == version:
            return known
        settled = time.time_ns() - status.st_mtime_ns > _SETTLED
        message = _load(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _File(version, fault=_unreadable(error))
    except (FileRefused, MessageRefused) as error:
        return _File(version, settled, fault=str(error))
    fault = refusal(federation, message)
    if fault is not None or message.epoch != federation.epoch:
        return _File(version, settled, fault=fault)
    return _File(version, settled, message)


def _latest(shelf: _Shelf) -> list[Message]:
    """The latest message of each sender, whatever copies there are, and in whatever order."""
    latest: dict[str, Message] = {}
    for file in shelf.files.values():
        if file.message is not None:
            other = latest.get(file.message.sender)
            if other is None or _order(file.message) > _order(other):
                latest[file.message.sender] = file.message
    return [message for _, message in sorted(latest.items())]


def _order(message: Message) -> tuple[int, bytes]:
    return message.sequence, message.encode()  # all readers choose the same of two


def _one_as_new(path: Path, message: Message) -> Message | None:
    """What is there of the same sender, if it is no older than the message."""
    try:
        there = _load(path)
    except (OSError, FileRefused, MessageRefused):
        return None
    same = (there.fingerprint, there.epoch, there.sender) == (
        message.fingerprint,
        message.epoch,
        message.sender,
    )
    return there if same and there.sequence >= message.sequence else None


def _let_read(path: Path) -> None:
    """Let those read the file who may read its folder, whatever this user's habits are."""
    with contextlib.suppress(OSError):
        mode, wanted = path.stat().st_mode, path.parent.stat().st_mode & 0o044
        if wanted & ~mode:
            path.chmod(stat.S_IMODE(mode) | wanted)


def _is_of(path: str, federation: Federation, sender: str, *, by_name: bool) -> bool:
    """Whether the file is this sender's for this federation; by its name if it cannot be read."""
    try:
        message = _load(path)
    except FileNotFoundError:
        return False
    except (OSError, FileRefused, MessageRefused):
        return by_name
    return message.sender == sender and same_federation(federation, message)


def _printable(text: str) -> str:
    """Anybody may have named the file: escapes must not reach a screen."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _unreadable(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or error}"
