"""Finished jobs on disk: what lets a run that was stopped go on where it was.

Each job has one CSV file, named by what it is and by a digest of all that decides its numbers. A
file is there whole or not at all, so whoever stops at whatever moment loses only jobs that were not
finished. Files of jobs that are no longer wanted do no harm, and may be deleted.
"""

from __future__ import annotations

import os
from pathlib import Path

from fedbo import __version__, files
from fedbo.table import Table
from fedbo_paper.experiments.spec import Job, digest


class Store:
    """A folder of finished jobs."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def get(self, job: Job) -> Table | None:
        """The job's table, or None if it is not finished; a damaged file counts as none."""
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
        self.folder.mkdir(parents=True, exist_ok=True)
        files.write(self._path(job), table.csv().encode())

    def _path(self, job: Job) -> Path:
        return self.folder / f"{job.name}-{digest(job)}-{__version__}.csv"
