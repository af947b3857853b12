"""Scores of finished runs, kept on disk so that a stopped contest can go on.

`fedbo_paper.harness.store` says when a run is computed again: whenever its data, the code behind it
or a library has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from fedbo.table import Table
from fedbo_paper.harness import store as stores

LIBRARIES = (*stores.LIBRARIES, "optuna", "botorch", "gpytorch", "torch")

#: The code behind a task, behind the runs of samplers from outside, and behind runs of fedbo.
TASKS = ("fedbo.space", "fedbo_paper.data", "fedbo_paper.problems", f"{__package__}.grounds")
OUTSIDE = (*TASKS, f"{__package__}.outside")
FEDBO = ("fedbo", "fedbo_paper.data", "fedbo_paper.problems", str(__package__))


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence of scores, and what they depend on beside libraries."""

    name: str
    rows: int
    details: tuple[str | int, ...]


def stored(
    folder: Path,
    name: str,
    rows: int,
    compute: Callable[[], Sequence[float]],
    *details: str | int,
    source: tuple[str, ...] = TASKS,
) -> list[float]:
    """Return scores from the folder, or compute them and store them there.

    Args:
        folder: Where scores are stored.
        name: The beginning of the file's name.
        rows: Number of scores.
        compute: Computes the scores.
        details: What the scores depend on beside code and libraries, such as a digest of the data.
        source: The modules and packages that decide the scores.
    """
    file = "".join(c if c.isalnum() or c in ".-" else "-" for c in name)
    store = stores.Store(folder, partial(stores.key, source=source, libraries=LIBRARIES))
    request = Request(name=file, rows=rows, details=details)
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
    contiguous = map(np.ascontiguousarray, arrays)
    return stores.digest(f"{a.dtype.str} {a.shape}".encode() + a.tobytes() for a in contiguous)[:16]
