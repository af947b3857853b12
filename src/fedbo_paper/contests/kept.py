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
from importlib.metadata import distributions
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike

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
    """Everything that decides a sequence of scores; the name and ``rows`` are for the store."""

    name: str
    rows: int
    details: tuple[str | int, ...]
    source: str
    packages: dict[str, str]
    problem: None = None  # the store need not read a problem's data: see ``details``


def kept(
    folder: Path, name: str, rows: int, compute: Callable[[], Sequence[float]], *details: str | int
) -> list[float]:
    """Return scores from the folder, or compute them and keep them there.

    Args:
        folder: Where scores are kept.
        name: The beginning of the file's name.
        rows: Number of scores.
        compute: Computes the scores.
        details: What the scores depend on beside code and packages, such as a digest of the data.
    """
    request = Request(name=name, rows=rows, details=details, source=_source(), packages=_packages())
    store, job = Store(folder), cast(Job, request)
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
    digest = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        digest.update(f"{array.dtype.str} {array.shape}".encode() + array.tobytes())
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
    installed = {name.lower(): one.version for one in distributions() if (name := one.name)}
    return {name: installed.get(name, "none") for name in PACKAGES}
