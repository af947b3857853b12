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
import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from fedbo import files
from fedbo.exchange.base import Holding
from fedbo.exchange.choice import (
    LISTED,
    Content,
    OpenExchange,
    choose,
    foreign,
    is_withdrawable,
    replaces,
    standing,
    tell,
    withdrawal_of,
)
from fedbo.exchange.errors import ExchangeError, failing
from fedbo.exchange.tree import OpenFolder
from fedbo.federation.federation import Federation
from fedbo.files import FileRefused, Lock
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair
from fedbo.message import Fingerprint, Heard, Message, MessageRefused, Withdrawal, read
from fedbo.message.release import RELEASE_BYTES
from fedbo.outside import shortened

SUFFIX = ".fedbo"
MOST_FILES = 20_000  # that are looked at in a folder: a second, and 32 MB of what is wrong
MOST_HELD = 2**30  # bytes that the largest messages of a federation may take in memory
MOST_LISTED = 2**26  # bytes of messages that one call of `holdings` returns
_TITLE = "fedbo message 1"
_ENDINGS = {"message": "", "withdrawal": "-withdrawn", "release": "-release"}
_LONGEST = 200  # characters of a name that others chose, in a warning
_LINK = "it is a link, and links are not followed"
_FINGERPRINT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{8}){3}")


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
        keyring: Which keys belong to whom; by default the user's keyring.

    Raises:
        ExchangeError: If the folder cannot be reached.
    """

    def __init__(self, folder: str | os.PathLike[str], keyring: Keyring | None = None) -> None:
        if not os.fspath(folder):
            raise ExchangeError("the address is '', expected a folder or the address of a hub")
        self.folder = Path(os.path.abspath(os.path.expanduser(folder)))
        self.address = str(self.folder)
        self.keyring: Keyring = Keyring.user() if keyring is None else keyring
        self._was_there = False
        self._lock = Lock()
        self._heard: dict[bytes, list[str]] = {}  # names of files with contents, by federation
        self._told: defaultdict[bytes, set[str]] = defaultdict(set)  # warnings, by federation
        with (
            failing(f"the folder {self.address} cannot be used"),
            suppress(FileNotFoundError),
            self._opened(),
        ):
            pass

    def publish(self, message: Heard) -> bool:
        data, name = seal(message), name_of(message)
        what = f"{message.type} {message.sequence} of {message.sender!r}"
        with (
            self._lock,
            failing(f"{what} was not put into {self.address}"),
            self._opened(create=True) as root,
            root.subfolder(str(Fingerprint(message.fingerprint)), create=True) as home,
            home.alone(),
        ):
            if not standing([message], _withdrawals(home, message)):
                return False
            before = _load(home, name, len(data) + RELEASE_BYTES)
            if is_new := replaces(message, before):
                home.write(name, data)
        return is_new or (isinstance(before, Heard) and before.encode() == message.encode())

    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        name = file_name(sender, b"" if keys is None else keys.public)
        with (
            self._lock,
            failing(f"the message of {sender!r} in {self.address} is still handed out"),
            suppress(FileNotFoundError),
            self._opened() as root,
            root.subfolder(str(federation.fingerprint)) as home,
            home.alone(),
        ):
            message = _load(home, name, federation.most_bytes)
            if is_withdrawable(message, federation, sender, keys, mine):
                try:
                    if keys is not None and standing([message], _withdrawals(home, message)):
                        withdrawal = withdrawal_of(message, keys)
                        home.write(name_of(withdrawal), seal(withdrawal))
                finally:
                    home.unlink(name)
                return True
        return False

    def holdings(self) -> list[Holding]:
        """Return everything in the folder, of any federation, sorted by place.

        Nothing is checked. What is too large is not read, nor are more than 20,000 files.
        """
        held: list[Holding] = []
        left, looks = MOST_LISTED, iter(range(2 * MOST_FILES))
        with (
            self._lock,
            failing(f"the folder {self.address} cannot be read"),
            suppress(FileNotFoundError),
            self._opened() as root,
        ):
            for fingerprint in _federations(root):
                with root.subfolder(fingerprint) as home:
                    for name in sorted(_names(home, MOST_FILES - len(held), looks)):
                        content = _load(home, name, min(left, LISTED))
                        if content is not None and not isinstance(content, Withdrawal):
                            when = home.status(name).st_mtime
                            held.append(Holding.of(content, when, os.path.join(home.path, name)))
                            left -= 0 if isinstance(content, str) else content.nbytes
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

    def _chosen(self, federation: Federation) -> list[Heard]:
        own, most = federation.fingerprint, federation.most_bytes
        limit = min(MOST_FILES, MOST_HELD // most)
        contents: dict[str, Content] = {}
        notices: list[str] = []
        others: list[str] = []
        with self._lock, failing(f"the folder {self.address} cannot be read"):
            with suppress(FileNotFoundError), self._opened() as root:
                others = [name for name in _federations(root) if name != str(own)]
                with root.subfolder(str(own)) as home:
                    # Who was heard before comes first, so that nobody is displaced by others. Some
                    # file systems do not list a file that is being replaced at this moment.
                    seen = _names(home, limit + 1, range(2 * limit + 2))
                    names = dict.fromkeys([*self._heard.get(own, ()), *seen])
                    for name in islice(names, limit):
                        if (content := _load(home, name, most)) is not None:
                            contents[name] = content
                    if len(names) > limit:
                        notices.append(
                            f"{home.path} has more than {limit:,} files, and the rest was ignored: "
                            "use the folder for nothing else"
                        )
            self._heard[own] = [n for n, each in contents.items() if not isinstance(each, str)]
            path = self.folder / str(own)
            named = [(f"{path / shortened(n, _LONGEST)}", each) for n, each in contents.items()]
            messages, faults = choose(federation, self.keyring, named)
            for name in others:
                other = bytes.fromhex(name.replace("-", ""))
                faults.append(foreign(self.address, federation, other))
            tell([*notices, *faults], self._told[own], self.address)
        return messages


def file_name(
    sender: str, key: bytes, what: Literal["message", "withdrawal", "release"] = "message"
) -> str:
    """Make a file name that all file systems accept, even if two senders differ only in case.

    Args:
        sender: The name of the agent, or of the party that makes releases.
        key: Its public key; empty if there is no signature.
        what: What is in the file.

    >>> file_name("Köln.1", b""), file_name("hub", b"", "release")
    ('K%C3%B6ln%2E1-8db13081.fedbo', 'hub-08d33503-release.fedbo')
    """
    escaped = quote(sender, safe="").replace(".", "%2E").replace("~", "%7E")
    whole = sender.encode() + (b"\0" + key if key else b"")
    return f"{escaped}-{hashlib.sha256(whole).hexdigest()[:8]}{_ENDINGS[what]}{SUFFIX}"


def name_of(content: Heard | Withdrawal) -> str:
    """Make the name of the file for a message, a withdrawal or a release."""
    return file_name(content.sender, content.key, content.type)


def seal(content: Heard | Withdrawal) -> bytes:
    """Return what a file holds."""
    return files.seal(_TITLE, content.encode())


def _load(home: OpenFolder, name: str, most: int) -> Content | None:
    """Read a file of at most so many bytes; None if there is none."""
    try:
        content = read(files.unseal(_TITLE, home.read(name, most), "it"))
    except FileNotFoundError:
        return None
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
    return content


def _withdrawals(home: OpenFolder, message: Heard) -> list[Content | None]:
    """Return what is where the withdrawal of a message would be."""
    return [_load(home, file_name(message.sender, message.key, "withdrawal"), RELEASE_BYTES)]


def _names(home: OpenFolder, most: int, looks: Iterable[int]) -> list[str]:
    """Return the names of at most so many files of messages; ``looks`` has one for each entry."""
    names = (entry.name for _, entry in zip(looks, home.entries(), strict=False))
    right = (name for name in names if name.endswith(SUFFIX) and not name.startswith("."))
    return [*islice(right, most)]


def _federations(root: OpenFolder) -> list[str]:
    """Return the names of the folders of federations."""
    names = (entry.name for entry in islice(root.entries(), MOST_FILES))
    return sorted(name for name in names if _FINGERPRINT.fullmatch(name))
