"""Scores that take long to compute, kept on disk so that a stopped contest can go on.

`fedbo_paper.harness.store` says what the name of a file depends on, and when scores are computed
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from fedbo.table import Table
from fedbo_paper.harness.store import LIBRARIES, Store, digest, library_versions, source_digest

#: The code that decides scores: what a task is, and how samplers from outside run on it.
SOURCE = (
    "fedbo.space",
    "fedbo_paper.data",
    "fedbo_paper.problems",
    "fedbo_paper.contests.grounds",
    "fedbo_paper.contests.outside",
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence of scores, and what they depend on beside code and libraries."""

    name: str
    rows: int
    details: tuple[str | int, ...]


def kept(
    folder: Path, name: str, rows: int, compute: Callable[[], Sequence[float]], *details: str | int
) -> list[float]:
    """Return scores from the folder, or compute them and keep them there.

    Args:
        folder: Where scores are kept.
        name: The beginning of the file's name.
        rows: Number of scores.
        compute: Computes the scores.
        details: What the scores depend on beside code and libraries, such as a digest of the data.
    """
    store, request = Store(folder, _key), Request(name=name, rows=rows, details=details)
    table = store.get(request)
    if table is None:
        table = Table({"score": compute()})
        store.put(request, table)
    scores: list[float] = table["score"].tolist()
    return scores


def array_digest(arrays: Iterable[ArrayLike]) -> str:
    """Return a digest of the values, types and shapes of arrays.

    >>> array_digest([[1.0, 2.0]]) == array_digest([[1.0], [2.0]])
    False
    """
    each = map(np.ascontiguousarray, arrays)
    return digest(f"{one.dtype.str} {one.shape}".encode() + one.tobytes() for one in each)[:16]


def _key(request: Request) -> str:
    versions = library_versions(*LIBRARIES, "optuna", "botorch", "gpytorch", "torch")
    parts = (request, source_digest(*SOURCE), versions)
    return digest([msgspec.json.encode(parts, order="deterministic")])[:16]
