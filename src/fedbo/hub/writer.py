"""The one way into the database of a running hub: everything that waits is committed at once.

A commit waits for the disk, which takes longer than everything else. So a thread collects what
arrives meanwhile and writes it in one transaction; each caller gets its answer after the commit.

What becomes of a message depends on the row of its federation, epoch, sender and key:

======================  ==========================================================
the row                 a message is handed out if
======================  ==========================================================
there is none           always
has a message           its sequence is larger; the same message again is a retry
has a withdrawal        its sequence is larger
is empty                always: the message was deleted, or its member has left
======================  ==========================================================
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, Engine, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from fedbo.hub import schema
from fedbo.hub.database import begin
from fedbo.hub.problems import Refused
from fedbo.message import Message, Withdrawal

T = TypeVar("T")

#: How many agents of one member may have a message at the hub.
MOST_AGENTS = 16
#: How many names its agents may have had, withdrawn messages included.
MOST_NAMES = 256
#: How many changes may wait for a commit.
MOST_WAITING = 4096

_BATCH = 512  # changes in one transaction
_SEEN_EVERY = 60.0  # seconds between two notes that a member was seen
_IDLE = 5.0  # seconds after which such notes are written though nothing else is


class Member(Protocol):
    """Who publishes, as the request was authenticated: a row of the table of members."""

    @property
    def id(self) -> int: ...
    @property
    def federation(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def token(self) -> bytes | None: ...


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
        self._is_stopped = False
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
        return bool(await self._put(_Publication(_future(), member, signed, data)))

    async def submit(self, function: Callable[[Connection], T], federation: int | None = None) -> T:
        """Run any other change, and return what the function returned when it is on the disk.

        The function shares a transaction with others. If it raises an exception, its own changes
        are undone.

        Args:
            function: What changes the database. It must not change anything else.
            federation: The id of the federation whose row it locks.
        """
        answer: T = await self._put(_Call(_future(), function, federation))
        return answer

    def note_seen(self, member: int) -> None:
        """Note that a member was here; at most once a minute this is written.

        Args:
            member: The id of the member.
        """
        now = time.time()
        if now - self._seen.get(member, 0.0) >= _SEEN_EVERY:
            self._seen[member] = self._unwritten[member] = now

    def stop(self) -> None:
        """Write everything that waits, and end the thread; what comes later is refused."""
        self._is_stopped = True
        self._waiting.put(None)
        self._thread.join()

    async def _put(self, change: _Change) -> Any:
        if self._is_stopped:
            raise Refused("not-ready", "the hub is about to stop; try again soon", 1)
        if self._waiting.qsize() >= self._most:
            raise Refused("not-ready", f"{self._most:,} changes wait; try again soon", 1)
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
        try:
            with begin(self._engine) as connection:
                is_begun = True
                self._collect(batch)
                answers = _apply(connection, batch)
        except Exception as error:
            if answers is None and is_begun and len(batch) > 1 and not _is_lost(error):
                self._commit_each(batch)
                return
            if not is_begun:
                self._collect(batch)
            answers = [(None, _unavailable(error)) for _ in batch]
        self._answer(batch, answers)

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
        self._committed(len(batch))
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Future, _Answer]]] = defaultdict(list)
        for change, answer in zip(batch, answers, strict=True):
            by_loop[change.future.get_loop()].append((change.future, answer))
        for loop, settled in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, settled)

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


class _Publication(NamedTuple):
    future: _Future
    member: Member
    signed: Message | Withdrawal
    content: bytes

    @property
    def place(self) -> _Place:
        signed = self.signed
        return _Place(self.member.federation, signed.epoch, signed.sender, signed.key)


class _Call(NamedTuple):
    future: _Future
    function: Callable[[Connection], Any]
    federation: int | None


_Change = _Publication | _Call


class _Place(NamedTuple):
    """What identifies a row of the table of messages."""

    federation: int
    epoch: int
    sender: str
    key: bytes


class _Row(NamedTuple):
    """What the table of messages has in a place."""

    member: int | None
    sequence: int
    is_out: bool
    content: bytes


_EMPTY = _Row(None, -1, False, b"")

_federation, _member, _message = schema.federation.c, schema.member.c, schema.message.c
_LOCK = (
    select(_federation.id, _federation.name, _federation.cursor)
    .where(_federation.id.in_(bindparam("federations", expanding=True)))
    .order_by(_federation.id)
    .with_for_update()
)
_MEMBERS = select(_member.id, _member.token, _member.key).where(
    _member.id.in_(bindparam("members", expanding=True))
)
_ROWS = select(
    _message.federation,
    _message.epoch,
    _message.sender,
    _message.key,
    _message.member,
    _message.sequence,
    _message.is_out,
    _message.content,
).where(
    _message.federation == bindparam("federation"),
    _message.epoch.in_(bindparam("epochs", expanding=True)),
    _message.sender.in_(bindparam("senders", expanding=True)),
)
_NAMES = select(_message.member, _message.sender, _message.is_out).where(
    _message.member.in_(bindparam("members", expanding=True))
)
_ADVANCE = (
    update(schema.federation)
    .where(_federation.id == bindparam("of"))
    .values(cursor=bindparam("to"))
)
_AUDIT = insert(schema.audit)
_SEEN = update(schema.member).where(_member.id == bindparam("of")).values(seen=bindparam("at"))


def _upsert(insert: Any) -> Any:
    new = insert(schema.message)
    unique = ("federation", "epoch", "sender", "key")
    changed = ("member", "sequence", "t_n", "is_out", "content", "cursor", "changed")
    return new.on_conflict_do_update(
        index_elements=unique, set_={name: new.excluded[name] for name in changed}
    )


_UPSERT = {"sqlite": _upsert(sqlite.insert), "postgresql": _upsert(postgresql.insert)}


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
        refused = Refused("not-ready", "the database does not answer; try again soon", 1)
        refused.__cause__ = error
        return refused
    return error


def _apply(connection: Connection, batch: Sequence[_Change]) -> list[_Answer]:
    """Make the changes of a batch, and return what to answer if they are committed."""
    publications = [one for one in batch if isinstance(one, _Publication)]
    calls = [one for one in batch if isinstance(one, _Call)]
    touched = {one.member.federation for one in publications}
    touched |= {one.federation for one in calls if one.federation is not None}
    locked = {}
    if touched:
        found = connection.execute(_LOCK, {"federations": sorted(touched)})
        locked = {row.id: row for row in found}
    published = iter(_Publishing(connection, locked, publications).answers())
    called = iter([_call(connection, one.function) for one in calls])
    return [next(published if isinstance(one, _Publication) else called) for one in batch]


def _call(connection: Connection, function: Callable[[Connection], Any]) -> _Answer:
    try:
        with connection.begin_nested():
            return function(connection), None
    except Exception as error:
        if _is_lost(error):
            raise
        return None, error


class _Publishing:
    """Decides about the messages and withdrawals of one transaction, in their order."""

    def __init__(
        self, connection: Connection, locked: dict[int, Any], given: Sequence[_Publication]
    ) -> None:
        self._connection, self._given = connection, given
        self._names = {id: row.name for id, row in locked.items()}
        self._cursors = {id: row.cursor for id, row in locked.items()}
        self._now = time.time()
        self._changed: dict[_Place, dict[str, Any]] = {}
        self._audit: list[dict[str, Any]] = []
        self._agents: dict[int, dict[str, int]] | None = None  # messages of each of their agents

    def answers(self) -> list[_Answer]:
        if not self._given:
            return []
        ids = sorted({one.member.id for one in self._given})
        members = self._connection.execute(_MEMBERS, {"members": ids})
        self._members = {row.id: row for row in members}
        self._stored = self._read_rows()
        self._rows = {**self._stored}
        answers = [self._answer(one) for one in self._given]
        if self._changed:
            execute = self._connection.execute
            execute(_UPSERT[self._connection.dialect.name], [*self._changed.values()])
            execute(_AUDIT, self._audit)
            execute(_ADVANCE, [{"of": id, "to": to} for id, to in self._cursors.items()])
        return answers

    def _read_rows(self) -> dict[_Place, _Row]:
        wanted: dict[int, list[_Place]] = defaultdict(list)
        for one in self._given:
            wanted[one.member.federation].append(one.place)
        rows: dict[_Place, _Row] = {}
        for federation, places in wanted.items():
            found = self._connection.execute(
                _ROWS,
                {
                    "federation": federation,
                    "epochs": sorted({place.epoch for place in places}),
                    "senders": sorted({place.sender for place in places}),
                },
            )
            rows |= {_Place._make(row[:4]): _Row._make(row[4:]) for row in found}
        return rows

    def _answer(self, one: _Publication) -> _Answer:
        try:
            self._check_member(one)
            return self._publish(one), None
        except Refused as refused:
            return None, refused

    def _check_member(self, one: _Publication) -> None:
        """Check again, under the lock, what authenticated the request."""
        member = self._members.get(one.member.id)
        if member is None or member.token is None or member.token != one.member.token:
            raise Refused("wrong-token", "the token was revoked or replaced meanwhile")
        if (member.key or b"") != one.signed.key:
            raise Refused("wrong-key", f"the key of {one.member.name!r} was replaced meanwhile")

    def _publish(self, one: _Publication) -> bool:
        row = self._rows.get(one.place, _EMPTY)
        sequence, is_message = one.signed.sequence, isinstance(one.signed, Message)
        if row.content and sequence <= row.sequence:
            if is_message:
                return row.is_out and row.content == one.content
            if not row.is_out or sequence < row.sequence:
                return False
        self._check_agents(one)
        self._change(one)
        return is_message or row.is_out

    def _check_agents(self, one: _Publication) -> None:
        """Check that the member does not have too many agents."""
        row, member, sender = self._rows.get(one.place), one.member.id, one.signed.sender
        if row is not None and row.is_out:
            return
        if self._agents is None:
            self._agents = self._read_agents()
        agents = self._agents[member]
        if isinstance(one.signed, Message):
            others = sum(1 for name, out in agents.items() if out and name != sender)
            if others >= MOST_AGENTS:
                raise Refused(
                    "too-many-agents",
                    f"{one.member.name!r} has {others} agents with a message here, expected at "
                    f"most {MOST_AGENTS}: withdraw one, or publish under one of their names",
                )
        if len(agents.keys() - {sender}) >= MOST_NAMES:
            raise Refused(
                "too-many-agents",
                f"the agents of {one.member.name!r} have had {MOST_NAMES} names here, and cannot "
                "have more: publish under one of these names",
            )

    def _read_agents(self) -> dict[int, dict[str, int]]:
        """Return how many messages are out of each agent of the members, by name."""
        agents: dict[int, dict[str, int]] = {id: {} for id in self._members}
        found = self._connection.execute(_NAMES, {"members": sorted(agents)})
        for id, name, is_out in found:
            agents[id][name] = agents[id].get(name, 0) + is_out
        for place, change in self._changed.items():  # not in the database yet
            own, was_out = agents[change["member"]], self._stored.get(place, _EMPTY).is_out
            own[place.sender] = own.get(place.sender, 0) + change["is_out"] - was_out
        return agents

    def _change(self, one: _Publication) -> None:
        signed, place = one.signed, one.place
        is_out = isinstance(signed, Message)
        t_n = signed.t_n if isinstance(signed, Message) else 0
        self._cursors[place.federation] += 1
        was_out = self._rows.get(place, _EMPTY).is_out
        self._rows[place] = _Row(one.member.id, signed.sequence, is_out, one.content)
        if self._agents is not None:
            agents = self._agents[one.member.id]
            agents[place.sender] = agents.get(place.sender, 0) + is_out - was_out
        self._changed[place] = {
            **place._asdict(),
            "member": one.member.id,
            "sequence": signed.sequence,
            "t_n": t_n,
            "is_out": is_out,
            "content": one.content,
            "cursor": self._cursors[place.federation],
            "changed": self._now,
        }
        self._audit.append(
            {
                "time": self._now,
                "federation": self._names[place.federation],
                "actor": one.member.name,
                "action": "published" if is_out else "withdrew",
                "subject": place.sender,
                "detail": f'{{"sequence": {signed.sequence}, "bytes": {len(one.content)}}}',
            }
        )
