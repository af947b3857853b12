"""Experiments on a cluster: the same numbers, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from fedbo.cli.app import app
from fedbo.table import Table
from fedbo_paper.data import MissingData
from fedbo_paper.experiments import keys
from fedbo_paper.experiments import plan as planning
from fedbo_paper.experiments.selection import wanted
from fedbo_paper.experiments.spec import Selection
from fedbo_paper.harness import cluster as clusters
from fedbo_paper.harness import workers
from fedbo_paper.harness.cluster import Cluster, ClusterBackend
from fedbo_paper.harness.store import Store
from fedbo_paper.harness.workers import WorkersFailed

needs_dask = pytest.mark.skipif(
    find_spec("distributed") is None, reason="distributed is not installed"
)
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")

RUNS = 12
ARGUMENTS = ("reproduce", "fig1", "--quick", "--seed", "1")


def some_runs(selection: Selection, data: Path | None) -> planning.Plan:
    """A few runs of figure 1, of all arms."""
    whole = planning.plan(selection, data)
    return msgspec.structs.replace(whole, runs=whole.runs[:: len(whole.runs) // RUNS][:RUNS])


def reproduce(*options: str, out: Path) -> Result:
    arguments = [*ARGUMENTS, *options, "--out", str(out)]
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


def digest(output: str) -> str:
    [found] = re.findall(r"digest (\w+)", output)
    return str(found)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a run on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbo_paper.reproduce.plan", some_runs)
        result = reproduce("--jobs", "1", out=tmp_path_factory.mktemp("here"))
    assert result.exit_code == 0, result.output
    return digest(result.output)


def modified(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}


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


@needs_dask
@pytest.mark.slow
def test_stopped_and_with_a_killed_worker_a_dask_cluster_gives_the_same_numbers(
    dask: Dask, here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo_paper.reproduce.plan", some_runs)
    out, stored, put = tmp_path / "there", [], Store.put
    on_dask = ("--backend", "dask", "--scheduler", dask.address)

    def interrupted(store: Store[Any], job: Any, table: Table) -> None:
        put(store, job, table)
        stored.append(job)
        if len(stored) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "put", interrupted)
    stopped = reproduce(*on_dask, out=out)
    assert stopped.exit_code == 130 and "run the same command to resume" in stopped.output
    assert "2 workers" in stopped.output

    def killing(store: Store[Any], job: Any, table: Table) -> None:
        put(store, job, table)
        stored.append(job)
        if len(stored) == RUNS // 2:
            dask.workers[0].kill()

    monkeypatch.setattr(Store, "put", killing)
    resumed = reproduce(*on_dask, out=out)
    assert resumed.exit_code == 0, resumed.output
    assert len(stored) == len({*stored}) == RUNS
    assert dask.workers[0].wait() != 0 and dask.workers[1].poll() is None
    assert digest(resumed.output) == here

    before = modified(out)
    again = reproduce(*on_dask, out=out)
    assert again.exit_code == 0 and digest(again.output) == here
    assert modified(out) == before and len(stored) == RUNS


def described(source: str) -> Callable[[], dict[str, str]]:
    """A function of a main program: it is sent to workers with its source."""
    names: dict[str, Any] = {"__name__": "__main__", "os": os}
    exec(source, names)
    return names["describe"]  # type: ignore[no-any-return]


@needs_dask
@pytest.mark.slow
def test_workers_of_a_dask_cluster_are_compared_and_missed(
    dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clusters.connected("dask", dask.address) as cluster:
        cluster.compare(partial(keys.describe, []))
        pids = {pid for _, pid in workers.run([os.getpid] * 4, jobs=1)}
        assert pids <= {process.pid for process in dask.workers}
        with pytest.raises(WorkersFailed, match=r"worker tcp://.* process \d+ \(here \d+\)"):
            cluster.compare(described("def describe(): return {'process': str(os.getpid())}"))
        (tmp_path / "here_only.py").write_text("")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(WorkersFailed, match=r"'here_only'.* install the same version of fedbo"):
            cluster.compare(described("def describe(): import here_only; return {}"))
        with pytest.raises(ZeroDivisionError):
            list(workers.run([partial(divmod, 1, 0)]))
        with monkeypatch.context() as patch:
            patch.setattr(type(cluster), "_thread_counts", lambda _: {"tcp://there:1": 4})
            with pytest.raises(WorkersFailed, match=r"has 4 threads, expected 1.* --nthreads 1"):
                cluster.compare(partial(keys.describe, []))
        monkeypatch.setattr(clusters, "PATIENCE", 1.0)
        for process in dask.workers:
            process.kill()
        with pytest.raises(WorkersFailed, match=r"no workers for 1 seconds.* run the same command"):
            list(workers.run([partial(time.sleep, 60)]))
    with pytest.raises(WorkersFailed, match="has no workers, and none came in 1 seconds"):
        clusters.connected("dask", dask.address).__enter__()


IN_ITS_OWN_PROCESS = """
import sys
import fedbo_paper.reproduce
from fedbo.cli.app import app
from paper.test_cluster import some_runs
fedbo_paper.reproduce.plan = some_runs
app()
"""


@needs_ray
@pytest.mark.slow
def test_ray_gives_the_same_numbers(here: str, tmp_path: Path) -> None:
    """In a process of its own: Ray does not clean up after itself, and warnings are errors here."""
    arguments = [*ARGUMENTS, "--backend", "ray", "--jobs", "2", "--out", str(tmp_path / "there")]
    there = subprocess.run(
        [sys.executable, "-c", IN_ITS_OWN_PROCESS, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"},
        timeout=300,
    )
    assert there.returncode == 0, there.stderr
    assert "Ray on this machine" in there.stdout
    assert digest(there.stdout) == here


class Threads(Cluster):
    """A cluster whose workers are threads of this process."""

    deaths = (MemoryError,)

    def __init__(self, count: int = 2) -> None:
        super().__init__("The cluster")
        self.count, self.cancelled, self.under_way, self.most = count, False, 0, 0
        self._lock = threading.Lock()
        self.elsewhere: Callable[[], Any] | None = None

    def perform(self, call: Callable[[], Any]) -> Any:
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        try:
            return call()
        finally:
            with self._lock:
                self.under_way -= 1

    def cancel(self) -> None:
        self.cancelled = True

    def workers(self) -> int:
        return self.count

    def everywhere(self, call: Callable[[], Any]) -> dict[str, Any]:
        try:
            return {"w1": (self.elsewhere or call)()}
        except Exception as error:
            return {"w1": error}

    def disconnect(self) -> None: ...


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    cluster = Threads()
    monkeypatch.setattr(clusters, "_connect", lambda *_: cluster)
    with clusters.connected("dask", "somewhere"):
        yield cluster


def thread_name() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("jobs", [1, 3])
def test_no_more_jobs_run_at_once_than_asked_for(jobs: int, threads: Threads) -> None:
    calls = [partial(time.sleep, 0.01)] * 12
    assert sorted(i for i, _ in workers.run(calls, jobs)) == [*range(12)]
    assert threads.most == jobs


def test_a_cluster_of_one_worker_is_used(threads: Threads) -> None:
    threads.count = 1
    assert {name[:13] for _, name in workers.run([thread_name] * 3)} == {"fedbo-cluster"}


def raises(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("w1"), r"ended the process of its worker several times.*\(w1\).* to resume"),
        (CancelledError(), "The cluster was lost, or cancelled the work.* to resume"),
    ],
)
def test_jobs_that_a_cluster_gives_up_end_in_a_sentence(
    error: BaseException, said: str, threads: Threads
) -> None:
    with pytest.raises(WorkersFailed, match=said):
        list(workers.run([partial(raises, error), *[partial(time.sleep, 0.01)] * 5]))
    assert threads.cancelled


def test_a_cluster_without_workers_is_given_up(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "PATIENCE", 0.1)
    monkeypatch.setattr(clusters, "_PAUSE", 0.02)
    never = threading.Event()
    results = workers.run([thread_name, never.wait])
    assert next(results)[0] == 0
    threads.count = 0
    with pytest.raises(WorkersFailed, match=r"no workers for .* Finished work is kept"):
        next(results)
    never.set()


def test_workers_that_differ_are_named(threads: Threads) -> None:
    here = partial(dict, Python="3.11", numpy="2.3.1")
    threads.compare(here)
    threads.elsewhere = partial(dict, Python="3.11", numpy="1.26.4")
    with pytest.raises(WorkersFailed, match=r"worker w1 .* has numpy 1.26.4 \(here 2.3.1\)\."):
        threads.compare(here)
    threads.elsewhere = partial(raises, MissingData("no landmine in /data."))
    with pytest.raises(WorkersFailed, match=r"w1 lacks data: no landmine .* on the workers"):
        threads.compare(here)


def test_nested_parallel_calls_stay_on_the_worker() -> None:
    backend, _ = ClusterBackend(Threads()).get_nested_backend()
    assert type(backend).__name__ == "ThreadingBackend"


def test_a_job_is_refused_where_its_key_is_another_one(tmp_path: Path) -> None:
    run = some_runs(wanted(["fig1"], quick=True)[0], None).runs[0]
    answers = iter(["a", "b", "c", "c"])
    store = Store(tmp_path, lambda job: next(answers))
    with pytest.raises(WorkersFailed, match="other code, data or libraries"):
        store.guarded(run, Table)()
    table = Table({"score": [1.0]})
    assert store.guarded(run, lambda: table)() is table


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--backend", "dask"], "needs the address of a scheduler, such as tcp://"),
        (["--scheduler", "tcp://there:1"], "tcp://there:1 is given, but .* add --backend dask"),
        (["--backend", "cloud"], "'cloud' is not one of 'processes', 'dask', 'ray'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str], said: str, tmp_path: Path
) -> None:
    refused = reproduce(*options, out=tmp_path)
    assert refused.exit_code == 2
    assert re.search(said, " ".join(refused.output.replace("│", " ").split()))


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_missing_package_is_named_with_its_extra(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = {"distributed", "ray"}
    monkeypatch.setattr(
        "fedbo.cli.checks.find_spec", lambda name: None if name in lacks else find_spec(name)
    )
    ended = reproduce("--backend", backend, "--scheduler", "tcp://there:1", out=tmp_path)
    assert ended.exit_code == 1 and "pip install 'fedbo[cluster]'" in ended.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", [pytest.param("dask", marks=needs_dask), pytest.param("ray", marks=needs_ray)]
)
def test_a_cluster_that_cannot_be_reached_is_said_at_once(backend: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    for scheduler, why in ((address, "Connection refused"), ("there", "there")):
        ended = reproduce("--backend", backend, "--scheduler", scheduler, out=tmp_path / "out")
        assert ended.exit_code == 1
        assert why in ended.output and "check that it is running" in ended.output
        assert "Traceback" not in ended.output and not (tmp_path / "out").exists()
