"""Scores that take long to compute, kept on disk so that a stopped contest can go on.

The name of a file depends on everything that decides its scores: the request, the data, the source
code that computes them, and the versions of the packages that this code uses. If one of them
changes, the scores are computed again. Old files do no harm and may be deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

import msgspec
from numpy.typing import ArrayLike, NDArray

from fedbo.table import Table
from fedbo_paper.experiments.spec import Job
from fedbo_paper.harness.store import Store

#: The code that decides scores: what a task is, and how Optuna's samplers run on it.
MODULES = (
    "fedbo.space",
    "fedbo_paper.data",
    "fedbo_paper.problems",
    "fedbo_paper.contests.grounds",
    "fedbo_paper.contests.outside",
)
PACKAGES = ("numpy", "scipy", "scikit-learn", "optuna", "torch")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a sequence of scores.

    Args:
        name: What the file name starts with.
        rows: Number of scores.
        data: Digest of the tasks' data.
        details: What was computed on the data, such as a sampler, a target and a seed.
        source: Digest of the code in `MODULES`.
        packages: Versions of `PACKAGES`.
        problem: None. The store need not read a problem's data, because ``data`` stands for it.
    """

    name: str
    rows: int
    data: str
    details: tuple[str | int, ...]
    source: str
    packages: dict[str, str]
    problem: None = None


def kept(
    folder: Path,
    compute: Callable[[], Sequence[float]],
    *,
    name: str,
    rows: int,
    data: str,
    details: tuple[str | int, ...],
) -> list[float]:
    """Return the scores from the folder, or compute them and keep them there."""
    request = Request(
        name=name, rows=rows, data=data, details=details, source=_source(), packages=_packages()
    )
    job = cast(Job, request)  # the store uses its name, its number of rows, and its digest
    store = Store(folder)
    table = store.get(job)
    if table is None:
        table = Table({"score": compute()})
        store.put(job, table)
    scores: list[float] = table["score"].tolist()
    return scores


def array_digest(arrays: Iterable[ArrayLike]) -> str:
    """Compute a digest of the values, types and shapes of arrays.

    >>> array_digest([[1.0, 2.0]]) == array_digest([[1.0], [2.0]])
    False
    """
    import numpy as np

    digest = hashlib.sha256()
    for each in arrays:
        array: NDArray[np.generic] = np.ascontiguousarray(each)
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


@cache
def _source() -> str:
    digest = hashlib.sha256()
    for name in MODULES:
        module = import_module(name)
        folders = getattr(module, "__path__", None)
        files = sorted(Path(folders[0]).glob("*.py")) if folders else [Path(module.__file__ or "")]
        for file in files:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found
