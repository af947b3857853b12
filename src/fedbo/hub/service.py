"""The parts of a running hub that its endpoints share."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import SQLAlchemyError

from fedbo.federation import Federation
from fedbo.hub import admin, migrations, schema
from fedbo.hub.auth import Auth, Caller
from fedbo.hub.database import begin, open_database
from fedbo.hub.feed import Feeds
from fedbo.hub.limits import BURST, AtOnce, Buckets, Room
from fedbo.hub.log import Log
from fedbo.hub.metrics import Metrics
from fedbo.hub.problems import Refused
from fedbo.hub.release_key import release_keys
from fedbo.hub.settings import Settings
from fedbo.hub.writer import Writer
from fedbo.identity import KeyPair

T = TypeVar("T")
K = TypeVar("K")

#: What is said about a federation that is not there, and about one that is not the caller's.
NO_FEDERATION = "there is no such federation, or it is not yours"
_MOST_AGREED = 1000  # epochs of federations that are kept
_MOST_NAMES = 100_000  # of federations
_ROOM, _SHARE = 256 * 2**20, 64 * 2**20  # bytes in memory at the same time; of one member
_STILL_READY = 1.0  # seconds
_PATIENCE = 5.0  # seconds in which the database must answer
_DAY = 86400.0  # seconds
_NOTED = 20  # refusals of one caller a minute that are in the audit log
#: Not in the audit log: floods, and what is nobody's doing.
_NOT_NOTED = ("too-many-requests", "wrong-token", "not-ready", "failed", "wrong-method", "too-slow")


class Service:
    """A running hub. Start it in the event loop that serves.

    Args:
        settings: Its settings.
        log: Where lines go.
        metrics: Where things are counted.
    """

    engine: Engine
    writer: Writer
    feeds: Feeds
    auth: Auth

    def __init__(self, settings: Settings, log: Log, metrics: Metrics) -> None:
        self.settings, self.log, self.metrics = settings, log, metrics
        self.keys: KeyPair | None = None  #: what signs private releases
        self.requests = Buckets(settings.rate, BURST * settings.rate)
        self.at_once = AtOnce()  #: requests that run: of addresses (str), of members (int), of all
        self._noted = Buckets(_NOTED / 60.0, _NOTED)
        self._agreed: OrderedDict[tuple[int, int], Federation] = OrderedDict()
        self._ids: OrderedDict[str, int] = OrderedDict()
        self._was_ready = -math.inf
        self._look: asyncio.Task[tuple[str | None, str]] | None = None  # at the database
        self.room = Room(_ROOM, _SHARE)  #: for messages that arrive
        self.answers = Room(_ROOM, _SHARE)  #: for messages that are handed out

    def start(self) -> None:
        """Open the database, and bring it up to date."""
        self.keys = release_keys(self.settings)
        self.engine = open_database(self.settings.db)
        with begin(self.engine) as connection:
            admin.prune(connection)
        self.writer = Writer(self.engine, committed=self.metrics.committed)
        self.feeds = Feeds(self.engine)
        self.auth = Auth(self.settings, self.engine, self.writer)

    async def prune_daily(self) -> None:
        """Forget once a day what a hub need not remember, until it is cancelled."""
        while True:
            await asyncio.sleep(_DAY)
            with contextlib.suppress(Refused):  # the database does not answer
                await self.change(admin.prune)

    def stop(self) -> None:
        """Write what waits, and close the database."""
        self.writer.stop()
        self.feeds.stop()
        self.engine.dispose()

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Return what a function finds in the database, in a thread.

        Args:
            function: What reads. It must not change anything.
        """
        return await asyncio.to_thread(self._read, function)

    async def change(self, function: Callable[[Connection], T], federation: int | None = None) -> T:
        """Change the database, and return what the function returned when it is on the disk.

        Args:
            function: What changes the database.
            federation: The id of the federation that it concerns.
        """
        return await self.writer.submit(function, federation)

    async def federation_id(self, name: str) -> int:
        """Return the id of a federation; `Refused` if there is none.

        Args:
            name: Its name at the hub.
        """
        if (known := self._ids.get(name)) is None:
            row = schema.federation.c
            found = select(row.id).where(row.name == name)
            known = await self.read(lambda connection: connection.scalar(found))
            if known is None:  # the name is not repeated: it may be anything
                raise Refused("no-such-federation", NO_FEDERATION)
            _keep(self._ids, name, known, _MOST_NAMES)
        return known

    async def agreed(self, federation: int, epoch: int | None = None) -> Federation:
        """Return what the agents of a federation agree on; `Refused` if there is no such epoch.

        The list of members may be outdated.

        Args:
            federation: The id of the federation.
            epoch: The epoch; by default the one that was current when it was first needed. The
                kind of message, the features and the space are the same in all epochs.
        """
        key = federation, -1 if epoch is None else epoch
        if (known := self._agreed.get(key)) is None:
            known = await self.read(lambda connection: _agreed(connection, federation, epoch))
            _keep(self._agreed, key, known, _MOST_AGREED)
        else:
            self._agreed.move_to_end(key)
        return known

    async def note_refused(
        self, refused: Refused, caller: Caller | None, federation: str, subject: str = ""
    ) -> None:
        """Write to the audit log that something was refused, unless there are too many of these.

        Args:
            refused: Why.
            caller: Who wanted it; None: nobody knows.
            federation: The name of the federation; may be empty.
            subject: What it was about.
        """
        key = "/" + federation if caller is None else caller.actor + "/" + caller.federation_name
        if refused.slug in _NOT_NOTED or self._noted.take(key):
            return
        actor = admin.UNKNOWN if caller is None else caller.actor

        def note(connection: Connection) -> None:
            admin.record(
                connection,
                "refused",
                actor=actor,
                federation=federation,
                subject=subject,
                detail={"problem": refused.slug},
            )

        with contextlib.suppress(Refused):  # the database does not answer; the log has the request
            await self.change(note)

    async def check_ready(self) -> None:
        """Raise `Refused` unless the database answers, and is what this version knows.

        All who ask at the same time wait for one look at the database. If it hangs, it takes one
        thread, however many ask.
        """
        if time.monotonic() - self._was_ready < _STILL_READY:
            return
        if not self.writer.is_alive:
            raise Refused("not-ready", "nothing is written any more: start the hub again", 60)
        if (look := self._look) is None or look.done():
            look = self._look = asyncio.create_task(self.read(_revisions))
        try:
            await asyncio.wait({look}, timeout=_PATIENCE)  # which does not cancel it
            revision, newest = look.result()
        except (SQLAlchemyError, asyncio.InvalidStateError):
            raise Refused("not-ready", "the database does not answer", 5) from None
        if revision != newest:
            raise Refused(
                "not-ready",
                f"the database has revision {revision}, and this fedbo works with {newest}: start "
                "the hub again, with the newest fedbo",
                60,
            )
        self._was_ready = time.monotonic()

    def _read(self, function: Callable[[Connection], T]) -> T:
        with self.engine.connect() as connection:
            return function(connection)


def _keep(kept: OrderedDict[K, T], key: K, value: T, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)


def _revisions(connection: Connection) -> tuple[str | None, str]:
    return migrations.current(connection), migrations.NEWEST


def _agreed(connection: Connection, federation: int, epoch: int | None) -> Federation:
    if epoch is None:
        epoch = admin.find_federation(connection, federation).epoch
    return Federation.from_toml(admin.epoch_file(connection, federation, epoch).file)
