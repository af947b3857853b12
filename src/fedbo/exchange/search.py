"""Find the files of messages in a folder that strangers may fill with anything.

The folder of the federation and epoch itself is listed first. What is elsewhere was put there by
hand, or belongs to other federations, and gets a smaller budget.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import ExitStack

from fedbo.exchange.base import failed
from fedbo.exchange.file import SUFFIX, is_message_name
from fedbo.exchange.tree import OpenFolder
from fedbo.federation import Federation
from fedbo.message import Fingerprint
from fedbo.outside import printable, shortened

DEPTH = 3  # levels of folders below that are searched
MOST_FILES = 200_000  # entries that are looked at in the federation's own folder
MOST_ELSEWHERE = 50_000  # entries that are looked at in all other folders
MOST_FOLDERS = 1_000  # other folders that are opened
LINK = "it is a link, and links are not followed"
_FINGERPRINT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{8}){3}")


def home_of(fingerprint: Fingerprint, epoch: int) -> tuple[str, str]:
    """Return the names of the folders, one in the other, in which messages are put."""
    return str(fingerprint), f"epoch-{epoch}"


class Search:
    """One search through the folder of an exchange. Iterate over it, then read what it noticed.

    Args:
        root: The folder of the exchange.
        federation: Whose messages to look for; None: those of all.
        epochs: Whether to look into the folders of other epochs too, whatever their scalars are.
        known: Other federations whose messages need not be counted again.

    Attributes:
        home: The path of the federation's own folder in this epoch; that of the root if None.
        faults: Why links and unreadable folders were skipped, by path.
        foreign: How many messages there seem to be of each other federation that is not known.
        bounds: Sentences about what was not searched because there is too much; a set in order.
    """

    def __init__(
        self,
        root: OpenFolder,
        federation: Federation | None = None,
        *,
        epochs: bool = False,
        known: Container[bytes] = (),
    ) -> None:
        self.faults: dict[str, str] = {}
        self.foreign: Counter[bytes] = Counter()
        self.bounds: dict[str, None] = {}
        self._root, self._federation, self._epochs, self._known = root, federation, epochs, known
        self._own = [root.path]  # the folders on the way to the federation's own
        if federation is not None:
            for name in home_of(federation.fingerprint, federation.epoch):
                self._own.append(os.path.join(self._own[-1], name))
        self.home = self._own[-1]
        self._entries_left = MOST_FILES if federation is None else MOST_ELSEWHERE
        self._folders_left = MOST_FOLDERS

    def __iter__(self) -> Iterator[tuple[OpenFolder, list[str]]]:
        """Yield each folder, and the names of files in it that may hold messages."""
        with ExitStack() as opened:
            home: OpenFolder | None = self._root
            for path in self._own[1:]:
                home = home and self._open(home, os.path.basename(path), self.faults)
                if home is not None:
                    opened.enter_context(home)
            if home is not None and home is not self._root:
                yield from self._contents(home, len(self._own) - 1)
        yield from self._contents(self._root, 0)

    def _contents(self, folder: OpenFolder, depth: int) -> Iterator[tuple[OpenFolder, list[str]]]:
        files, below = self._list(folder, self.faults)
        yield folder, files
        below.sort(key=self._is_elsewhere)  # so that nobody can use up the budget for our epochs
        for name in below if depth < DEPTH else ():
            if os.path.join(folder.path, name) == self.home:
                continue  # it came first
            if (part := self._foreign_part(name)) is not None:
                self._count(folder, name, part)
            elif (opened := self._open(folder, name, self.faults)) is not None:
                with opened:
                    yield from self._contents(opened, depth + 1)

    def _list(self, folder: OpenFolder, faults: dict[str, str]) -> tuple[list[str], list[str]]:
        """Return the names of the files that may hold messages, and of the folders in a folder."""
        is_home = len(self._own) > 1 and folder.path == self.home
        most = MOST_FILES if is_home else self._entries_left
        files, below, n = [], [], 0
        try:
            for n, entry in enumerate(folder.entries(), 1):
                if n > most:
                    self._stop(f"{MOST_FILES if is_home else MOST_ELSEWHERE:,} files", folder)
                    break
                if entry.name.startswith("."):
                    continue
                if entry.is_symlink():
                    faults[os.path.join(folder.path, entry.name)] = LINK
                elif entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                elif entry.name.lower().endswith(SUFFIX):
                    files.append(entry.name)
        except OSError as error:
            self._complain(error, folder.path, faults)
        if not is_home:
            self._entries_left = max(0, most - n)
        return files, below

    def _open(self, folder: OpenFolder, name: str, faults: dict[str, str]) -> OpenFolder | None:
        path = os.path.join(folder.path, name)
        if path not in self._own:
            if not self._folders_left:
                self._stop(f"{MOST_FOLDERS:,} folders", self._root)
                return None
            self._folders_left -= 1
        try:
            return folder.subfolder(name)
        except OSError as error:
            self._complain(error, path, faults)
            return None

    def _complain(self, error: OSError, path: str, faults: dict[str, str]) -> None:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return  # it was removed or replaced just now, or it never was a folder
        if error.errno == errno.ELOOP:
            faults[path] = LINK
        elif path in self._own:
            raise failed(f"the folder {path} cannot be read", error) from error
        else:
            faults[path] = unreadable(error)

    def _stop(self, what: str, folder: OpenFolder) -> None:
        below = printable(shortened(folder.path.removeprefix(self._root.path)))
        where = self._root.path + below
        self.bounds[f"{where} has more than {what}, and the rest was not searched"] = None

    def _is_elsewhere(self, name: str) -> bool:
        """Return whether a folder is not named after this federation in any of its epochs."""
        own = "" if self._federation is None else str(self._federation.fingerprint)
        return not name.startswith(own.rpartition("-")[0])

    def _foreign_part(self, name: str) -> str | None:
        """Return in which part another federation differs whose folder has this name."""
        if self._federation is None or not _FINGERPRINT.fullmatch(name):
            return None
        part = self._federation.fingerprint.difference(_fingerprint(name))
        return None if self._epochs and part == "scalars" else part

    def _count(self, folder: OpenFolder, name: str, part: str) -> None:
        """Count the messages of another federation; one that is in another epoch is none."""
        unsaid: dict[str, str] = {}
        if (fingerprint := _fingerprint(name)) in self._known or self._federation is None:
            return
        if (opened := self._open(folder, name, unsaid)) is None:
            return
        with opened:
            for epoch in self._list(opened, unsaid)[1]:
                if part == "scalars" and epoch != f"epoch-{self._federation.epoch}":
                    continue
                if (there := self._open(opened, epoch, unsaid)) is not None:
                    with there:
                        files, _ = self._list(there, unsaid)
                        self.foreign[fingerprint] += sum(map(is_message_name, files))


def unreadable(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or error}"


def _fingerprint(name: str) -> bytes:
    return bytes.fromhex(name.replace("-", ""))
