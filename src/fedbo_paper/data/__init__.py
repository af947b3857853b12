"""Real data: where it is stored, how it is read, and where it comes from.

Each data set is a module with ``load(folder=None)``, which returns one `Samples` for each agent.
Files are searched for in the given folder, or else in ``FEDBO_DATA`` and then in the user's cache
folder. Originals are read from their archives and checked. Arrays that take long to read are cached
as ``.npz``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fedbo_paper.data import gleam, har, landmine
from fedbo_paper.data.places import MissingData, find, folders, look
from fedbo_paper.data.samples import Samples

__all__ = ["DATA_SETS", "DataSet", "MissingData", "Samples", "find", "folders", "look"]


class DataSet(Protocol):
    """The module of a data set.

    ``AGENTS`` says what an agent is, and ``ADDRESS`` is the URL in the paper. ``NAMES`` are the
    files and folders that may hold the data, in the order in which they are tried; ``ARCHIVE`` is
    the one that a download becomes, and ``BY_HAND`` says what to get if it fails.
    """

    AGENTS: str
    ADDRESS: str
    NAMES: tuple[str, ...]
    ARCHIVE: str
    BY_HAND: str

    def verify(self, path: Path) -> None:
        """Raise `FileRefused` if a downloaded file is not the data set."""

    def load(self, folder: Path | None = None) -> tuple[Samples, ...]:
        """Return the samples of each agent; raise `MissingData` or `FileRefused`."""


#: The data sets, by the names that `fedbo data fetch` takes.
DATA_SETS: dict[str, DataSet] = {"landmine": landmine, "har": har, "gleam": gleam}
