"""Experiments on a Dask cluster: the same numbers, whatever happens to the workers."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from fedbo.cli.app import app
from fedbo.table import Table
from fedbo_paper.experiments import plan as planning
from fedbo_paper.experiments.spec import Selection
from fedbo_paper.harness.store import Store
from fedbo_paper.harness.workers import WorkersFailed

clusters = pytest.importorskip("fedbo_paper.harness.cluster", exc_type=ImportError)
LocalCluster = pytest.importorskip("distributed").LocalCluster

pytestmark = pytest.mark.slow

RUNS = 12


def some_runs(selection: Selection, data: Path | None) -> planning.Plan:
    """A few runs of figure 1, of all arms."""
    whole = planning.plan(selection, data)
    return msgspec.structs.replace(whole, runs=whole.runs[:: len(whole.runs) // RUNS][:RUNS])


def reproduce(*options: str, out: Path) -> Result:
    arguments = ["reproduce", "fig1", "--quick", "--seed", "1", *options, "--out", str(out)]
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


def digest(result: Result) -> str:
    assert result.exit_code == 0, result.output
    [shown] = re.findall(r"digest (\w+)", result.output)
    return str(shown)


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[LocalCluster]:
    """A scheduler, and two workers in processes of their own, which are replaced if they die."""
    folder = str(tmp_path / "dask")
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=folder
    ) as cluster:
        yield cluster


def pids(dask: LocalCluster) -> list[int]:
    return [nanny.pid for nanny in dask.workers.values()]


def test_stopped_and_with_a_killed_worker_a_cluster_gives_the_same_numbers(
    dask: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo_paper.reproduce.plan", some_runs)
    here = digest(reproduce("--jobs", "1", out=tmp_path / "here"))
    out, stored, put = tmp_path / "there", [], Store.put
    on_dask = ("--scheduler", dask.scheduler_address)

    def interrupted(store: Store[Any], job: Any, table: Table) -> None:
        put(store, job, table)
        stored.append(job)
        if len(stored) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "put", interrupted)
    stopped = reproduce(*on_dask, out=out)
    assert stopped.exit_code == 130 and "run the same command to resume" in stopped.output

    def killing(store: Store[Any], job: Any, table: Table) -> None:
        put(store, job, table)
        stored.append(job)
        if len(stored) == RUNS // 2:
            os.kill(before[0], signal.SIGKILL)

    before = pids(dask)
    monkeypatch.setattr(Store, "put", killing)
    assert digest(reproduce(*on_dask, out=out)) == here
    assert len(stored) == len({*stored}) == RUNS
    assert before[0] not in pids(dask)


def test_calls_run_on_the_workers_and_what_goes_wrong_is_said(
    dask: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "PATIENCE", 1.0)
    monkeypatch.setattr(clusters, "_SECONDS", 2)
    with clusters.connected(dask.scheduler_address) as cluster:
        assert {pid for _, pid in cluster.run([os.getpid] * 4, jobs=1)} <= {*pids(dask)}
        with pytest.raises(ZeroDivisionError):
            list(cluster.run([partial(divmod, 1, 0)]))
        dask.scale(0)
        with pytest.raises(WorkersFailed, match="has had no workers"):
            list(cluster.run([partial(time.sleep, 60)]))
        refused = pytest.raises(WorkersFailed, match="at least one worker")
        with refused, clusters.connected(dask.scheduler_address):
            pass
        dask.close()
        with pytest.raises(WorkersFailed):
            list(cluster.run([partial(time.sleep, 60)]))
    lost = pytest.raises(WorkersFailed, match="cannot be used")
    with lost, clusters.connected(dask.scheduler_address):
        pass
