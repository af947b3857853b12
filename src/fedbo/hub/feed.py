"""What agents fetch: messages in memory, updated from the database.

A fetch sees everything that was committed before it arrived, by any process: it waits for a look
at the database that begins after its arrival. All that wait share one look, which reads only what
has changed since the last one.

In a federation with a privacy plan, its latest release is what agents fetch. Contributions are not
even read here.

A look at PostgreSQL waits for an answer, so a thread does it. A SQLite file is in the memory of
this machine already: reading a few rows of it takes less time than the way to a thread and back.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

from sqlalchemy import Engine, bindparam, literal, null, select, true
from sqlalchemy.exc import SQLAlchemyError

from fedbo.exchange.hub.wire import MOST_PEERS, News, Wanted
from fedbo.hub import schema
from fedbo.hub.problems import Refused, no_database
from fedbo.hub.shelf import Head, Row, Shelf

#: Bytes that all messages in memory may take.
MOST_BYTES = 1 << 30

_PAGE = 1000  # rows that are read at once
_FEW = 200  # changes that are handled without a thread
_THREADS = 2  # that look at the database

_RELEASE = 1  # the number of the latest release, which takes the place of the one before
_hub, _federation, _message = schema.hub.c, schema.federation.c, schema.message.c
_release = schema.release.c
_HEAD = select(
    select(_hub.generation).where(_hub.id == 1).scalar_subquery(),
    _federation.cursor,
    _federation.floor,
    _federation.epoch,
    _federation.is_private,
).where(_federation.id == bindparam("federation"))
_EPOCH = select(schema.epoch.c.id).where(
    schema.epoch.c.federation == bindparam("federation"),
    schema.epoch.c.number == bindparam("epoch"),
)
_CHANGED = (
    select(
        _message.id,
        _message.cursor,
        _message.is_out,
        _message.member,
        _message.sender,
        _message.content,
    )
    .where(
        _message.federation == bindparam("federation"),
        _message.epoch == bindparam("epoch"),
        _message.cursor > bindparam("since"),
    )
    .order_by(_message.cursor)
    .limit(_PAGE)
)
_RELEASED = (
    select(literal(_RELEASE), _release.cursor, true(), null(), literal(""), _release.content)
    .where(
        _release.federation == bindparam("federation"),
        _release.epoch == bindparam("epoch"),
        _release.cursor > bindparam("since"),
        _release.content.is_not(None),
    )
    .order_by(_release.sequence.desc())
    .limit(1)
)

_HEAD_OF_FILE = (
    'SELECT (SELECT generation FROM hub WHERE id = 1), "cursor", floor, epoch, is_private '
    "FROM federation WHERE id = ?"
)
_CHANGED_IN_FILE = (
    'SELECT id, "cursor", is_out, member, sender, content FROM message '
    'WHERE federation = ? AND epoch = ? AND "cursor" > ? ORDER BY "cursor"'
)
_RELEASED_IN_FILE = (
    f'SELECT {_RELEASE}, "cursor", 1, NULL, \'\', content FROM "release" '
    'WHERE federation = ? AND epoch = ? AND "cursor" > ? AND content IS NOT NULL '
    "ORDER BY sequence DESC LIMIT 1"
)


class Feeds:
    """The messages of all federations, as agents fetch them. It belongs to one event loop.

    Args:
        engine: What `open_database` returned.
        most_peers: How many messages one agent gets at most.
        most_bytes: How many bytes of memory all messages may take. The federations that were not
            asked for for the longest time are dropped, and read again when they are needed.
    """

    def __init__(
        self, engine: Engine, *, most_peers: int = MOST_PEERS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._engine, self._most_peers, self._most_bytes = engine, most_peers, most_bytes
        self._feeds: OrderedDict[tuple[int, int], _Feed] = OrderedDict()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fedbo-feed")
        self._file = _File(engine) if engine.dialect.name == "sqlite" else None
        self.nbytes = 0  #: how many bytes of memory their messages take, about

    def __len__(self) -> int:
        """How many federations, each in one epoch, are in memory."""
        return len(self._feeds)

    async def news(self, federation: int, member: int, wanted: Wanted) -> News:
        """Return what has changed for an agent since it last asked.

        Args:
            federation: The id of the federation.
            member: The id of the agent's member.
            wanted: What it asks for.

        Raises:
            Refused: If the federation has no such epoch, or if the database does not answer.
        """
        place = federation, wanted.epoch
        feed = self._feeds.get(place)
        if feed is None:
            feed = _Feed(self._engine, self._threads, self._file, *place)
            self._feeds[place] = feed
        self._feeds.move_to_end(place)
        try:
            shelf = await feed.latest()
        except Refused as refused:
            if refused.slug != "not-ready" and self._feeds.pop(place, None) is not None:
                self.nbytes -= feed.nbytes
            raise
        self._measure(place, feed)
        return shelf.news(member, wanted, self._most_peers)

    def stop(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._file is not None:
            self._file.close()

    def _measure(self, place: tuple[int, int], feed: _Feed) -> None:
        """Count the memory that a feed takes now, and drop others if it is too much."""
        if self._feeds.get(place) is feed:
            self.nbytes += feed.shelf.nbytes - feed.nbytes
            feed.nbytes = feed.shelf.nbytes
        while self.nbytes > self._most_bytes and len(self._feeds) > 1:
            _, dropped = self._feeds.popitem(last=False)
            self.nbytes -= dropped.nbytes


class _Page(NamedTuple):
    """What one look at the database found."""

    head: Head
    rows: Sequence[Row]
    is_last: bool


class _File:
    """A SQLite file that is read by the thread of the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: sqlite3.Connection | None = None

    def read(self, federation: int, epoch: int, known: Head) -> _Page | None:
        """Return what has changed; None if that is much, or if the file is not free."""
        try:
            execute = self._opened().execute
            found = execute(_HEAD_OF_FILE, (federation,)).fetchone()
            if found is None:
                return None
            *head_of, is_private = found
            head = Head._make(head_of)
            behind = head.cursor - known.cursor
            if head.generation != known.generation or not 0 <= behind <= _FEW:
                return None
            if behind == 0:
                return _Page(head, (), True)
            query = _RELEASED_IN_FILE if is_private else _CHANGED_IN_FILE
            rows = execute(query, (federation, epoch, known.cursor)).fetchall()
            return _Page(head, [Row._make(row) for row in rows], True)
        except sqlite3.Error:
            return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            proxy = self._engine.raw_connection()
            opened: Any = proxy.driver_connection
            proxy.detach()
            opened.execute("PRAGMA busy_timeout = 0")  # the event loop must not wait
            self._connection = opened
        return cast(sqlite3.Connection, self._connection)


class _Feed:
    """Keeps the messages of one federation and epoch up to date."""

    def __init__(
        self,
        engine: Engine,
        threads: ThreadPoolExecutor,
        file: _File | None,
        federation: int,
        epoch: int,
    ) -> None:
        self.shelf = Shelf()
        self.nbytes = 0  # that were counted last
        self._engine, self._threads, self._file = engine, threads, file
        self._place = {"federation": federation, "epoch": epoch}
        self._waiting: list[asyncio.Future[Shelf]] = []
        self._looking: asyncio.Task[None] | None = None

    async def latest(self) -> Shelf:
        """Return the messages after a look at the database that begins now or later."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Shelf] = loop.create_future()
        self._waiting.append(waiting)
        if self._looking is None:
            self._looking = loop.create_task(self._look_for_all())
        return await waiting

    async def _look_for_all(self) -> None:
        while self._waiting:
            answered, self._waiting = self._waiting, []
            fault: Exception | None = None
            try:
                await self._look()
            except Exception as error:
                fault = error
            for waiting in answered:
                if waiting.done():  # whoever waited has gone
                    continue
                if fault is None:
                    waiting.set_result(self.shelf)
                else:
                    waiting.set_exception(_refused(fault))
        self._looking = None

    async def _look(self) -> None:
        run, threads = asyncio.get_running_loop().run_in_executor, self._threads
        is_last = False
        while not is_last:
            page = self._peek()
            if page is None:
                page = await run(threads, self._read, self.shelf.head)
            if page.head.generation != self.shelf.head.generation:
                self.shelf = Shelf()
            if page.rows:
                self.shelf.put(page.rows)
            reached = page.rows[-1].cursor if page.rows else 0
            is_last = page.is_last
            if is_last:
                reached = max(reached, page.head.cursor)
            self.shelf.head = page.head._replace(cursor=reached)

    def _peek(self) -> _Page | None:
        """Look at the database without a thread; return None if that does not do."""
        if self._file is None or not self.shelf.head.generation:
            return None
        return self._file.read(**self._place, known=self.shelf.head)

    def _read(self, known: Head) -> _Page:
        with self._engine.connect() as connection:
            found = connection.execute(_HEAD, self._place).one_or_none()
            if found is None:
                raise Refused("no-such-federation", "the federation does not exist any more")
            *head_of, is_private = found
            head = Head._make(head_of)
            if not known.generation and connection.execute(_EPOCH, self._place).first() is None:
                raise Refused(
                    "wrong-epoch",
                    f"epoch {self._place['epoch']} was asked for, but the federation is in epoch "
                    f"{head.epoch}, and has had no such epoch",
                )
            since = known.cursor if head.generation == known.generation else -1
            if since == head.cursor:
                return _Page(head, (), True)
            query = _RELEASED if is_private else _CHANGED
            changed = connection.execute(query, {**self._place, "since": since})
            rows = [Row._make(row) for row in changed]
            return _Page(head, rows, len(rows) < _PAGE)


def _refused(error: Exception) -> Exception:
    if isinstance(error, Refused):
        return Refused(error.slug, error.detail, error.retry_after)
    if not isinstance(error, SQLAlchemyError):
        return error
    refused = no_database()
    refused.__cause__ = error
    return refused
