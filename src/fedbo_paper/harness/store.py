"""Finished jobs on disk, so that an interrupted command resumes where it stopped.

Each job has one CSV file. Its name ends with a *key*, a digest of everything that decides the job's
numbers. If any of it changes, the key changes too, and the job runs again:

=========  =======================================================================================
job        all fields of the job
data       the samples that its problem reads, whichever file they come from
source     the ``.py`` files of `fedbo`, `fedbo_paper.experiments` and `fedbo_paper.problems`
libraries  the versions of numpy, scipy and scikit-learn
=========  =======================================================================================

The processor is not part of the key, although its rounding may change the last digits of a score.
Data and source are read once in each process. A file is written completely or not at all, so an
interruption loses only unfinished jobs. Files with an old key do no harm and may be deleted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import msgspec

import fedbo
from fedbo import files
from fedbo.table import Table
from fedbo_paper import experiments, problems
from fedbo_paper.data import Samples, gleam, har, landmine
from fedbo_paper.experiments.spec import Job
from fedbo_paper.problems.problems import Glass, Har, Landmine, Problem

_LIBRARIES = ("numpy", "scipy", "scikit-learn")


class Store:
    """A folder of finished jobs.

    Args:
        folder: Where the jobs are stored. It is created when the first job is.
        data: The data folder that the jobs read, or None for the usual places.
    """

    def __init__(
        self, folder: str | os.PathLike[str], data: str | os.PathLike[str] | None = None
    ) -> None:
        self.folder = Path(folder)
        self.data = None if data is None else Path(data)

    def get(self, job: Job) -> Table | None:
        """Return the job's table, or None if the job is not finished or its file is damaged."""
        try:
            table = Table.from_csv(self._path(job))
        except (FileNotFoundError, ValueError):
            return None
        return table if table.height == job.rows else None

    def __contains__(self, job: Job) -> bool:
        try:
            return self._path(job).read_bytes().count(b"\n") == 1 + job.rows
        except FileNotFoundError:
            return False

    def put(self, job: Job, table: Table) -> None:
        """Store the table of a finished job."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files.write(self._path(job), table.csv().encode())

    def _path(self, job: Job) -> Path:
        return self.folder / f"{job.name}-{key(job, self.data)}.csv"


def key(job: Job, data: Path | None = None) -> str:
    """Return the digest of everything that decides the numbers of a job."""
    parts = (job, data_digest(job.problem, data), source_digest(), library_versions())
    return _digest([msgspec.json.encode(parts, order="deterministic")])[:16]


@cache
def data_digest(problem: Problem, folder: Path | None = None) -> str:
    """Return the digest of the samples that a problem reads; that of nothing for synthetic ones."""
    samples = _samples(problem, folder)
    return _digest(part for one in samples for part in (one.X.tobytes(), one.y.tobytes()))


def _samples(problem: Problem, folder: Path | None) -> Sequence[Samples]:
    match problem:
        case Landmine():
            return landmine.load(folder)
        case Har():
            return har.load(folder)
        case Glass(stand_in=True):
            return gleam.stand_in()
        case Glass():
            return gleam.load(folder, window=problem.window)
        case _:
            return ()


@cache
def source_digest(*folders: str) -> str:
    """Return the digest of all ``.py`` files below the folders, names included.

    Without folders, it is the digest of the packages that compute the results.
    """
    chosen = folders or [path for room in (fedbo, experiments, problems) for path in room.__path__]
    sources = [(Path(one), path) for one in chosen for path in sorted(Path(one).rglob("*.py"))]
    return _digest(
        part
        for folder, path in sources
        for part in (path.relative_to(folder).as_posix().encode(), path.read_bytes())
    )


@cache
def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that results depend on."""
    return {name: version(name) for name in _LIBRARIES}


def _digest(parts: Iterable[bytes]) -> str:
    """The SHA-256 of byte strings, which also depends on where one ends and the next starts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()
