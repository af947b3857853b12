"""What a fetch found in a folder, and how much of it stays in memory.

Strangers may put any number of messages into a folder. So only what may be handed out is held: the
latest message of each sender and key, once, and no more bytes than `MOST_HELD`. Of other files only
a note is kept. A file is read again when it changes, and when what made it superfluous is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fedbo.exchange.choice import origin
from fedbo.message import Heard, Withdrawal

#: Bytes of all messages that are held for one federation and epoch.
MOST_HELD = 2**30
_BESIDE = 1024  # bytes that a message takes beside its content


class Note(NamedTuple):
    """What is remembered of a message or withdrawal, whether it is held or not."""

    origin: tuple[object, ...]  # whether it is a message, a withdrawal or a release, and of whom
    sequence: int
    mark: int  # a hash of all of it
    nbytes: int  # of memory


class File(NamedTuple):
    """What is in a file, if it is for the federation and epoch, and what is wrong with it."""

    version: tuple[int, ...]  # times of the content and of the status, size and inode
    seen: int  # when this version was first seen, in ns of a clock that nobody can set
    is_settled: bool
    content: Heard | Withdrawal | None = None  # if it is held
    note: Note | None = None  # of the content
    fault: str | None = None
    foreign: bytes | None = None  # the fingerprint of another federation

    def holding(self, content: Heard | Withdrawal) -> File:
        """Return the file with this content."""
        which = (content.type, *origin(content))
        nbytes = self.version[2] + _BESIDE
        return self._replace(
            content=content, note=Note(which, content.sequence, hash(content), nbytes)
        )


@dataclass
class Found:
    """What a fetch found."""

    files: dict[str, dict[str, File]] = field(default_factory=dict)  # by folder and name
    faults: dict[str, tuple[object, str]] = field(default_factory=dict)  # and versions, by path
    notices: list[str] = field(default_factory=list)
    foreign: set[bytes] = field(default_factory=set)  # other federations that were reported
    members: Mapping[str, bytes] = field(default_factory=dict)  # as the federation listed them
    held: dict[tuple[object, ...], int] = field(default_factory=dict)  # bytes, by origin

    def __iter__(self) -> Iterator[File]:
        for found in self.files.values():
            yield from found.values()

    def with_paths(self) -> Iterator[tuple[str, File]]:
        """Iterate over the paths of all files, and the files."""
        for folder, found in self.files.items():
            for name, file in found.items():
                yield os.path.join(folder, name), file


#: The sequence of the latest messages of one origin, and the files that hold them, by marks. There
#: are several only if a sender has signed different messages with one sequence.
_Latest = tuple[int, dict[int, tuple[dict[str, File], str]]]


class Holder:
    """Decides which contents are held, one file after another.

    Whoever was heard before has room reserved, so that nobody is displaced by others.

    Args:
        before: What the fetch before found.
    """

    def __init__(self, before: Found) -> None:
        self.most = MOST_HELD
        self.held: dict[tuple[object, ...], int] = {}  # bytes, by origin
        self._reserved = dict(before.held)
        self._room = self.most - sum(before.held.values())
        self._latest: dict[tuple[object, ...], _Latest] = {}
        self._noted: list[tuple[str, str, Note]] = []  # by folder and name

    def put(self, there: dict[str, File], folder: str, name: str, file: File) -> None:
        """Put a file among those of its folder, with its content or with a note of it.

        Args:
            there: The files of its folder.
            folder: The path of the folder.
            name: The name of the file.
            file: The file.
        """
        there[name] = file
        if (note := file.note) is None:
            return
        if file.content is not None:
            if self._holds(there, name, note):
                return
            there[name] = file._replace(content=None)
        self._noted.append((folder, name, note))

    def wanted(self) -> list[tuple[str, str]]:
        """Return the files to read again, as there is room for them now, by folder and name."""
        room, names = self._room + sum(self._reserved.values()), []
        for folder, name, note in self._noted:
            if not self._is_superfluous(note):
                room -= note.nbytes
                if room < 0:
                    break
                names.append((folder, name))
        return names

    @property
    def is_full(self) -> bool:
        """Whether something is not held that should be."""
        return not all(self._is_superfluous(note) for _, _, note in self._noted)

    def _holds(self, there: dict[str, File], name: str, note: Note) -> bool:
        which, sequence, mark, nbytes = note
        latest, files = self._latest.get(which, (-1, {}))
        if latest > sequence or mark in files:
            return False
        self._room += self._reserved.pop(which, 0)
        before = self.held.get(which, 0)
        after = nbytes if latest < sequence else before + nbytes
        if after - before > self._room:
            return False
        if latest < sequence:
            for place, other in files.values():
                place[other] = place[other]._replace(content=None)
            files = {}
            self._latest[which] = sequence, files
        files[mark] = there, name
        self._room -= after - before
        self.held[which] = after
        return True

    def _is_superfluous(self, note: Note) -> bool:
        latest, files = self._latest.get(note.origin, (-1, {}))
        return latest > note.sequence or note.mark in files
