"""A running hub: its database, limits and metrics, and the private releases that it makes itself.

Every process of a hub looks for releases that are due; which of them makes one is decided in the
transaction that makes it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TypeVar
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Histogram, Metric, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from fedbo.errors import KeyRefused
from fedbo.federation.federation import Federation
from fedbo.hub import store
from fedbo.hub.problems import Refused
from fedbo.hub.settings import Settings
from fedbo.trust import KeyPair

_COMPOSED = 4  # answers that are composed at once, each of which is in memory twice
_MOST_KEYS = 100_000  # members that are remembered
_BURST = 4  # seconds of requests that may come at once
_LOOK = 60.0  # seconds between two looks for releases that are due
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")

#: How many requests a hub works on at once.
MOST_REQUESTS = 1000
#: How many bodies may be under way at once of those who need no token.
MOST_UNFINISHED = 100
#: How many bytes of large answers may be under way at once.
MOST_ANSWERED = 2**26

T = TypeVar("T")
log = logging.getLogger(__name__)


class Buckets:
    """Lets everyone do something so many times a second, and more for a short while.

    Args:
        rate: How often in a second; 0: there is no limit.
        burst: How often at once.

    >>> buckets = Buckets(rate=1.0, burst=2.0)
    >>> [buckets.take("a", now=5.0), buckets.take("a", now=5.0), buckets.take("a", now=5.25)]
    [0.0, 0.0, 0.75]
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable, now: float | None = None) -> float:
        """Count one time, unless it is too often; return after how many seconds it is not."""
        if not self._rate:
            return 0.0
        now = time.monotonic() if now is None else now
        with self._lock:
            level, when = self._levels.get(key, (self._burst, now))
            level = min(self._burst, level + (now - when) * self._rate)
            if level < 1.0:
                return (1.0 - level) / self._rate
            self._levels[key] = level - 1.0, now
            self._levels.move_to_end(key)
            if len(self._levels) > _MOST_KEYS:
                self._levels.popitem(last=False)
            return 0.0


class Room:
    """Has room for so much at once, and refuses what comes beyond that.

    It is for coroutines of one thread.

    Args:
        most: How much may be there at once.

    >>> room = Room(2)
    >>> with room.hold(), room.hold(), room.hold():
    ...     pass
    Traceback (most recent call last):
        ...
    fedbo.hub.problems.Refused: the hub has too many requests under way: try again in a second
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._owners: set[Hashable] = set()

    @contextmanager
    def hold(self, size: int = 1, owner: Hashable = None) -> Iterator[None]:
        """Take room for something of this size; an owner that is named can hold one thing."""
        if self._held + size > self._most or owner in self._owners:
            text = "the hub has too many requests under way: try again in a second"
            raise Refused("busy", text, retry_after=1)
        owners = {owner} - {None}
        self._held += size
        self._owners |= owners
        try:
            yield
        finally:
            self._held -= size
            self._owners -= owners


class Metrics(Collector):
    """The numbers of a hub, and the port at which Prometheus reads them.

    Args:
        counts: Returns how much there is of each thing.
    """

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._requests = Histogram(
            "fedbo_hub_request_seconds",
            "How long requests took.",
            ("route", "method", "status"),
            buckets=_SECONDS,
            registry=self._registry,
        )

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request; of its path, only the template of the route is known."""
        known = method if method in _METHODS else "other"  # anyone may invent methods
        self._requests.labels(route, known, str(status)).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield how much there is of each thing, for Prometheus."""
        for name, count in self._counts().items():
            yield GaugeMetricFamily(f"fedbo_hub_{name}", f"How many {name} there are.", count)

    def start(self, address: str) -> None:
        """Let Prometheus read the numbers at an address, HOST:PORT."""
        host, _, port = address.rpartition(":")
        try:
            self._server = start_http_server(int(port), host.strip("[]"), self._registry)
        except (OSError, OverflowError) as error:
            raise store.HubError(
                f"metrics is {address!r}, where this machine cannot listen ({error}): choose "
                "another port, or an address of this machine"
            ) from None

    def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None


class Service:
    """The parts of a running hub with these settings."""

    engine: Engine

    def __init__(self, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics(self._counts)
        self.under_way = Room(MOST_REQUESTS)  #: all requests
        self.unfinished = Room(MOST_UNFINISHED)  #: bodies of those who need no token
        self._composers = ThreadPoolExecutor(_COMPOSED)
        self.answers = Room(MOST_ANSWERED)  #: bytes of large answers that are not yet read
        self._requests = Buckets(settings.rate, _BURST * settings.rate)
        self.agreed = lru_cache(maxsize=1000)(self._agreed)

    def start(self) -> None:
        """Open the database and the port for metrics."""
        self.engine = store.open_database(self.settings.db)
        if self.settings.metrics:
            self.metrics.start(self.settings.metrics)

    def stop(self) -> None:
        """Close them."""
        self.metrics.stop()
        self._composers.shutdown()
        self.engine.dispose()

    def _counts(self) -> dict[str, int]:
        with self.reading() as connection:
            return store.counts(connection)

    def reading(self) -> AbstractContextManager[Connection]:
        """Start a transaction that reads."""
        return self.engine.connect()

    async def compose(self, work: Callable[[], T]) -> T:
        """Do the work for an answer with messages: only a few are composed at once."""
        return await asyncio.get_running_loop().run_in_executor(self._composers, work)

    @contextmanager
    def writing(self, caller: store.Caller | None = None) -> Iterator[Connection]:
        """Start a transaction that writes, if the caller's token is still valid.

        At its end, it is on the disk.
        """
        with store.begin(self.engine) as connection:
            if caller is not None:
                store.check_still(connection, caller)
            yield connection

    def _agreed(self, federation_id: int) -> Federation:
        """Return what the agents of a federation agree on; its list of members may be outdated."""
        with self.reading() as connection:
            return store.find_federation(connection, federation_id).agreed

    def count_request(self, member_id: int) -> None:
        """Count a request of a member; `Refused` if there were too many."""
        if wait := math.ceil(self._requests.take(member_id)):
            text = f"more than {self.settings.rate:g} requests a second: try again in {wait} s"
            raise Refused("too-many-requests", text, retry_after=wait)

    async def look_after(self) -> None:
        """Make releases that are due, until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                await asyncio.to_thread(self.make_due_releases)
            except Exception:  # the next look may do better
                log.exception("not-released")

    def make_due_releases(self) -> None:
        """Make all releases that are due, and log them."""
        with self.reading() as connection:
            due = store.due_releases(connection)
        if not due:
            return
        from fedbo.federation.shared import Shared  # loads the models, for releases only

        keys = release_keys(self.settings)
        for row in due:
            fields: dict[str, object] = {"federation": row.name}
            try:
                Shared.of(row.agreed).basis  # noqa: B018 (computed here, not while others wait)
                with self.writing() as connection:
                    made = store.make_due_release(connection, row.id, keys=keys)
            except (Refused, SQLAlchemyError, ValueError):  # the others do not wait for it
                log.exception("not-released", extra={"fields": fields})
            else:
                if made is not None:  # else another process was first
                    fields |= {"number": made.number, "members": made.members}
                    log.info("released", extra={"fields": fields})


def release_keys(settings: Settings) -> KeyPair:
    """Return the key pair that signs private releases: the one named, or else this user's.

    Raises:
        HubError: If the file cannot be used; the text says why.
    """
    try:
        return KeyPair.load(settings.release_key or None)
    except (KeyRefused, OSError) as error:
        raise store.HubError(f"release_key: {error}") from None
