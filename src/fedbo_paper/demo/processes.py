"""Child processes that never outlive the demo: they end with it, however it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fedbo.state import VARIABLE as STATE

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # there are many processes
_NO_PROXY = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}  # all of them are on this machine
_PATIENCE = 5.0  # seconds that a process has to end by itself
_SHOWN = 20  # lines of what a process said before it failed


class ProcessFailed(Exception):
    """A process of the demo ended before its time; the text says which, and its last words."""


class Process:
    """A Python module that runs in a process of its own.

    Its standard input stays open while the demo lives, so a child that reads it learns of the end.
    Ctrl-C reaches the demo only: the child is in a session of its own.

    Args:
        name: What people know it by.
        module: The module to run.
        arguments: The arguments of the module.
        folder: Where it keeps its files: its state folder, and what it prints to standard error.
        environ: Further variables of its environment.
    """

    def __init__(
        self, name: str, module: str, *arguments: str, folder: Path, **environ: str
    ) -> None:
        self.name = name
        folder.mkdir(mode=0o700, exist_ok=True)
        self._errors = folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **_ONE_THREAD, **_NO_PROXY, STATE: str(folder), **environ},
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def write(self, line: bytes) -> None:
        """Write a line to its standard input; nothing happens if it has ended."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.write(line + b"\n")
            self._popen.stdin.flush()

    def lines(self) -> Iterator[bytes]:
        """Return the lines of its standard output until it ends."""
        assert self._popen.stdout is not None
        return iter(self._popen.stdout.readline, b"")

    def failure(self) -> ProcessFailed:
        """Say how it ended; it has ended, or is about to."""
        code = self._popen.wait()
        words = self._errors.read_text(errors="replace").splitlines()[-_SHOWN:]
        return ProcessFailed("\n".join([f"{self.name} ended with exit code {code}.", *words]))

    def close(self) -> None:
        """Let the process know that the demo is over; do not wait for it."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()

    def end(self) -> None:
        """Wait for the process; kill it if it does not end by itself."""
        self.close()
        self._popen.terminate()
        try:
            self._popen.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
