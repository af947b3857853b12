"""A hub in a process of its own, as people start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Engine

import fedbo
from fedbo.hub.store import open_database

SOURCE = str(Path(fedbo.__file__).parents[1])
PATIENCE = 120.0  # seconds for anything on a busy machine


class RunningHub:
    """A hub that listens at a free port of this machine. Use it in a ``with`` statement.

    Args:
        folder: Where its output goes.
        url: The address of its database.
        *options: Of ``fedbo hub serve``.
        **environ: Variables of its process.
    """

    def __init__(self, folder: Path, url: str, *options: str, **environ: str) -> None:
        self.url, self._options = url, options
        self._environ = os.environ | {"PYTHONPATH": SOURCE, "FEDBO_HUB_DB": url} | environ
        self._out, self._err = folder / "hub.out", folder / "hub.err"
        self._engine: Engine | None = None
        self.port = 0
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> RunningHub:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._engine is not None:
            self._engine.dispose()

    def start(self) -> None:
        """Start it, at the same port if it ran before, and wait until it answers."""
        command = [sys.executable, "-m", "fedbo", "hub", "serve", "--port", str(self.port)]
        with open(self._out, "wb") as out, open(self._err, "ab") as err:
            self.process = subprocess.Popen(
                [*command, *self._options], env=self._environ, stdout=out, stderr=err
            )
        self.wait_for(lambda: "\n" in self.output() or self.process.poll() is not None)
        code = self.process.poll()
        assert code is None, f"exit code {code}: {self.output()}{self.log()}"
        self.address = self.output().splitlines()[0].removeprefix("fedbo hub: ")
        self.port = int(self.address.rpartition(":")[2])

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        """Stop it, and return its exit code."""
        self.process.send_signal(sig)
        return self.process.wait(PATIENCE)

    def output(self) -> str:
        return self._out.read_text()

    def log(self) -> str:
        return self._err.read_text()

    @property
    def engine(self) -> Engine:
        """The database, as ``fedbo hub create`` and others use it."""
        if self._engine is None:
            self._engine = open_database(self.url)
        return self._engine

    def client(self, token: str | None = None, **given: Any) -> httpx.Client:
        """Return a client that knows a token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.address, headers=headers, timeout=PATIENCE, trust_env=False, **given
        )

    def get(self, path: str, token: str | None = None) -> httpx.Response:
        """Send one request, through a connection of its own."""
        with self.client(token) as client:
            return client.get(path)

    @staticmethod
    def wait_for(condition: Any) -> None:
        """Wait until something is true."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "this took too long"
            time.sleep(0.02)
