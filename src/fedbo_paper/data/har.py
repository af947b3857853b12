"""UCI HAR (Anguita et al. 2013): 30 people, 6 activities, 561 features from phone sensors.

UCI offers a zip inside a zip. The inner one, or the folder that is in it, can be read as well::

    UCI HAR Dataset/{train,test}/X_{train,test}.txt         561 numbers a line
    UCI HAR Dataset/{train,test}/y_{train,test}.txt         activity, 1 to 6
    UCI HAR Dataset/{train,test}/subject_{train,test}.txt   person, 1 to 30

Reading them takes some seconds, so the arrays are cached as ``har.npz``: ``X`` (10299, 561) in
float32, ``y`` and ``subject``, with the training rows first. If ``har.npz`` exists, nothing else is
read.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbo.errors import FileRefused
from fedbo_paper.data.places import Arrays, find, kept, read_arrays
from fedbo_paper.data.samples import Samples, by_owner

ADDRESS = (
    "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip"
)
CACHE = "har.npz"
ARCHIVE = "UCI HAR Dataset.zip"
NAMES: tuple[str, ...] = (CACHE, ARCHIVE, ADDRESS.rpartition("/")[2], "UCI HAR Dataset")
BY_HAND = f"{ARCHIVE!r} or {CACHE}"
AGENTS = "people"

PEOPLE, FEATURES, ACTIVITIES, ROWS = 30, 561, 6, 10299
SIZES = 281, 409  # the fewest and the most rows of a person

_PARTS = ("train", "test")
_TABLES = ("X", "y", "subject")

Members = dict[str, Path | zipfile.Path]


def load(folder: Path | None = None) -> tuple[Samples, ...]:
    """Return the samples of each person; raise `MissingData` or `FileRefused`.

    Labels are 1 walking, 2 upstairs, 3 downstairs, 4 sitting, 5 standing, 6 lying.
    """
    path = find("har", NAMES, folder)
    if path.name == CACHE:
        arrays = _checked(read_arrays(path), path)
    else:
        arrays = kept(CACHE, path, lambda: _checked(_read(path), path))
    return by_owner(arrays["X"], arrays["y"], arrays["subject"])


def verify(path: Path) -> None:
    """Raise `FileRefused` if the download is not the whole data set. UCI gives no checksum."""
    _checked(_read(path), path)


def _read(path: Path) -> Arrays:
    """Read all rows, the training rows first."""
    with _members(path) as members:
        tables = {
            name: np.concatenate([_table(members, part, name, path) for part in _PARTS])
            for name in _TABLES
        }
    if len({len(table) for table in tables.values()}) != 1:
        lengths = {name: len(table) for name, table in tables.items()}
        raise FileRefused(f"{path}: the tables' lengths differ: {lengths}; get it again")
    return tables


def _table(members: Members, part: str, name: str, path: Path) -> NDArray[Any]:
    wanted = f"{part}/{name}_{part}.txt"
    matching = [member for member in members if f"/{member}".endswith(f"/{wanted}")]
    if not matching:
        raise FileRefused(f"{path} holds no {wanted}, expected the layout of {ADDRESS}")
    dtype = np.float32 if name == "X" else np.uint8
    try:
        with members[min(matching, key=len)].open("rb") as file:
            return np.loadtxt(file, dtype=dtype, ndmin=2 if name == "X" else 1)
    except (ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise FileRefused(f"{path}: {wanted} is damaged: {error}; get it again") from None


@contextmanager
def _members(path: Path) -> Iterator[Members]:
    """List the files in a folder, a zip, or a zip inside a zip, by name."""
    if path.is_dir():
        yield {file.relative_to(path).as_posix(): file for file in path.rglob("*.txt")}
        return
    with ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
            inner = [name for name in archive.namelist() if name.endswith(".zip")]
            if inner:
                data = io.BytesIO(archive.read(inner[0]))
                archive = stack.enter_context(zipfile.ZipFile(data))
        except (zipfile.BadZipFile, zlib.error) as error:
            raise FileRefused(f"{path} is damaged, or not a zip file: {error}") from None
        yield {
            name: zipfile.Path(archive, name)
            for name in archive.namelist()
            if not name.startswith("__MACOSX")
        }


def _checked(arrays: Arrays, path: Path) -> Arrays:
    missing = [name for name in _TABLES if name not in arrays]
    if missing:
        raise FileRefused(f"{path} has no {' and no '.join(missing)}: delete it, and fetch again")
    X, y, subject = (arrays[name] for name in _TABLES)
    if X.shape != (ROWS, FEATURES) or y.shape != (ROWS,) or subject.shape != (ROWS,):
        raise FileRefused(
            f"{path}: X, y and subject have shapes {X.shape}, {y.shape} and {subject.shape}, "
            f"expected {(ROWS, FEATURES)}, {(ROWS,)} and {(ROWS,)}"
        )
    for what, values, most in (("activities", y, ACTIVITIES), ("people", subject, PEOPLE)):
        if not np.array_equal(np.unique(values), np.arange(1, most + 1)):
            raise FileRefused(
                f"{path} has the {what} {np.unique(values).tolist()}, expected 1 to {most}"
            )
    sizes = np.bincount(subject)[1:]
    if (sizes.min(), sizes.max()) != SIZES:
        raise FileRefused(
            f"{path} has from {sizes.min()} to {sizes.max()} rows a person, "
            f"expected from {SIZES[0]} to {SIZES[1]}"
        )
    if not np.isfinite(X).all():
        raise FileRefused(f"{path}: X holds NaN or infinity, expected finite numbers only")
    return arrays
