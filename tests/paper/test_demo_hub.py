"""The demo as a person runs it: a hub, processes, and nothing left when it is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import fedbo
from fedbo.table import Table
from fedbo_paper.demo.demo import MODES, Demo

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux"),
]

SMALL = Demo(agents=3, trials=5, repeats=2, seed=4)
OPTIONS = ["--agents", "3", "--trials", "5", "--repeats", "2", "--seed", "4"]
LONG = ["--agents", "3", "--trials", "50", "--repeats", "50"]
PATIENCE = 300.0  # seconds; it takes a few on a machine that is not busy


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the demo; its temporary folder is inside this one."""
    (folder / "tmp").mkdir()
    started = subprocess.Popen(
        [sys.executable, "-m", "fedbo", "demo", *options],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(fedbo.__file__).parents[1]),
            "COLUMNS": "80",
            "TMPDIR": str(folder / "tmp"),
            "FEDBO_STATE": str(folder / "state"),
            "HTTP_PROXY": "http://127.0.0.1:9",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()
        wait_until(lambda: not children(folder))


def children(folder: Path) -> dict[int, str]:
    """The processes whose state folder is inside the demo's temporary folder, and its name."""
    found, mark = {}, f"FEDBO_STATE={folder / 'tmp'}/".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = environ.read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(mark):
                found[int(environ.parent.name)] = Path(os.fsdecode(variable)).name
    return found


def wait_until(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def wait_until_busy(started: subprocess.Popen[str], folder: Path) -> None:
    """Wait until a site has sent its first message."""

    def is_busy() -> bool:
        assert started.poll() is None, started.communicate()
        return any(folder.glob("tmp/*/site-*/ledger.jsonl"))

    wait_until(is_busy)


def expected(demo: Demo, repeat: int) -> dict[tuple[str, int], list[float]]:
    """The scores of a repeat, by mode and site, without any process or hub."""
    federation = demo.federation(repeat)
    images, messages, scores = demo.images(), [], {}
    for site in demo.order(repeat):
        own = {"name": demo.sites[site], "seed": demo.agent_seed(repeat, site)}
        together = fedbo.Agent(federation, **own)
        together.receive(messages)
        agents = {
            "alone": fedbo.Agent(federation, fedbo.EI(), **own),
            "together": together,
        }
        for mode, agent in agents.items():
            for _ in range(demo.trials):
                trial = agent.ask()
                agent.tell(trial, images[site](trial.params))
            scores[mode, site] = [trial.score for trial in agent.trials]
        messages.append(together.message())
    return scores


def test_end_to_end(tmp_path: Path) -> None:
    with demo(tmp_path, *OPTIONS, "--out", "demo.png", "--csv", "demo.csv") as started:
        out, errors = started.communicate(timeout=PATIENCE)
    assert started.returncode == 0, errors
    assert errors == ""
    assert max(map(len, out.splitlines())) <= 80
    assert "The hub's page: http://127.0.0.1:" in out
    assert "Log in with:    fedbo-o-" in out
    assert "6 messages went to the hub" in out and "6 messages came from it" in out
    assert "After 5 trials, together is" in " ".join(out.split())
    assert np.ptp(imread(tmp_path / "demo.png")[..., :3]) > 0.5
    table = Table.from_csv(tmp_path / "demo.csv")
    assert table.height == SMALL.total
    for repeat in range(SMALL.repeats):
        scores = expected(SMALL, repeat)
        for mode in MODES:
            for site, name in enumerate(SMALL.sites):
                rows = table.where(repeat=repeat, mode=mode, site=name)
                assert rows["score"].tolist() == scores[mode, site]
    assert {path.name for path in tmp_path.iterdir()} == {"tmp", "demo.png", "demo.csv"}
    assert not any((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_early_it_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with demo(tmp_path, *LONG) as started:
        wait_until_busy(started, tmp_path)
        assert sorted(children(tmp_path).values()) == ["hub", "site-1", "site-2", "site-3"]
        started.send_signal(number)
        out, errors = started.communicate(timeout=PATIENCE)
        assert not children(tmp_path)
    assert started.returncode == 130, errors
    assert errors == ""
    assert "Stopped after" in out
    assert not any((tmp_path / "tmp").iterdir())


def test_killed_it_leaves_no_process(tmp_path: Path) -> None:
    with demo(tmp_path, *LONG) as started:
        wait_until_busy(started, tmp_path)
        started.kill()
        started.wait()
        wait_until(lambda: not children(tmp_path))


@pytest.mark.parametrize("victim", ["site-2", "hub"])
def test_says_which_process_failed(victim: str, tmp_path: Path) -> None:
    with demo(tmp_path, *LONG) as started:
        wait_until_busy(started, tmp_path)
        [found] = [pid for pid, name in children(tmp_path).items() if name == victim]
        os.kill(found, signal.SIGKILL)
        _, errors = started.communicate(timeout=PATIENCE)
        assert not children(tmp_path)
    assert started.returncode == 1
    assert f"{'the hub' if victim == 'hub' else victim} ended with exit code -9." in errors
    assert not any((tmp_path / "tmp").iterdir())
