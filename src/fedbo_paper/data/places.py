"""Where data sets are stored, and where arrays read from them are cached.

The data folder is the one that the user gives (``--data``, ``folder``). By default it is the folder
that ``FEDBO_DATA`` names, and then the user's cache folder. It may be read-only.
"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

from fedbo import files
from fedbo.errors import FileRefused

VARIABLE = "FEDBO_DATA"

Arrays = dict[str, NDArray[Any]]


class MissingData(FileNotFoundError):
    """A data set was not found; the text says where it was searched for, and what to do."""


def user_folder() -> Path:
    """Return the user's cache folder: ``~/.cache/fedbo`` on Linux."""
    return user_cache_path("fedbo", appauthor=False, opinion=False)


def folders(folder: Path | None = None) -> tuple[Path, ...]:
    """List where data sets are searched for; `fedbo data fetch` writes to the first.

    >>> [str(place) for place in folders(Path("here"))]
    ['here']
    """
    if folder is not None:
        return (Path(folder),)
    named = os.environ.get(VARIABLE)
    return (Path(named), user_folder()) if named else (user_folder(),)


def look(names: Sequence[str], folder: Path | None = None) -> Path | None:
    """Return the first of these files or folders that exists, or None.

    >>> look(["landmine_published.json"], Path("no", "such", "folder")) is None
    True
    """
    for place in folders(folder):
        for name in names:
            if (place / name).exists():
                return place / name
    return None


def find(data_set: str, names: Sequence[str], folder: Path | None = None, advice: str = "") -> Path:
    """Return the first of these files or folders that exists.

    Args:
        data_set: The name of the data set, for the error.
        names: The names to look for, in this order.
        folder: The data folder; see `folders` for the default.
        advice: More text for the end of the error.

    Raises:
        MissingData: If none exists.
    """
    path = look(names, folder)
    if path is not None:
        return path
    places = folders(folder)
    where = " and in ".join(
        f"{place.absolute()}{'' if place.is_dir() else ' (no such folder)'}" for place in places
    )
    raise MissingData(
        f"the data set {data_set} was not found: looked for {' or '.join(map(repr, names))} in "
        f"{where}. Get it with `fedbo data fetch {data_set}`, put one of these files there, or set "
        f"{VARIABLE} to the folder that has it{advice}."
    )


def kept(name: str, source: Path, make: Callable[[], Arrays]) -> Arrays:
    """Return what ``make`` makes of the source, and cache it.

    The cache is the file ``name`` beside the source; nothing is cached in a read-only folder.
    """
    arrays: dict[str, Any] = make()
    file = io.BytesIO()
    np.savez(file, **arrays)
    with contextlib.suppress(OSError):
        files.write(source.parent / name, file.getvalue())
    return arrays


def read_arrays(path: Path) -> Arrays:
    """Read all arrays of an ``.npz`` file; raise `FileRefused` if it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FileRefused(
            f"{path} is damaged, or not an .npz file: {error}; delete it, and fetch the data again"
        ) from None
