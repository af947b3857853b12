"""29 landmine fields (Xue et al. 2007): is there a landmine, from 9 features of a radar image.

The file holds two MATLAB cell arrays of 29: ``feature`` (n, 9) and ``label`` (n, 1), 0 or 1.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbo.errors import FileRefused
from fedbo_paper.data.places import find
from fedbo_paper.data.samples import Samples

ADDRESS = "http://www.ee.duke.edu/~lcarin/LandmineData.zip"
ARCHIVE = "LandmineData.zip"
MATLAB = "LandmineData.mat"
NAMES: tuple[str, ...] = (MATLAB, ARCHIVE)
BY_HAND = f"{ARCHIVE} or {MATLAB}"
AGENTS = "fields"
SHA256 = "2163ab20a80e33a8b65593c48cf283c540599dcb291105e63fa4af2ce24c2bea"  # of the .mat

FIELDS, FEATURES = 29, 9
SIZES = 445, 690  # samples of the smallest and the largest field


def load(folder: Path | None = None) -> tuple[Samples, ...]:
    """Return the samples of each field; raise `MissingData` or `FileRefused`."""
    path = find("landmine", NAMES, folder)
    return _fields(_matlab(path), path)


def verify(path: Path) -> None:
    """Raise `FileRefused` if the download is not the known file."""
    sha256 = hashlib.sha256(_matlab(path)).hexdigest()
    if sha256 != SHA256:
        raise FileRefused(f"its {MATLAB} has the SHA-256 {sha256}, expected {SHA256}")


def _matlab(path: Path) -> bytes:
    """Read the ``.mat`` file, from its archive if it is in one."""
    if path.suffix != ".zip":
        return path.read_bytes()
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if PurePosixPath(name).name == MATLAB:
                    return archive.read(name)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise FileRefused(f"{path.name} is damaged, or not a zip file: {error}") from None
    raise FileRefused(f"{path.name} has no {MATLAB}, expected the archive from {ADDRESS}")


def _fields(data: bytes, path: Path) -> tuple[Samples, ...]:
    from scipy.io import loadmat

    file: Any = io.BytesIO(data)  # loadmat accepts it, although its stubs do not say so
    try:
        content = loadmat(file)
        features, labels = content["feature"].ravel(), content["label"].ravel()
    except Exception as error:  # scipy raises all kinds of errors for other files
        raise FileRefused(
            f"{path} is not a MATLAB file with 'feature' and 'label': {error}; get it again"
        ) from None
    if not len(features) == len(labels) == FIELDS:
        raise FileRefused(
            f"{path} has {len(features)} fields and labels of {len(labels)}, expected {FIELDS}"
        )
    return tuple(
        _field(X, y, f"field {n} of {path}")
        for n, (X, y) in enumerate(zip(features, labels, strict=True))
    )


def _field(X: NDArray[Any], y: NDArray[Any], what: str) -> Samples:
    smallest, largest = SIZES
    if X.shape[1:] != (FEATURES,) or not smallest <= len(X) <= largest or y.size != len(X):
        raise FileRefused(
            f"{what} has features {X.shape} and labels {y.shape}, expected (n, {FEATURES}) and "
            f"(n, 1) with n from {smallest} to {largest}"
        )
    if not np.isin(y, (0, 1)).all():
        raise FileRefused(f"{what} has the labels {np.unique(y).tolist()}, expected 0 and 1")
    return Samples(X=X.astype(np.float64), y=y.ravel().astype(np.int64))
