"""A folder as an exchange: a shared drive, or a folder that a program synchronises.

``FOLDER/<fingerprint>/<sender>-<8 hex digits>.fedbo`` holds what counts of one sender and key: its
message, or the withdrawal of it, after a title line and a digest that reveals damage;
``…-release.fedbo`` holds a private release. Nothing is looked for elsewhere, and a file counts only
under the name that its sender and key have. Names that start with a dot are ignored: these files
are still being written, or belong to programs that synchronise.

Whoever may write to the folder may put anything into it, at any moment. So links in it are neither
followed nor read, a file that is larger than a message of the federation is not read, and what is
held in memory is bounded.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from fedbo import files
from fedbo.errors import ExchangeError, FileRefused, MessageRefused, NotSent
from fedbo.exchange.base import Holding, OpenExchange
from fedbo.exchange.errors import failing
from fedbo.exchange.hearing import Hearing, foreign
from fedbo.exchange.latest import Content, latest
from fedbo.exchange.tree import OpenFolder
from fedbo.federation.federation import Federation
from fedbo.files import Lock
from fedbo.message import Fingerprint, Release, Withdrawal, read
from fedbo.message.release import RELEASE_BYTES
from fedbo.outside import shortened
from fedbo.trust import Keyring, verify

SUFFIX = ".fedbo"
MOST_FILES = 20_000  # messages that are looked at in a folder: a second, and 32 MB of what is wrong
MOST_ENTRIES = 500_000  # names that are looked at, those of other files included
MOST_HELD = 2**30  # bytes that the largest messages of a federation may take in memory
MOST_LISTED = 2**26  # bytes of messages that one call of `holdings` returns
LISTED = 2**20  # bytes of a message of any federation that is listed
_TITLE = "fedbo message 1"
_RELEASE = "-release"
_LONGEST = 200  # characters of a name that others chose, in a warning
_LINK = "it is a link, and links are not followed"
_FINGERPRINT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{8}){3}")
_TICK = 2.0  # seconds: the time of a folder is no finer than this on some file systems
_LOOK = 60.0  # seconds after which files are looked at again in any case

Stamp = tuple[int, ...]  # which version of a file or folder it is


class _Heard:
    """What was heard of one federation, and of which version of the folder and its files."""

    def __init__(self, hearing: Hearing) -> None:
        self.hearing = hearing
        self.stamp: Stamp = ()
        self.looked = 0.0  # at the files, by the monotonic clock
        self._files: dict[str, tuple[Stamp, bytes | str]] = {}

    def __iter__(self) -> Iterator[tuple[str, bytes | str]]:
        for name, (_, data) in self._files.items():
            yield name, data

    def look(self, home: OpenFolder, federation: Federation) -> list[str]:
        """Read the files that have changed; return what there is to warn of.

        Senders that were heard before come first, so that others do not displace them. Some file
        systems do not list a file that is being replaced at this moment.
        """
        most = federation.most_bytes
        limit = min(MOST_FILES, MOST_HELD // most)
        before = {n: f for n, f in self._files.items() if isinstance(f[1], bytes)}
        seen, is_all = _names(home, limit + 1)
        found: dict[str, tuple[Stamp, bytes | str]] = {}
        is_full = False
        for name in dict.fromkeys([*before, *seen]):
            if is_full := len(found) == limit:
                break
            with suppress(FileNotFoundError):
                stamp = stamp_of(home.status(name))
                known = self._files.get(name)
                is_same = known is not None and known[0] == stamp
                found[name] = known if known and is_same else (stamp, _load(home, name, most))
        self._files = found
        if not (is_full or not is_all):
            return []
        return [
            f"{home.path} has more than {limit:,} messages or {MOST_ENTRIES:,} other files, and "
            "the rest was ignored: use the folder for nothing else"
        ]


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
            it does not exist; the folder above must exist.
        keyring: Whose key is whose; by default the user's keyring.

    Raises:
        ExchangeError: If the folder cannot be reached.
    """

    def __init__(self, folder: str | os.PathLike[str], keyring: Keyring | None = None) -> None:
        if not os.fspath(folder) or "\0" in os.fspath(folder):
            raise ExchangeError(
                f"the address is {os.fspath(folder)!r}, expected a folder or the address of a hub"
            )
        self.folder = Path(os.path.abspath(os.path.expanduser(folder)))
        self.address = str(self.folder)
        self.keyring: Keyring = Keyring.user() if keyring is None else keyring
        self._was_there = False
        self._lock = Lock()
        self._heard: dict[str, _Heard] = {}  # by federation
        with (
            failing(f"the folder {self.address} cannot be used"),
            suppress(FileNotFoundError),
            self._opened(),
        ):
            pass

    def __reduce__(self) -> tuple[type[FolderExchange], tuple[str, Keyring]]:
        return type(self), (self.address, self.keyring)

    def publish(self, content: Content) -> bool:
        what = f"{content.type} {content.sequence} of {content.sender!r}"
        try:
            verify(content)
        except MessageRefused as error:
            raise NotSent(f"it was not put into {self.address}: {error}") from None
        data, name = seal(content), name_of(content)
        with (
            self._lock,
            failing(f"{what} was not put into {self.address}", NotSent),
            self._opened(create=True) as root,
            root.subfolder(str(Fingerprint(content.fingerprint)), create=True) as home,
            home.alone(),
        ):
            before = _signed(home, name, len(data) + RELEASE_BYTES)
            (counting,) = latest([content] if before is None else [before, content]).values()
            if counting != before:
                home.write(name, data)
        return counting == content

    def holdings(self) -> list[Holding]:
        """Return everything in the folder, of any federation, sorted by place.

        Nothing is checked. What is too large is not read, nor are more than 20,000 files.
        """
        held: list[Holding] = []
        left = MOST_LISTED
        with (
            self._lock,
            failing(f"the folder {self.address} cannot be read"),
            suppress(FileNotFoundError),
            self._opened() as root,
        ):
            for fingerprint in _federations(root):
                with root.subfolder(fingerprint) as home:
                    for name in sorted(_names(home, MOST_FILES - len(held))[0]):
                        with suppress(FileNotFoundError):
                            when = home.status(name).st_mtime
                            data = _load(home, name, min(left, LISTED))
                            content = data if isinstance(data, str) else read(data)
                            if not isinstance(content, Withdrawal):
                                place = os.path.join(home.path, name)
                                held.append(Holding.of(content, when, place))
                            left -= len(data)
        return held

    @contextmanager
    def _opened(self, create: bool = False) -> Iterator[OpenFolder]:
        """Open the folder; a FileNotFoundError if it has never been there."""
        if create and not self._was_there:
            self.folder.mkdir(exist_ok=True)
        try:
            root = OpenFolder(self.folder)
        except FileNotFoundError:
            if self._was_there or not self.folder.parent.is_dir():
                raise ExchangeError(
                    f"the folder {self.address} does not exist; check the address, and whether "
                    "its drive is mounted"
                ) from None
            raise
        self._was_there = True
        with root:
            yield root

    def _hearing(self, federation: Federation) -> Hearing:
        """Hear what is in the folder now, if it may have changed."""
        own, now = str(federation.fingerprint), time.monotonic()
        with self._lock, failing(f"the folder {self.address} cannot be read"):
            new = _Heard(Hearing(federation, self.keyring, self.address))
            heard = self._heard.setdefault(own, new)
            is_trusted = heard.hearing.is_settled(federation)
            with ExitStack() as stack:
                stack.enter_context(suppress(FileNotFoundError))
                root = stack.enter_context(self._opened())
                stamp: Stamp = root.stamp()
                home: OpenFolder | None = None
                with suppress(FileNotFoundError):
                    below = stack.enter_context(root.subfolder(own))
                    stamp, home = stamp + below.stamp(), below
                if is_trusted and stamp == heard.stamp and now < heard.looked + _LOOK:
                    return heard.hearing
                heard.stamp, heard.looked = stamp, now
                if time.time() - max(stamp[::3]) / 1e9 < _TICK:
                    heard.stamp = ()  # what changes now could have the same time
                others = [name for name in _federations(root) if name != own]
                faults = [foreign(self.address, federation, _parsed(name)) for name in others]
                if home is not None:
                    faults += heard.look(home, federation)
                labels = ((str(self.folder / own / shortened(n, _LONGEST)), d) for n, d in heard)
                heard.hearing.hear(labels, faults)
        return heard.hearing


def file_name(sender: str, key: bytes, *, is_release: bool = False) -> str:
    """Make a file name that all file systems accept, even if two senders differ only in case.

    Args:
        sender: The name of the agent, or of the party that makes releases.
        key: Its public key.
        is_release: Whether it is the name for a release.

    >>> file_name("Köln.1", bytes(32)), file_name("hub", bytes(32), is_release=True)
    ('K%C3%B6ln%2E1-....fedbo', 'hub-...-release.fedbo')
    """
    escaped = quote(sender, safe="").replace(".", "%2E").replace("~", "%7E")
    digest = hashlib.sha256(sender.encode() + b"\0" + key).hexdigest()[:8]
    return f"{escaped}-{digest}{_RELEASE * is_release}{SUFFIX}"


def name_of(content: Content) -> str:
    """Make the name of the file for a message, a withdrawal or a release."""
    return file_name(content.sender, content.key, is_release=isinstance(content, Release))


def seal(content: Content) -> bytes:
    """Return what a file holds."""
    return files.seal(_TITLE, content.encode())


def stamp_of(status: os.stat_result) -> Stamp:
    """Return which version of a file or folder this is; its time comes first."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load(home: OpenFolder, name: str, most: int) -> bytes | str:
    """Return what is in a file of limited size, or why it counts nowhere.

    A FileNotFoundError says that there is none.
    """
    try:
        data = files.unseal(_TITLE, home.read(name, most), "it")
        content = read(data)
    except FileNotFoundError:
        raise
    except OSError as error:
        link = error.errno == errno.ELOOP
        return _LINK if link else f"it cannot be read: {error.strerror or error}"
    except (FileRefused, MessageRefused) as error:
        return str(error)
    if name != name_of(content):
        return (
            f"it holds a {content.type} of {content.sender!r}, which counts only in a file called "
            f"{name_of(content)}"
        )
    return data


def _signed(home: OpenFolder, name: str, most: int) -> Content | None:
    """Return what is in a file and has a valid signature; None for anything else."""
    with suppress(FileNotFoundError, MessageRefused):
        if isinstance(data := _load(home, name, most), bytes):
            content = read(data)
            verify(content)
            return content
    return None


def _names(home: OpenFolder, most: int) -> tuple[list[str], bool]:
    """Return the names of a limited number of messages, and whether all entries were read."""
    names: list[str] = []
    for looked, entry in enumerate(home.entries()):
        if looked == MOST_ENTRIES or len(names) == most:
            return names, False
        if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
            names.append(entry.name)
    return names, True


def _federations(root: OpenFolder) -> list[str]:
    """Return the names of the folders of federations."""
    names = (entry.name for entry in islice(root.entries(), MOST_FILES))
    return sorted(name for name in names if _FINGERPRINT.fullmatch(name))


def _parsed(fingerprint: str) -> bytes:
    return bytes.fromhex(fingerprint.replace("-", ""))
