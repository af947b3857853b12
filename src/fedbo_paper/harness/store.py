"""Finished jobs on disk, so that an interrupted command resumes where it stopped.

Each job has one CSV file. Its name ends with a `key`: if the job, the source code that computes it
or the version of a library changes, so does the key, and the job runs again. A file is written
completely or not at all, so an interruption loses only unfinished jobs. Files with an old key do no
harm and may be deleted.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from fedbo import files
from fedbo.table import Table
from fedbo_paper.harness.workers import WorkersFailed

LIBRARIES = ("numpy", "scipy", "scikit-learn")


class Job(Protocol):
    """What a store needs to know of a job."""

    @property
    def name(self) -> str:
        """The beginning of the file's name."""

    @property
    def rows(self) -> int:
        """How many rows the finished job has."""


J = TypeVar("J", bound=Job)


class Store(Generic[J]):
    """A folder of finished jobs.

    Args:
        folder: Where the jobs are stored. It is created when the first job is.
        key: Computes the key of a job.
    """

    def __init__(self, folder: str | os.PathLike[str], key: Callable[[J], str]) -> None:
        self.folder = Path(folder)
        self._key = key

    def get(self, job: J) -> Table | None:
        """Return the job's table, or None if the job is not finished or its file is damaged."""
        try:
            table = Table.from_csv(self._path(job))
        except (FileNotFoundError, ValueError):
            return None
        return table if table.height == job.rows else None

    def __contains__(self, job: J) -> bool:
        return self.get(job) is not None

    def put(self, job: J, table: Table) -> None:
        """Store the table of a finished job."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files.write(self._path(job), table.csv().encode())

    def guarded(self, job: J, call: Callable[[], Table]) -> Callable[[], Table]:
        """Return a call that refuses to run on a worker with other code or libraries than here."""
        return partial(_guarded, self._key, job, self._key(job), call)

    def _path(self, job: J) -> Path:
        return self.folder / f"{job.name}-{self._key(job)}.csv"


def _guarded(key: Callable[[J], str], job: J, expected: str, call: Callable[[], Table]) -> Table:
    if key(job) != expected:
        raise WorkersFailed(
            f"A worker on {platform.node()} has other code or libraries than the command, and "
            "would compute other results. Install the same versions there, and start the worker "
            "again. Finished work is kept: run the same command to resume."
        )
    return call()


def key(job: object, source: Sequence[str], libraries: Sequence[str] = LIBRARIES) -> str:
    """Return the digest of what decides a job's numbers, but for its data and the processor.

    Args:
        job: The job, which can be encoded as JSON.
        source: The modules that compute it.
        libraries: The packages whose versions count.
    """
    parts = (job, source_digest(*source), library_versions(*libraries))
    return digest([msgspec.json.encode(parts, order="deterministic")])[:16]


def digest(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of byte strings; it also depends on where one ends and the next starts.

    >>> digest([b"ab", b"c"]) == digest([b"a", b"bc"])
    False
    """
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()


@cache
def source_digest(*modules: str) -> str:
    """Return the digest of the ``.py`` files of some modules; of a package, of all below it."""
    return digest(
        part
        for name in modules
        for file in _sources(name)
        for part in (file.name.encode(), file.read_bytes())
    )


def _sources(module: str) -> list[Path]:
    loaded = import_module(module)
    folders = getattr(loaded, "__path__", ())
    if not folders:
        return [Path(loaded.__file__ or "")]
    return [file for folder in folders for file in sorted(Path(folder).rglob("*.py"))]


@cache
def library_versions(*libraries: str) -> dict[str, str]:
    """Return the versions of some libraries, "none" for one that is not installed."""
    return {name: _version(name) for name in libraries}


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
