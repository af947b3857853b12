"""Real processes of Flower for tests: on free ports, in folders of their own, ended at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx2

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def free_ports(n: int) -> list[int]:
    """Return ports that were free just now."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(n)]
        for item in taken:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in taken]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment in which Flower finds fedbo, and writes only into this folder."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    own = {"FLWR_HOME": str(folder / "flwr"), "FEDBO_STATE": str(folder / "state")}
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    ray = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return {**os.environ, **quiet, **own, **ray, "PATH": path, **more}


class Process:
    """A process with a log, in a group of its own, so that its children can be ended with it."""

    def __init__(self, command: list[str], log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as file:
            self._popen = subprocess.Popen(
                command, stdout=file, stderr=file, env=env, start_new_session=True
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def returned(self, seconds: float) -> int:
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended in {seconds:g} s: {self.text()}") from None

    def is_running(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        """Kill the process and its group at once, as a power cut would.

        What Flower starts in another group ends when it misses its parent.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()


@contextlib.contextmanager
def started() -> Iterator[Callable[..., Process]]:
    """Yield a function that starts processes; all of them are killed at the end."""
    running: list[Process] = []

    def start(command: list[str], log: Path, env: Mapping[str, str]) -> Process:
        running.append(Process(command, log, env))
        return running[-1]

    try:
        yield start
    finally:
        for process in reversed(running):
            process.kill()


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something is so, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def is_healthy(url: str, **options: object) -> bool:
    try:
        return httpx2.get(f"{url}/health", timeout=2, **options).is_success
    except httpx2.HTTPError:
        return False
