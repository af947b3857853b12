"""Whoever makes a release may be killed at any moment: nobody hears one that is not recorded."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hub.private import Lung, federation
from hub.running import SOURCE
from hub.world import World

from fedbo.federation import Plan

ATTEMPTS = 50
SECONDS = 20.0  # that they may take
#: For each line, runs ``fedbo hub release lung`` in a new process, killed after so many seconds.
SCRIPT = """
import os, signal, sys, time
import fedbo.cli.hub_release, fedbo.hub.admin, fedbo.hub.database, fedbo.hub.release_key
import fedbo.hub.settings, dp_accounting.pld, psycopg, sqlalchemy.dialects.sqlite
from fedbo.cli.app import app
for line in sys.stdin:
    delay, began = float(line), time.monotonic()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            app(["hub", "release", "lung"])
        finally:
            os._exit(1)
    end = began + delay
    found, status = 0, 0
    while time.monotonic() < end and not found:
        found, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.0005)
    if not found:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print("done" if found else "killed", time.monotonic() - began, flush=True)
"""


class Releasing:
    """Runs the command again and again, in processes that can be killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, delay: float) -> tuple[str, float]:
        """Run it for so many seconds; return whether it was done or killed, and how long it ran."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{delay}\n")
        self._process.stdin.flush()
        how, seconds = self._process.stdout.readline().split()
        return how, float(seconds)


@contextmanager
def releasing(url: str) -> Iterator[Releasing]:
    environ = {"PYTHONPATH": SOURCE, "FEDBO_HUB_DB": url, "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", SCRIPT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environ, **pipes)  # type: ignore[call-overload]
    try:
        yield Releasing(process)
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it forks")
def test_no_release_is_heard_that_is_not_recorded(database_url: str) -> None:
    plan = Plan(epsilon=2.0, delta=1e-3, releases=1000)
    rng, hows, end = random.Random(0), [], time.monotonic() + SECONDS
    with World(database_url) as world, releasing(database_url) as command:
        lung = Lung(world, federation(plan), "a", "b", "c")
        lung.contribute("a", "b")
        command.run(60.0)
        _, usual = command.run(60.0)
        assert len(lung.recorded()) == 2
        while len(hows) < ATTEMPTS and (time.monotonic() < end or len({*hows}) < 2):
            heard = [one.sequence for one in lung.fetch("c")]  # of a process that runs meanwhile
            before = len(lung.recorded())
            hows.append(command.run(rng.uniform(0.0, 1.3 * usual))[0])
            heard += [one.sequence for one in lung.fetch("c")]
            rows = lung.recorded()
            assert [row.sequence for row in rows] == [*range(1, len(rows) + 1)]
            assert all(row.content for row in rows)
            assert before <= len(rows) <= before + 1
            assert heard == [before, len(rows)]
        assert len(world.audit("released")) == len(rows)
        assert command.run(60.0)[0] == "done"  # nothing is locked
        assert [one.sequence for one in lung.fetch("c")] == [len(rows) + 1]
    assert {"done", "killed"} == {*hows}
    print(f"{hows.count('killed')} of {len(hows)} were killed; a release took {usual:.3f} s")
