"""Real data: where it lies, how it is read, where it comes from.

Each data set is a module with ``load(folder=None)``, which gives one `Samples` an agent. Files are
looked for in the folder given, else in ``FEDBO_DATA``, then in the user's cache folder; originals
are read straight from their archives and checked, and what takes long to read is kept as ``.npz``.
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
    """What is to know of a data set from outside.

    ``names`` are the files and folders it may lie in, in the order in which they are looked for;
    ``file`` is the one that a download becomes, and ``verify`` refuses what is not it.
    """

    agents: str
    address: str
    names: tuple[str, ...]
    file: str
    by_hand: str
    verify: Callable[[Path], None]
    load: Callable[[Path | None], tuple[Samples, ...]]


#: By the names that `fedbo data fetch` takes.
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
