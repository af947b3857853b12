"""The one way into the database of a running hub: everything that waits is committed at once.

A commit waits for the disk, which takes longer than everything else. So a thread collects what
arrives meanwhile and writes it in one transaction; each caller gets its answer after the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, bindparam, update
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from fedbo.hub import schema
from fedbo.hub.checkpoints import Checkpoints
from fedbo.hub.database import begin
from fedbo.hub.problems import Refused, no_database
from fedbo.hub.publishing import Member, Publication, Publishing, lock
from fedbo.message import Message, Withdrawal

T = TypeVar("T")

#: How many changes may wait for a commit.
MOST_WAITING = 4096

_BATCH = 512  # changes in one transaction
_SEEN_EVERY = 60.0  # seconds between two notes that a member was seen
_PAUSE, _PAUSES = 0.001, 4  # seconds, and how often, to wait for more if many changes arrive
_IDLE = 5.0  # seconds after which such notes are written though nothing else is


class Writer:
    """Writes to the database from a thread of its own.

    Args:
        engine: What `open_database` returned.
        most_waiting: How many changes may wait; more are refused.
        committed: Called in the thread with the number of changes after each commit.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        most_waiting: int = MOST_WAITING,
        committed: Callable[[int], None] = lambda changes: None,
    ) -> None:
        self._engine = engine
        self._most = most_waiting
        self._committed = committed
        self._waiting: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._seen: dict[int, float] = {}  # when each member was last noted
        self._unwritten: dict[int, float] = {}
        self._is_stopped = self._is_busy = False
        is_file = engine.dialect.name == "sqlite"
        self._checkpoints = Checkpoints(engine) if is_file else None
        self._thread = threading.Thread(target=self._run, name="fedbo-writer", daemon=True)
        self._thread.start()

    async def publish(
        self, member: Member, signed: Message | Withdrawal, content: bytes | None = None
    ) -> bool:
        """Store a message or a withdrawal that was checked, and return when it is on the disk.

        Args:
            member: Whose agent sent it.
            signed: What it sent.
            content: ``signed.encode()``, if that is known.

        Returns:
            For a message, whether the hub now hands out exactly this message. For a withdrawal,
            whether it ended that a message was handed out.

        Raises:
            Refused: If the member's token is not valid any more, if it has too many agents, or if
                the database does not answer. Nothing was changed.
        """
        data = signed.encode() if content is None else content
        given = Publication.of(member, signed, data)
        return bool(await self._put(_Change(_future(), given, member.federation)))

    async def submit(self, function: Callable[[Connection], T], federation: int | None = None) -> T:
        """Run any other change, and return what the function returned when it is on the disk.

        The function shares a transaction with others. If it raises an exception, its own changes
        are undone.

        Args:
            function: What changes the database. It must not change anything else.
            federation: The id of the federation whose row it locks.
        """
        answer: T = await self._put(_Change(_future(), function, federation))
        return answer

    def note_seen(self, member: int) -> None:
        """Note that a member was here; at most once a minute this is written.

        Args:
            member: The id of the member.
        """
        now = time.time()
        if now - self._seen.get(member, 0.0) >= _SEEN_EVERY:
            self._seen[member] = self._unwritten[member] = now

    @property
    def is_alive(self) -> bool:
        """Whether changes are still written."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Write everything that waits, and end the thread; what comes later is refused."""
        self._is_stopped = True
        self._waiting.put(None)
        self._thread.join()
        if self._checkpoints is not None:
            self._checkpoints.stop()

    async def _put(self, change: _Change) -> Any:
        if self._is_stopped:
            raise Refused("not-ready", "the hub is about to stop; try again soon", 1)
        if self._waiting.qsize() >= self._most:
            waiting = f"{self._most:,} changes are waiting to be written; try again soon"
            raise Refused("not-ready", waiting, 1)
        self._waiting.put(change)
        return await change.future

    def _run(self) -> None:
        written = time.monotonic()
        while True:
            try:
                first = self._waiting.get(timeout=_IDLE)
            except queue.Empty:
                first = None
            is_last = self._is_stopped and first is None
            if first is not None:
                self._commit(first)
            if self._unwritten and (is_last or time.monotonic() - written >= _IDLE):
                self._write_seen()
                written = time.monotonic()
            if is_last and self._waiting.empty():
                return

    def _commit(self, first: _Change) -> None:
        """Write this change and what else waits when it is this thread's turn to write."""
        batch, is_begun, answers = [first], False, None
        if self._is_busy:
            self._gather()
        try:
            with begin(self._engine) as connection:
                is_begun = True
                self._collect(batch)
                self._is_busy = len(batch) > 1
                answers = _apply(connection, batch)
        except Exception as error:
            if answers is None and is_begun and len(batch) > 1 and not _is_lost(error):
                self._commit_each(batch)
                return
            if not is_begun:
                self._collect(batch)
            answers = [(None, _unavailable(error)) for _ in batch]
        self._answer(batch, answers)

    def _gather(self) -> None:
        """Wait while more changes arrive, for a moment: a commit costs as much as many of them."""
        for _ in range(_PAUSES):
            before = self._waiting.qsize()
            time.sleep(_PAUSE)
            if self._waiting.qsize() == before:
                return

    def _commit_each(self, batch: Sequence[_Change]) -> None:
        """Write changes one by one, because one of them has spoiled it for the others."""
        for change in batch:
            try:
                with begin(self._engine) as connection:
                    answers = _apply(connection, [change])
            except Exception as error:
                answers = [(None, _unavailable(error))]
            self._answer([change], answers)

    def _collect(self, batch: list[_Change]) -> None:
        while len(batch) < _BATCH:
            try:
                change = self._waiting.get_nowait()
            except queue.Empty:
                return
            if change is None:
                self._waiting.put(None)
                return
            batch.append(change)

    def _answer(self, batch: Sequence[_Change], answers: Sequence[_Answer]) -> None:
        if self._checkpoints is not None:
            self._checkpoints.note()
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Future, _Answer]]] = defaultdict(list)
        for change, answer in zip(batch, answers, strict=True):
            by_loop[change.future.get_loop()].append((change.future, answer))
        for loop, settled in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_settle, settled)
        with contextlib.suppress(Exception):  # metrics must not stop the hub
            self._committed(len(batch))

    def _write_seen(self) -> None:
        """Write when members were seen, in a transaction that waits for nothing else."""
        noted = sorted(self._unwritten.popitem() for _ in range(len(self._unwritten)))
        try:
            with begin(self._engine) as connection:
                connection.execute(_SEEN, [{"of": one, "at": when} for one, when in noted])
        except SQLAlchemyError:  # members are seen again
            for one, _ in noted:
                self._seen.pop(one, None)


_Future = asyncio.Future[Any]
_Answer = tuple[Any, BaseException | None]


class _Change(NamedTuple):
    """What waits: a message or withdrawal, or a function; and the federation that it concerns."""

    future: _Future
    what: Publication | Callable[[Connection], Any]
    federation: int | None


_SEEN = (
    update(schema.member).where(schema.member.c.id == bindparam("of")).values(seen=bindparam("at"))
)


def _future() -> _Future:
    return asyncio.get_running_loop().create_future()


def _settle(settled: Iterable[tuple[_Future, _Answer]]) -> None:
    for future, (result, error) in settled:
        if future.done():  # whoever waited has gone
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _is_lost(error: BaseException) -> bool:
    """Whether the connection to the database is lost."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _unavailable(error: BaseException) -> BaseException:
    if isinstance(error, SQLAlchemyError):
        refused = no_database()
        refused.__cause__ = error
        return refused
    return error


def _apply(connection: Connection, batch: Sequence[_Change]) -> list[_Answer]:
    """Make the changes of a batch, and return what to answer if they are committed."""
    given = [one.what for one in batch if isinstance(one.what, Publication)]
    calls = [one.what for one in batch if not isinstance(one.what, Publication)]
    locked = lock(connection, {one.federation for one in batch if one.federation is not None})
    published = iter(Publishing(connection, locked).answers(given)) if given else iter(())
    called = iter([_call(connection, function) for function in calls])
    return [next(published if isinstance(one.what, Publication) else called) for one in batch]


def _call(connection: Connection, function: Callable[[Connection], Any]) -> _Answer:
    try:
        with connection.begin_nested():
            return function(connection), None
    except IntegrityError as error:
        return None, error
    except SQLAlchemyError:
        raise  # a full disk, for example, undoes the whole transaction, not only this change
    except Exception as error:
        return None, error
