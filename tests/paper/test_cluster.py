"""Experiments on a Dask cluster: the same numbers, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
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


class Dask:
    """A scheduler and two workers, each a process; the system chooses their ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def start(self) -> None:
        file = self._folder / "scheduler.json"
        self._start("scheduler", "--port", "0", "--scheduler-file", str(file))
        deadline = time.monotonic() + 60
        while not self.address and time.monotonic() < deadline:
            time.sleep(0.05)
            with contextlib.suppress(FileNotFoundError, ValueError):  # not there, or not complete
                self.address = json.loads(file.read_text())["address"]
        options = ("--no-nanny", "--nthreads", "1", "--local-directory", str(self._folder))
        self.workers = [self._start("worker", self.address, *options) for _ in range(2)]

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        here = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
        with (self._folder / f"{what}-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", what, *here, *options],
                stdout=log,
                stderr=log,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Dask]:
    cluster = Dask(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_stopped_and_with_a_killed_worker_a_cluster_gives_the_same_numbers(
    dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo_paper.reproduce.plan", some_runs)
    here = digest(reproduce("--jobs", "1", out=tmp_path / "here"))
    out, stored, put = tmp_path / "there", [], Store.put
    on_dask = ("--scheduler", dask.address)

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
            dask.workers[0].kill()

    monkeypatch.setattr(Store, "put", killing)
    assert digest(reproduce(*on_dask, out=out)) == here
    assert len(stored) == len({*stored}) == RUNS
    assert dask.workers[0].wait() != 0 and dask.workers[1].poll() is None


def test_calls_run_on_the_workers_and_what_goes_wrong_is_said(
    dask: Dask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clusters.connected(dask.address) as cluster:
        pids = {pid for _, pid in cluster.run([os.getpid] * 4, jobs=1)}
        assert pids <= {process.pid for process in dask.workers}
        with pytest.raises(ZeroDivisionError):
            list(cluster.run([partial(divmod, 1, 0)]))
        monkeypatch.setattr(clusters, "PATIENCE", 1.0)
        for process in dask.workers:
            process.kill()
        with pytest.raises(WorkersFailed, match="has had no workers"):
            list(cluster.run([partial(time.sleep, 60)]))
    with pytest.raises(WorkersFailed, match="at least one"), clusters.connected(dask.address):
        pass


def test_a_worker_with_several_threads_is_refused(
    dask: Dask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters.Cluster, "threads", lambda _: {"tcp://there:1": 4})
    with pytest.raises(WorkersFailed, match="4] threads"), clusters.connected(dask.address):
        pass


def test_a_lost_scheduler_ends_the_work(dask: Dask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_SECONDS", 2)
    with clusters.connected(dask.address) as cluster:
        results = cluster.run([partial(time.sleep, 0.0), *[partial(time.sleep, 60)] * 4])
        assert next(results)[0] == 0
        dask.stop()
        with pytest.raises(WorkersFailed):
            next(results)
    with pytest.raises(WorkersFailed, match="cannot be used"), clusters.connected(dask.address):
        pass
