"""Real data: where it is stored, how it is read, and where it comes from.

Each data set is a module with ``load(folder=None)``, which returns one `Samples` for each agent.
Files are searched for in the given folder, or else in ``FEDBO_DATA`` and then in the user's cache
folder. Originals are read from their archives and checked. Arrays that take long to read are cached
as ``.npz``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from fedbo_paper.data import gleam, har, landmine
from fedbo_paper.data.places import MissingData, find, folders, look
from fedbo_paper.data.samples import Samples

__all__ = ["DATA_SETS", "DataSet", "MissingData", "Samples", "find", "folders", "look"]


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """How to find, download and load a data set.

    Args:
        agents: What an agent is: "fields" or "people".
        address: The URL in the paper.
        names: The files and folders that may hold it, in the order in which they are tried.
        file: The file that a download becomes.
        by_hand: What to get if the download fails, for people.
        verify: Raises `FileRefused` if a downloaded file is not the data set.
        load: Returns the samples of each agent; takes the data folder.
    """

    agents: str
    address: str
    names: tuple[str, ...]
    file: str
    by_hand: str
    verify: Callable[[Path], None]
    load: Callable[[Path | None], tuple[Samples, ...]]


#: The data sets, by the names that `fedbo data fetch` takes.
DATA_SETS = {
    "landmine": DataSet(
        agents="fields",
        address=landmine.ADDRESS,
        names=landmine.NAMES,
        file=landmine.ARCHIVE,
        by_hand=f"{landmine.ARCHIVE} or {landmine.MATLAB}",
        verify=landmine.verify,
        load=landmine.load,
    ),
    "har": DataSet(
        agents="people",
        address=har.ADDRESS,
        names=har.NAMES,
        file=har.ARCHIVE,
        by_hand=f"{har.ARCHIVE!r} or {har.CACHE}",
        verify=har.verify,
        load=har.load,
    ),
    "gleam": DataSet(
        agents="people",
        address=gleam.ADDRESS,
        names=gleam.NAMES,
        file=gleam.ARCHIVE,
        by_hand=f"{gleam.ARCHIVE} or the folder GLEAM that is in it",
        verify=gleam.verify,
        load=gleam.load,
    ),
}
