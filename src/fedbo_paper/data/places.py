"""Where data sets lie, and where what was made of them is kept.

A data folder is named by its user (``--data``, ``folder``); else it is ``FEDBO_DATA``, and after
that the user's cache folder. It may be read-only: nothing here insists on writing to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbo import files

VARIABLE = "FEDBO_DATA"

Arrays = dict[str, NDArray[Any]]


class MissingData(FileNotFoundError):
    """A data set that is nowhere; its text says where it was looked for, and what to do."""


def user_folder() -> Path:
    """The folder for what can be had again: ``~/.cache/fedbo``, or what the system has for it."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fedbo"
    variable, usual = (
        ("LOCALAPPDATA", Path("AppData", "Local"))
        if sys.platform == "win32"
        else ("XDG_CACHE_HOME", Path(".cache"))
    )
    named = Path(os.environ.get(variable, ""))
    # A relative XDG_CACHE_HOME is to be ignored, says its specification.
    return (named if named.is_absolute() else Path.home() / usual) / "fedbo"


def folders(folder: Path | None = None) -> tuple[Path, ...]:
    """Where data sets are looked for; the first is the one that `fedbo data fetch` fills.

    >>> [str(place) for place in folders(Path("here"))]
    ['here']
    """
    if folder is not None:
        return (Path(folder),)
    named = os.environ.get(VARIABLE)
    return (Path(named), user_folder()) if named else (user_folder(),)


def look(names: Sequence[str], folder: Path | None = None) -> Path | None:
    """The first of these files or folders that is there, if any is.

    >>> look(["landmine_published.json"], Path("no", "such", "folder")) is None
    True
    """
    for place in folders(folder):
        for name in names:
            if (place / name).exists():
                return place / name
    return None


def find(data_set: str, names: Sequence[str], folder: Path | None = None, advice: str = "") -> Path:
    """The first of these files or folders that is there, or a `MissingData` that helps."""
    found = look(names, folder)
    if found is not None:
        return found
    places = folders(folder)
    where = " and in ".join(
        f"{place.absolute()}{'' if place.is_dir() else ' (no such folder)'}" for place in places
    )
    raise MissingData(
        f"the data set {data_set} is not there: looked for {' or '.join(map(repr, names))} in "
        f"{where}. Get it with `fedbo data fetch {data_set}`, put one of these files there, or set "
        f"{VARIABLE} to the folder that has it{advice}."
    )


def kept(name: str, source: Path, make: Callable[[], Arrays]) -> Arrays:
    """What ``make`` makes of the source, made once.

    It is kept beside the source as ``name``; where that folder is read-only, in the user's cache
    folder under a name that also depends on the source; and where even that cannot be written, not
    at all. A kept file that turns out damaged is made again.
    """
    state = source.stat()
    mark = f"{source.resolve()} {state.st_size} {state.st_mtime_ns}"
    apart = f"{Path(name).stem}-{hashlib.sha256(mark.encode()).hexdigest()[:12]}.npz"
    candidates = (source.parent / name, user_folder() / apart)
    for path in candidates:
        if path.exists():
            with contextlib.suppress(files.FileRefused):
                return read_arrays(path)
    arrays: dict[str, Any] = make()
    file = io.BytesIO()
    np.savez(file, **arrays)
    for path in candidates:
        try:
            if path != candidates[0]:
                path.parent.mkdir(parents=True, exist_ok=True)
            files.write(path, file.getvalue())
            break
        except OSError:
            continue
    return arrays


def read_arrays(path: Path) -> Arrays:
    """All arrays of an ``.npz`` file; a damaged one is refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise files.FileRefused(
            f"{path} is damaged, or no .npz file: {error}; delete it, and fetch the data again"
        ) from None
