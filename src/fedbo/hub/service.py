"""A running hub: its database, its limits, and what it does by itself.

It makes private releases when they are due, and forgets what need not be remembered. Every process
of a hub looks for both; which of them makes a release is decided in the transaction that makes it.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from fedbo.exchange.choice import most_bytes
from fedbo.federation.federation import Federation
from fedbo.hub import store
from fedbo.hub.problems import Refused
from fedbo.hub.settings import Settings
from fedbo.hub.telemetry import Log, Metrics
from fedbo.identity import KeyPair, KeyRefused

T = TypeVar("T")

_MOST_KEYS = 100_000  # members or addresses that are remembered
_BURST = 4  # seconds of requests that may come at once
_BESIDE = 64  # bytes of a publication beside the message
_LOOK = 60.0  # seconds between two looks for releases that are due
_DAY = 86400.0
_NOTED = 20  # refusals of one caller a minute that are in the audit log
#: Not in the audit log: floods, and what is nobody's doing.
_NOT_NOTED = ("too-many-requests", "wrong-token", "not-ready", "failed", "wrong-method")


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
        """Count one time, unless it is too often; return after how many seconds it is not.

        Args:
            key: Who does it.
            now: The time in seconds; by default a clock's.
        """
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


def refuse_for(seconds: float, detail: str) -> Refused:
    """Return the problem of someone who must wait.

    Args:
        seconds: How long.
        detail: What there was too much of.
    """
    wait = max(1, math.ceil(seconds))
    return Refused("too-many-requests", f"{detail}: try again in {wait} s", retry_after=wait)


class Service:
    """The parts of a running hub.

    Args:
        settings: Its settings.
        log: Where lines go.
    """

    engine: Engine

    def __init__(self, settings: Settings, log: Log) -> None:
        self.settings, self.log, self.metrics = settings, log, Metrics()
        self.keys: KeyPair | None = None  #: what signs private releases
        self._requests = Buckets(settings.rate, _BURST * settings.rate)
        self._failures = Buckets(settings.failures / 60.0, settings.failures)
        self._noted = Buckets(_NOTED / 60.0, _NOTED)
        self.agreed = lru_cache(maxsize=1000)(self._agreed)
        self.most_bytes = lru_cache(maxsize=1000)(self._most_bytes)

    def start(self) -> None:
        """Open the database."""
        self.keys = release_keys(self.settings)
        self.engine = store.open_database(self.settings.db)

    def stop(self) -> None:
        """Close the database."""
        self.engine.dispose()

    def reading(self) -> AbstractContextManager[Connection]:
        """Start a transaction that reads."""
        return self.engine.connect()

    @contextmanager
    def writing(self, caller: store.Caller | None = None) -> Iterator[Connection]:
        """Start a transaction that writes: at its end, it is on the disk.

        Args:
            caller: Whose token must still be valid.
        """
        with store.begin(self.engine) as connection:
            if caller is not None:
                store.check_still(connection, caller)
            yield connection

    def _agreed(self, federation_id: int) -> Federation:
        """Return what the agents of a federation agree on; its list of members may be outdated."""
        with self.reading() as connection:
            return store.find_federation(connection, federation_id).agreed

    def _most_bytes(self, federation_id: int) -> int:
        """Return how many bytes what a member of a federation publishes has at most."""
        return most_bytes(self.agreed(federation_id).sent_bytes) + _BESIDE

    def count_request(self, member_id: int) -> None:
        """Count a request of a member; `Refused` if there were too many."""
        if wait := self._requests.take(member_id):
            raise refuse_for(wait, f"more than {self.settings.rate:g} requests a second")

    def count_failure(self, address: str) -> None:
        """Count a wrong token or invitation; `Refused` if there were too many.

        A valid one is always taken: others behind the same address would suffer from one agent with
        a wrong token, and a token is too long to be guessed.
        """
        if wait := self._failures.take(address):
            raise refuse_for(wait, "there were too many wrong tokens from this address")

    def note_refused(self, refused: Refused, actor: str, federation: str, subject: str) -> None:
        """Write to the audit log that a change was refused, unless there are too many of these."""
        if refused.slug in _NOT_NOTED or self._noted.take(f"{actor}/{federation}"):
            return
        with self.writing() as connection:
            store.record(
                connection,
                "refused",
                actor=actor,
                federation=federation,
                subject=subject,
                detail={"problem": refused.slug},
            )

    async def look_after(self) -> None:
        """Do what a hub does by itself, until it is cancelled."""
        pruned = 0.0
        while True:
            if time.monotonic() >= pruned:
                await self._attempt("not-pruned", self._prune)
                pruned = time.monotonic() + _DAY
            await asyncio.sleep(_LOOK)
            await self._attempt("not-released", self.make_due_releases)

    async def _attempt(self, event: str, function: Callable[[], object]) -> None:
        try:
            await asyncio.to_thread(function)
        except Exception as error:  # the next look may do better
            self.log.error(event, error)

    def _prune(self) -> None:
        with self.writing() as connection:
            store.prune(connection)

    def make_due_releases(self) -> None:
        """Make all releases that are due, and log them."""
        with self.reading() as connection:
            due = store.due_releases(connection)
        for row in due:
            try:
                row.agreed.basis  # noqa: B018 (computed here, not while others wait)
                with self.writing() as connection:
                    made = store.make_due_release(connection, row.id, keys=self.keys)
            except Refused as refused:
                fault = {"problem": refused.slug, "detail": refused.detail}
                self.log.write("not-released", federation=row.name, **fault)
            except (SQLAlchemyError, ValueError) as error:  # the others do not wait for it
                self.log.error("not-released", error, federation=row.name)
            else:
                if made is not None:  # else another process was first
                    told = {"number": made.number, "members": made.members}
                    self.log.write("released", federation=row.name, **told)


def release_keys(settings: Settings) -> KeyPair | None:
    """Return the key pair that signs private releases; None if they are not signed.

    Raises:
        HubError: If the file cannot be used; the text says why.
    """
    if not settings.release_key:
        return None
    try:
        return KeyPair.load(settings.release_key)
    except KeyRefused as error:
        raise store.HubError(f"release_key: {error}") from None
    except OSError as error:
        raise store.HubError(
            f"release_key: {settings.release_key} cannot be read ({error.strerror}): give the "
            "file of a private key, an identity.pem"
        ) from None
