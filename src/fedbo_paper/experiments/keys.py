"""The keys of stored jobs: see `fedbo_paper.harness.store`.

=========  =====================================================================
job        all fields of the job
data       the samples that its problem reads, whichever file they come from
source     the code of `fedbo` and of the modules that compute results
libraries  the versions of numpy, scipy and scikit-learn
=========  =====================================================================

Data and source are read once in each process.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from fedbo import version
from fedbo_paper.data import Samples, gleam, har, landmine
from fedbo_paper.experiments.spec import Job, kind_of
from fedbo_paper.harness.store import LIBRARIES, digest, library_versions, source_digest
from fedbo_paper.problems.problems import Glass, Har, Landmine, Problem

SOURCE = (
    "fedbo",
    "fedbo_paper.preset",
    "fedbo_paper.harness.averages",
    "fedbo_paper.experiments",
    "fedbo_paper.problems",
)


def key(job: Job, data: Path | None = None) -> str:
    """Return the digest of everything that decides the numbers of a job.

    Args:
        job: The job.
        data: The data folder that it reads, or None for the usual places.
    """
    parts = (
        job,
        data_digest(job.problem, data),
        source_digest(*SOURCE),
        library_versions(*LIBRARIES),
    )
    return digest([msgspec.json.encode(parts, order="deterministic")])[:16]


def describe(
    problems: Sequence[Problem], data: Path | None = None, source: Sequence[str] = SOURCE
) -> dict[str, str]:
    """Return everything but the job that decides numbers, to compare two machines.

    Args:
        problems: The problems whose data are read.
        data: The data folder, or None for the usual places.
        source: The modules that compute results.

    Raises:
        MissingData: The data of a problem are missing; the error says what to do.

    >>> describe([])["fedbo"] == version.__version__
    True
    """
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "fedbo": version.__version__,
        "source code": source_digest(*source)[:12],
        **library_versions(*LIBRARIES, "joblib"),
        **{f"{kind_of(one)} data": data_digest(one, data)[:12] for one in problems},
    }


@cache
def data_digest(problem: Problem, folder: Path | None = None) -> str:
    """Return the digest of the samples that a problem reads; that of nothing for synthetic ones."""
    samples = _samples(problem, folder)
    return digest(part for one in samples for part in (one.X.tobytes(), one.y.tobytes()))


def _samples(problem: Problem, folder: Path | None) -> Sequence[Samples]:
    match problem:
        case Landmine():
            return landmine.load(folder)
        case Har():
            return har.load(folder)
        case Glass(stand_in=True):
            return gleam.stand_in()
        case Glass():
            return gleam.load(folder, window=problem.window)
        case _:
            return ()
