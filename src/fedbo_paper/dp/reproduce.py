"""From a comparison to everything in the output folder.

=====================  ==========================================================================
``dp.csv``             each method at some rounds: means, differences to TS, intervals, ε
``dp-pairs.csv``       one release less what it is judged against, with intervals
``dp.json``            both tables, with the settings of every method
``dp-curves.csv``      1 − best AUC so far of every field in every run
``dp.png``, ``.svg``   the figure
``runs/``              finished runs, which are not run again
=====================  ==========================================================================
"""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from fedbo import files
from fedbo.table import Table
from fedbo_paper.dp import picture, results
from fedbo_paper.dp.comparison import CURVES, Comparison
from fedbo_paper.dp.run import Job, perform
from fedbo_paper.experiments import keys
from fedbo_paper.experiments.runner import Progress
from fedbo_paper.harness import workers
from fedbo_paper.harness.store import LIBRARIES, Store, digest, library_versions, source_digest

#: The modules that decide the numbers of a run.
SOURCE = (
    *(name for name in keys.SOURCE if name != "fedbo_paper.experiments"),
    "fedbo_paper.experiments.spec",
    *(f"fedbo_paper.dp.{name}" for name in ("methods", "one_release", "policy", "regions")),
    *(f"fedbo_paper.dp.{name}" for name in ("run", "server")),
)


def key(job: Job, data: Path | None = None) -> str:
    """Return the digest of everything that decides the numbers of a run.

    Args:
        job: The run.
        data: The data folder that it reads, or None for the usual places.
    """
    parts = (
        job,
        keys.data_digest(job.problem, data),
        source_digest(*SOURCE),
        library_versions(*LIBRARIES),
    )
    return digest([msgspec.json.encode(parts, order="deterministic")])[:16]


class Outcome(NamedTuple):
    """What a comparison found.

    Args:
        summary: Each method at some rounds.
        pairs: One release less what it is judged against.
    """

    summary: Table
    pairs: Table


def reproduce(
    comparison: Comparison,
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run what is not finished yet, and write the tables and the figure.

    Args:
        comparison: What to run.
        out: The output folder.
        data: The data folder, or None for the usual places.
        jobs: How many runs are made at once; None leaves it to `joblib.parallel_config`.
        progress: Called after every run.

    Returns:
        The tables of ``dp.csv`` and ``dp-pairs.csv``.

    Raises:
        MissingData: The landmine data are missing; the error says what to do.
        ModuleNotFoundError: The package dp-accounting is missing; the error says what to do.
    """
    folder, at = Path(out), None if data is None else Path(data)
    # What is missing is said before anything is run or written.
    comparison.problem.tasks(at)
    results.costs(comparison)
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder / "runs", partial(key, data=at))
    runs = _finished(comparison, store, at, jobs, progress)
    found = results.levels(comparison, runs)
    outcome = Outcome(results.summary(comparison, found), results.pairs(comparison, found))
    _write(folder / "dp.csv", outcome.summary.csv().encode())
    _write(folder / "dp-pairs.csv", outcome.pairs.csv().encode())
    _write(folder / "dp-curves.csv", results.every_curve(comparison, runs).csv().encode())
    described = {
        "comparison": comparison,
        "methods": [curve.method for curve in CURVES],
        "summary": results.rows(outcome.summary),
        "pairs": results.rows(outcome.pairs),
    }
    _write(folder / "dp.json", msgspec.json.format(msgspec.json.encode(described)))
    picture.draw(comparison, found, folder)
    return outcome


def _finished(
    comparison: Comparison,
    store: Store[Job],
    data: Path | None,
    jobs: int | None,
    progress: Progress | None,
) -> dict[Job, Table]:
    """All runs; those that the store does not have are run, and stored as they finish."""
    show = progress or (lambda stage, done, of: None)
    tables = {job: store.get(job) for job in comparison.jobs()}
    missing = [job for job, table in tables.items() if table is None]
    before = len(tables) - len(missing)
    show("runs", before, len(tables))
    calls = [store.guarded(job, partial(perform, job, data)) for job in missing]
    with closing(workers.run(calls, jobs)) as finished:
        for done, (i, table) in enumerate(finished, before + 1):
            store.put(missing[i], table)
            tables[missing[i]] = table
            show("runs", done, len(tables))
    return {job: table for job, table in tables.items() if table is not None}


def _write(path: Path, data: bytes) -> None:
    files.write(path, data)
