"""A folder as an exchange: a shared drive, or a folder that a program synchronises.

``FOLDER/<fingerprint>/<sender>-<8 hex digits>.fedbo`` holds the message of one sender and key,
after a title line and a digest that reveals damage; ``…-withdrawn.fedbo`` holds the signed
withdrawal of it, and ``…-release.fedbo`` a private release. Nothing is looked for elsewhere, and a
file counts only under the name that its sender and key have. Names that start with a dot are
ignored: these files are still being written, or belong to programs that synchronise.

Whoever may write to the folder may put anything into it, at any moment. So links in it are neither
followed nor read, a file that is larger than a message of the federation is not read, and what is
held in memory is bounded.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedbo.caller import warn
from fedbo.exchange.base import Holding
from fedbo.exchange.choice import (
    LARGEST,
    RELEASE,
    OpenExchange,
    Origin,
    Outlawed,
    check_fit,
    chosen,
    foreign_notice,
    is_withdrawable,
    most_bytes,
    most_in,
    origin,
    replaces,
    signature_fault,
    withdrawal_of,
)
from fedbo.exchange.errors import ExchangeError, ExchangeWarning, failed
from fedbo.exchange.file import SUFFIX, file_name, load, name_of, seal
from fedbo.exchange.tree import OpenFolder
from fedbo.federation.federation import Federation
from fedbo.files import FileRefused, Lock
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair
from fedbo.message import Fingerprint, Heard, Message, MessageRefused, Withdrawal
from fedbo.outside import printable, shortened

NAMED = 5  # skipped files that one fetch names; the rest are counted
MOST_FILES = 200_000  # that are looked at in the folder of a federation
MOST_ENTRIES = 10_000  # of the folder itself that are looked at for federations
MOST_HELD = 2**30  # bytes that the largest messages of a federation may take in memory
_MOST_LISTED = 4 * LARGEST  # bytes that one call of `holdings` reads
_LONGEST = 200  # characters of a name that others chose, in a warning
# A file may be replaced within one tick of the clock by one of the same size and inode. So a file
# younger than this is always read again. The longest ticks in use, those of FAT, take 2 s.
_SETTLED = 3 * 10**9  # ns
_LINK = "it is a link, and links are not followed"
_FINGERPRINT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{8}){3}")

S = TypeVar("S", bound=Heard | Withdrawal)


class _File(NamedTuple):
    """What is in a file, if it may be handed out, and what is wrong with it."""

    version: tuple[int, ...]  # times of the content and of the status, size and inode
    is_settled: bool
    content: Heard | Withdrawal | None = None
    fault: str | None = None


@dataclass
class _Known:
    """What is known of the folder of one federation since the last fetch."""

    files: dict[str, _File] = field(default_factory=dict)  # by name
    told: set[object] = field(default_factory=set)  # what was warned of


class FolderExchange(OpenExchange):
    """An exchange through a folder that all participants can reach.

    Use the folder for nothing else. Its sub-folders get its permissions: whoever may write to it
    can participate. If the folder existed and has disappeared, that is an error, because its drive
    may be unmounted. If two processes publish for one sender at the same moment, the later sequence
    stays; on Windows, and on drives without locks, the earlier one may stay until the next message.

    The folder itself may be a link. On POSIX, no link below it is ever followed, even if somebody
    puts one there while it is used; Windows cannot promise that.

    Args:
        folder: The path of the folder; ``~`` is expanded. The first message creates the folder if
            it does not exist, but not its parent.
        keyring: Which keys belong to whom; by default the user's keyring.

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
    [Message(compact, sender='site-a', sequence=1, t_n=1, M=7, ... bytes)]
    """

    def __init__(self, folder: str | os.PathLike[str], keyring: Keyring | None = None) -> None:
        if not os.fspath(folder):
            raise ExchangeError("the address is '', expected a folder")
        self.folder = Path(os.path.abspath(os.path.expanduser(folder)))
        self.address = str(self.folder)
        self.keyring: Keyring = Keyring.user() if keyring is None else keyring
        self._was_there = False
        self._lock = Lock()
        self._known: dict[bytes, _Known] = {}  # by federation
        self._is_there()

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads the files itself. It can be made while the drive is unmounted.
        return self.__dict__ | {"_known": {}}

    def publish(self, message: Heard) -> bool:
        what = f"{message.type} {message.sequence} of {message.sender!r}"
        what += f" was not put into {self.address}"
        data, name = seal(message), name_of(message)
        if len(data) > LARGEST:
            raise ExchangeError(
                f"{what}: it has {len(data):,} bytes, and peers read at most {LARGEST:,}; "
                "agree on fewer features, or on messages of weights"
            )
        with self._lock:
            if not self._is_there():
                try:
                    self.folder.mkdir(exist_ok=True)
                except OSError as error:
                    raise failed(f"the folder {self.address} cannot be created", error) from error
            try:
                with OpenFolder(self.folder) as root:
                    fingerprint = str(Fingerprint(message.fingerprint))
                    with root.subfolder(fingerprint, create=True) as home, home.alone():
                        if message in Outlawed(_withdrawals(home, origin(message))):
                            return False
                        most = max(RELEASE, len(data) + most_bytes(0))
                        before = _stored(home, type(message), origin(message), most)
                        if is_new := replaces(message, before):
                            home.write(name, data)
            except OSError as error:
                raise failed(what, error) from error
        return is_new or (before is not None and before.encode() == message.encode())

    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        name = file_name(sender, b"" if keys is None else keys.public)
        with self._lock:
            if not self._is_there():
                return False
            try:
                with (
                    OpenFolder(self.folder) as root,
                    root.subfolder(str(federation.fingerprint)) as home,
                    home.alone(),
                ):
                    message = _load_or_damaged(home, name, most_in(federation))
                    if message is None:
                        is_gone = mine is None  # else nobody can tell whose it is
                    else:
                        is_gone = isinstance(message, Message) and is_withdrawable(
                            message, federation, sender, keys, mine
                        )
                    if is_gone and isinstance(message, Message) and keys is not None:
                        _outlaw(home, withdrawal_of(message, keys))
                    if is_gone:
                        home.unlink(name)
                    return is_gone
            except (FileNotFoundError, NotADirectoryError):  # nothing is there
                return False
            except OSError as error:
                what = f"the message of {sender!r} in {self.address} is still handed out"
                raise failed(what, error) from error

    def holdings(self) -> list[Holding]:
        held: list[Holding] = []
        withdrawals: list[Withdrawal] = []
        left = _MOST_LISTED
        with self._lock:
            if not self._is_there():
                return []
            with self._opened() as root:
                for fingerprint in self._federations(root):
                    try:
                        with root.subfolder(fingerprint) as home:
                            left = _list(home, left, held, withdrawals)
                    except OSError as error:
                        place = os.path.join(root.path, fingerprint)
                        held.append(Holding(None, None, place, _unreadable(error)))
        outlawed = Outlawed(withdrawals)
        for i, holding in enumerate(held):
            message = holding.message
            if message is not None and holding.fault is None and message in outlawed:
                held[i] = holding._replace(fault="its sender has withdrawn it")
        return sorted(held, key=lambda holding: holding.place)

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

    def _federations(self, root: OpenFolder) -> list[str]:
        """Return the names of the folders of federations."""
        names = islice((entry.name for entry in root.entries()), MOST_ENTRIES)
        try:
            return sorted(name for name in names if _FINGERPRINT.fullmatch(name))
        except OSError as error:
            raise failed(f"the folder {self.address} cannot be read", error) from error

    def _chosen(self, federation: Federation) -> list[Heard]:
        """Return all that counts in the folder of a federation, and warn of what does not."""
        own = federation.fingerprint
        with self._lock:
            if not self._is_there():
                return []
            known = self._known.setdefault(bytes(own), _Known())
            with self._opened() as root:
                others = {*self._federations(root)} - {str(own)}
                notices = self._read(root, federation, known)
            contents = [file.content for file in known.files.values() if file.content is not None]
            outlawed = Outlawed(one for one in contents if isinstance(one, Withdrawal))
            messages = [one for one in contents if isinstance(one, Heard) and one not in outlawed]
            accepted, refused = chosen(federation, self.keyring, messages)
            faults = {
                name: file.fault for name, file in known.files.items() if file.fault is not None
            } | {name_of(message): reason for message, reason in refused}
            home = os.path.join(self.address, str(own))
            news = {
                (name, known.files[name].version, fault): f"{self._shown(home, name)} was skipped: "
                f"{printable(fault)}"
                for name, fault in faults.items()
            }
            texts = [text for what, text in news.items() if what not in known.told]
            if (surplus := len(texts) - NAMED) > 0:
                texts[NAMED:] = [f"{surplus:,} more files in {self.address} were skipped"]
            texts += [notice for notice in notices if notice not in known.told]
            if strangers := others - known.told:
                fingerprints = [bytes.fromhex(name.replace("-", "")) for name in strangers]
                texts.append(foreign_notice(self.address, federation, fingerprints))
            known.told = {*news, *notices, *others}
        for text in texts:
            warn(text, ExchangeWarning)
        return accepted

    def _read(self, root: OpenFolder, federation: Federation, known: _Known) -> list[str]:
        """Read the files that are new or have changed; return what else there is to say."""
        before, notices = known.files, []
        known.files, most = {}, min(MOST_FILES, MOST_HELD // most_in(federation))
        try:
            with root.subfolder(str(federation.fingerprint)) as home:
                listed = [
                    entry.name
                    for entry in islice(home.entries(), most + 1)
                    if entry.name.endswith(SUFFIX) and not entry.name.startswith(".")
                    if not entry.is_dir(follow_symlinks=False)
                ]
                # Whoever was heard before comes first, so that nobody is displaced by others. Some
                # file systems do not list a file that is being replaced at this moment.
                heard = [name for name, file in before.items() if file.content is not None]
                names = dict.fromkeys([*heard, *before, *listed])
                for name in islice(names, most):
                    file = self._look(home, name, federation, before.get(name))
                    if file is not None:
                        known.files[name] = file
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            path = os.path.join(root.path, str(federation.fingerprint))
            if error.errno == errno.ELOOP:
                return [f"{path} was skipped: {_LINK}"]
            raise failed(f"the folder {path} cannot be read", error) from error
        if len(listed) > most:
            notices.append(
                f"{home.path} has more than {most:,} files, and the rest was ignored: use the "
                "folder for nothing else, and agree on fewer features if there are so many members"
            )
        return notices

    def _look(
        self, home: OpenFolder, name: str, federation: Federation, known: _File | None
    ) -> _File | None:
        """Return what is in a file; None if there is no file."""
        try:
            status = home.status(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            return _File((0, 0, 0, 0), False, fault=_unreadable(error))
        version = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
        if known is not None and known.is_settled and known.version == version:
            return known
        file = _File(version, time.time_ns() - status.st_mtime_ns > _SETTLED)
        try:
            content = load(home, name, most_in(federation))
            if name != name_of(content):
                raise MessageRefused(
                    f"it holds a {content.type} of {content.sender!r}, which counts only in a file "
                    f"called {name_of(content)}"
                )
            check_fit(federation, content)
        except FileNotFoundError:
            return None
        except OSError as error:
            return file._replace(is_settled=False, fault=_unreadable(error))
        except (FileRefused, MessageRefused) as error:
            return file._replace(fault=str(error))
        return file._replace(content=content)

    def _shown(self, folder: str, name: str) -> str:
        """Return the path of a file for people; others chose its name."""
        return os.path.join(folder, printable(shortened(name, _LONGEST)))


def _list(home: OpenFolder, left: int, held: list[Holding], withdrawals: list[Withdrawal]) -> int:
    """Add all that is in the folder of a federation; return how many bytes may still be read."""
    for entry in islice(home.entries(), MOST_FILES):
        if not entry.name.endswith(SUFFIX) or entry.name.startswith("."):
            continue
        place = os.path.join(home.path, entry.name)
        when = content = fault = None
        try:
            status = home.status(entry.name)
            when = status.st_mtime
            if status.st_size > left:
                most = f"{_MOST_LISTED:,} bytes"
                raise FileRefused(f"it was not read: all files together have more than {most}")
            left -= status.st_size
            content = load(home, entry.name, LARGEST)
            fault = signature_fault(content)
        except FileNotFoundError:
            continue
        except OSError as error:
            fault = _unreadable(error)
        except (FileRefused, MessageRefused) as error:
            fault = str(error)
        if isinstance(content, Withdrawal) and fault is None:
            withdrawals.append(content)
        else:
            message = None if isinstance(content, Withdrawal) else content
            held.append(Holding(message, when, place, fault))
    return left


def _load_or_damaged(home: OpenFolder, name: str, most: int) -> Heard | Withdrawal | None:
    """Read a file; None if it is damaged, or a link."""
    try:
        return load(home, name, most)
    except (FileRefused, MessageRefused):
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None


def _stored(home: OpenFolder, what: type[S], source: Origin, most: int) -> S | None:
    """Return what the file of this origin holds, if it is what it should be."""
    try:
        content = load(home, file_name(source.sender, source.key, what.type), most)
    except (OSError, FileRefused, MessageRefused):
        return None
    return content if isinstance(content, what) and origin(content) == source else None


def _withdrawals(home: OpenFolder, source: Origin) -> list[Withdrawal]:
    """Return the valid withdrawal by an origin, if there is one."""
    withdrawal = _stored(home, Withdrawal, source, most_bytes(0)) if source.key else None
    return [] if withdrawal is None or signature_fault(withdrawal) else [withdrawal]


def _outlaw(home: OpenFolder, withdrawal: Withdrawal) -> None:
    """Put a withdrawal into a folder that is locked, unless a later one is there."""
    earlier = _withdrawals(home, origin(withdrawal))
    if all(other.sequence < withdrawal.sequence for other in earlier):
        home.write(name_of(withdrawal), seal(withdrawal))


def _unreadable(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return _LINK
    return f"it cannot be read: {error.strerror or error}"
