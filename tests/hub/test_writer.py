"""The writer against rules applied one by one, and what happens to a batch when something fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub.group import Group
from sqlalchemy import Connection, Engine, event, insert, text, update
from sqlalchemy.exc import IntegrityError, OperationalError

from fedbo.hub import admin, schema
from fedbo.hub.database import begin, open_database
from fedbo.hub.problems import Refused
from fedbo.hub.publishing import MOST_NAMES
from fedbo.hub.statements import Statements
from fedbo.hub.writer import Writer
from fedbo.identity import KeyPair
from fedbo.message import Message, Withdrawal
from fedbo.message.signed import MOST_AGENTS


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    started = Writer(engine)
    yield started
    started.stop()


def outcome(done: Any) -> Any:
    """What `asyncio.gather` gave: an answer, or the slug of the problem."""
    return done.slug if isinstance(done, Refused) else done


async def together(*calls: Any) -> list[Any]:
    return [outcome(done) for done in await asyncio.gather(*calls, return_exceptions=True)]


@contextlib.contextmanager
def held_up() -> Iterator[None]:
    """Keep the writer from beginning, so that everything sent meanwhile becomes one batch."""
    go = threading.Event()

    @contextlib.contextmanager
    def late(engine: Engine) -> Iterator[Connection]:
        go.wait(30)
        with begin(engine) as connection:
            yield connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbo.hub.writer.begin", late)
        yield
        go.set()


async def in_one_batch(*calls: Any) -> list[Any]:
    with held_up():
        running = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.05)
    return [outcome(done) for done in await running]


class Rules:
    """The rules of the writer for one federation, applied to one change after the other."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, str, bytes], tuple[int, int, bool, bytes]] = {}
        self.changes: list[tuple[str, str]] = []

    def publish(self, member: int, signed: Message | Withdrawal) -> bool | str:
        place = signed.epoch, signed.sender, signed.key
        _, sequence, is_out, content = self.rows.get(place, (0, -1, False, b""))
        is_message = isinstance(signed, Message)
        is_later = signed.sequence > sequence
        if is_message:
            if is_out and not is_later and content == signed.encode():
                return True
            is_taken = is_later
        else:
            is_taken = is_later or (is_out and signed.sequence == sequence)
        if not is_taken:
            return False
        own = {(s, k[1]) for k, (m, _, s, _) in self.rows.items() if m == member}
        others = {sender for is_shown, sender in own if is_shown and sender != signed.sender}
        if is_message and not is_out and len(others) >= MOST_AGENTS:
            return "too-many-agents"
        self.rows[place] = member, signed.sequence, is_message, signed.encode()
        self.changes.append(("published" if is_message else "withdrew", signed.sender))
        return is_message or is_out

    def leave(self, member: int) -> None:
        for place, (whose, sequence, is_out, content) in self.rows.items():
            if whose == member:
                self.rows[place] = 0, sequence, False, b"" if is_out else content


@pytest.mark.parametrize("seed", range(4))
def test_random_batches_end_as_the_rules_say(engine: Engine, seed: int) -> None:
    chance, rules = random.Random(seed), Rules()
    group = Group(engine, 3, signed=True)
    joined = {member.name: member for member in group.members}

    def change() -> tuple[Any, Message | Withdrawal]:
        member = chance.choice([*joined.values()])
        sender = f"{member.name}/{chance.choice('abc')}" if chance.random() < 0.7 else member.name
        make = group.withdrawal if chance.random() < 0.3 else group.message
        at = {"sender": sender, "sequence": chance.randrange(20), "epoch": chance.randrange(2)}
        return member, make(**at, key=member.key)

    async def run() -> None:
        writer = Writer(engine)
        for _ in range(25):
            batch = [change() for _ in range(chance.randrange(1, 12))]
            answers = await together(*(writer.publish(*one) for one in batch))
            assert answers == [rules.publish(member.id, signed) for member, signed in batch]
            if chance.random() < 0.2:  # a member leaves, and someone enrols with its name
                name = chance.choice([*joined])
                old = joined[name]
                await writer.submit(lambda connection, id=old.id: admin.leave(connection, id))
                rules.leave(old.id)
                row = {"federation": group.id, "name": name, "key": old.key, "seen": 0, "joined": 0}
                row["token"] = chance.randbytes(32)
                new = insert(schema.member).values(row).returning(schema.member)
                joined[name] = await writer.submit(
                    lambda connection, new=new: connection.execute(new).one()
                )
        writer.stop()

    asyncio.run(run())
    stored = group.all(schema.message, federation=group.id)
    assert {
        (row.epoch, row.sender, row.key): (row.member or 0, row.sequence, row.is_out, row.content)
        for row in stored
    } == rules.rows
    written = [row for row in group.all(schema.audit) if row.action in ("published", "withdrew")]
    assert [(row.action, row.subject) for row in written] == rules.changes
    assert all(row.federation == "liver" for row in written)
    cursors = [row.cursor for row in stored]
    assert len({*cursors}) == len(cursors) and max(cursors) <= group.cursor()


def test_every_change_takes_a_cursor_and_a_retry_none(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 2)
    member, other = group.members
    sent = group.message("m0", 3)

    async def run() -> None:
        assert await writer.publish(member, sent)
        assert await writer.publish(member, sent, sent.encode())
        assert not await writer.publish(member, group.message("m0", 2))
        assert not await writer.publish(member, group.message("m0", 3, omega=[1.0] * 8))
        assert await writer.publish(other, group.message("m1", 0))

    asyncio.run(run())
    assert [row.cursor for row in group.all(schema.message)] == [1, 2]
    assert group.cursor() == 2
    (first, second) = (row for row in group.all(schema.audit) if row.action == "published")
    assert (first.actor, first.subject) == ("m0", "m0")
    assert json.loads(first.detail) == {"sequence": 3, "bytes": len(sent.encode())}
    assert second.actor == "m1"


def test_two_messages_for_one_row_in_a_batch_are_taken_in_their_order(
    engine: Engine, writer: Writer
) -> None:
    group = Group(engine, 1, signed=True)
    (member,) = group.members
    sent = [group.message("m0", sequence, key=member.key) for sequence in (1, 2, 1, 2)]
    sent.append(group.withdrawal("m0", 2, member.key))
    answers = asyncio.run(in_one_batch(*(writer.publish(member, one) for one in sent)))
    assert answers == [True, True, False, True, True]
    (row,) = group.all(schema.message)
    assert (row.sequence, row.is_out, row.cursor) == (2, False, 3)


def test_federations_do_not_meet_in_a_batch(engine: Engine, writer: Writer) -> None:
    groups = [Group(engine, 2, name=name) for name in ("liver", "lung", "skin")]
    calls = [
        writer.publish(member, group.message(member.name, i + 1))
        for i, group in enumerate(groups)
        for member in group.members
    ]
    assert asyncio.run(in_one_batch(*calls)) == [True] * 6
    for i, group in enumerate(groups):
        assert group.out() == {name: group.message(name, i + 1).encode() for name in ("m0", "m1")}
        assert group.cursor() == 2


def test_a_token_is_checked_again_in_the_transaction(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 5, signed=True)
    left, revoked, rotated, rekeyed, fine = group.members
    with begin(engine) as connection:
        admin.leave(connection, left.id)
        admin.revoke(connection, "liver", revoked.name, actor="test")
        admin.rotate(connection, rotated.id)
    group.change(schema.member, rekeyed.id, key=bytes(32))
    calls = [
        writer.publish(member, group.message(member.name, 1, key=member.key))
        for member in group.members
    ]
    answers = asyncio.run(in_one_batch(*calls))
    assert answers == ["wrong-token", "wrong-token", "wrong-token", "wrong-key", True]
    assert [*group.out()] == [fine.name]


def test_a_member_has_a_limited_number_of_agents(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 2, signed=True)
    member, other = group.members

    def message(i: int, **more: Any) -> Message:
        return group.message(f"m0/{i}", 1, key=member.key, **more)

    async def run() -> None:
        calls = [writer.publish(member, message(i)) for i in range(MOST_AGENTS + 2)]
        answers = await in_one_batch(*calls)
        assert answers == [True] * MOST_AGENTS + ["too-many-agents"] * 2
        assert await writer.publish(member, group.message("m0/0", 2, key=member.key))
        assert await writer.publish(member, message(1, epoch=1))
        assert await writer.publish(other, group.message("m1", 1, key=other.key))
        gone = group.withdrawal("m0/0", 2, member.key)
        answers = await in_one_batch(
            writer.publish(member, gone), writer.publish(member, message(20))
        )
        assert answers == [True, True]

    asyncio.run(run())
    assert len(group.out()) == MOST_AGENTS + 1


def test_names_of_agents_are_limited_too(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 1, signed=True)
    (member,) = group.members

    async def run() -> list[Any]:
        gone = (group.withdrawal(f"m0/{i}", 1, member.key) for i in range(MOST_NAMES + 1))
        return await together(*(writer.publish(member, one) for one in gone))

    assert asyncio.run(run()) == [False] * MOST_NAMES + ["too-many-agents"]


def test_a_new_key_makes_no_room_for_more_rows(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 1)
    id = group.members[0].id

    async def fill() -> list[Any]:
        (member,) = group.all(schema.member, id=id)
        names = [f"m0/{i}" for i in range(MOST_AGENTS)]
        sent = [group.message(name, 1, key=member.key or b"") for name in names]
        return await in_one_batch(*(writer.publish(member, one) for one in sent))

    assert asyncio.run(fill()) == [True] * MOST_AGENTS
    for i in range(1, MOST_NAMES // MOST_AGENTS + 1):
        with begin(engine) as connection:
            admin.rekey(connection, id, KeyPair.generate().public)
        is_full = i * MOST_AGENTS >= MOST_NAMES
        assert asyncio.run(fill()) == ["too-many-agents" if is_full else True] * MOST_AGENTS
    assert len(group.all(schema.message)) == MOST_NAMES


def test_a_change_that_fails_breaks_no_other(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 2)
    row, member = schema.member, group.members[0]

    def rename(connection: Connection) -> str:
        connection.execute(update(row).where(row.c.id == member.id).values(name="new"))
        return "renamed"

    def spoil(connection: Connection) -> None:
        connection.execute(update(row).where(row.c.id == member.id).values(seen=7))
        raise LookupError("spoiled")

    def clash(connection: Connection) -> None:
        connection.execute(update(row).where(row.c.id == member.id).values(name="m1"))

    async def run() -> list[Any]:
        return await in_one_batch(
            writer.publish(member, group.message("m0", 1)),
            writer.submit(spoil, federation=group.id),
            writer.submit(clash),
            writer.submit(rename),
        )

    published, spoiled, clashed, renamed = asyncio.run(run())
    assert published is True and renamed == "renamed"
    assert isinstance(spoiled, LookupError) and isinstance(clashed, IntegrityError)
    assert [(one.name, one.seen) for one in group.all(row)] == [("new", 0), ("m1", 0)]
    assert [*group.out()] == ["m0"]


def test_a_message_that_the_database_refuses_spoils_no_other(
    engine: Engine, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(engine, 3)

    insert_all = Statements.insert

    def refuse(self: Statements, table: str, columns: Any, rows: Any, conflict: str = "") -> None:
        if table == "message" and any("m1" in row for row in rows):
            columns = ("nonsense", *columns[1:])
        insert_all(self, table, columns, rows, conflict)

    monkeypatch.setattr(Statements, "insert", refuse)
    calls = [writer.publish(one, group.message(one.name, 1)) for one in group.members]
    assert asyncio.run(in_one_batch(*calls)) == [True, "not-ready", True]
    assert [*group.out()] == ["m0", "m2"]
    assert group.cursor() == 2


def test_nothing_is_acknowledged_if_the_commit_fails(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 2)

    def fail(connection: Connection) -> None:
        raise OperationalError("COMMIT", {}, Exception("disk full"))

    async def run() -> list[Any]:
        calls = [writer.publish(one, group.message(one.name, 1)) for one in group.members]
        return await in_one_batch(*calls, writer.submit(lambda connection: "done"))

    event.listen(engine, "commit", fail)
    assert asyncio.run(run()) == ["not-ready"] * 3
    assert group.out() == {} and group.cursor() == 0
    event.remove(engine, "commit", fail)
    assert asyncio.run(run()) == [True, True, "done"]


def test_a_locked_database_is_a_problem_that_passes(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 1)
    (member,) = group.members
    failures = iter([OperationalError("BEGIN", {}, Exception("database is locked"))])

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        for failure in failures:
            raise failure

    async def run() -> list[Any]:
        return await together(*(writer.publish(member, group.message("m0", 1)) for _ in range(3)))

    assert asyncio.run(run()).count("not-ready") >= 1
    assert asyncio.run(run()) == [True] * 3


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_lost_connection_is_made_again(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 1)
    (member,) = group.members
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"

    def suicide(connection: Connection) -> None:
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    async def run() -> None:
        assert await writer.publish(member, group.message("m0", 1))
        with engine.connect() as connection:
            connection.execute(text(f"{kill} AND datname = current_database()"))
        assert await writer.publish(member, group.message("m0", 2))
        call = writer.publish(member, group.message("m0", 3))
        assert await in_one_batch(call, writer.submit(suicide)) == ["not-ready"] * 2
        assert await writer.publish(member, group.message("m0", 3))

    asyncio.run(run())
    assert group.cursor() == 3


def test_a_full_queue_refuses_more(engine: Engine) -> None:
    group, writer = Group(engine, 1), Writer(engine, most_waiting=4)
    calls = [writer.publish(group.members[0], group.message("m0", i)) for i in range(9)]
    answers = asyncio.run(in_one_batch(*calls))
    writer.stop()
    assert answers[:4] == [True] * 4 and "not-ready" in answers[4:]


def test_stop_writes_what_waits_and_refuses_the_rest(engine: Engine) -> None:
    group, sizes = Group(engine, 4), list[int]()
    writer = Writer(engine, committed=sizes.append)

    async def run() -> None:
        with held_up():
            waiting = [
                asyncio.ensure_future(writer.publish(one, group.message(one.name, 1)))
                for one in group.members
            ]
            writer.note_seen(group.members[0].id)
            await asyncio.sleep(0.05)
            stopping = threading.Thread(target=writer.stop)
            stopping.start()
            await asyncio.sleep(0.05)
            with pytest.raises(Refused, match="about to stop"):
                await writer.submit(lambda connection: None)
        assert await asyncio.gather(*waiting) == [True] * 4
        await asyncio.to_thread(stopping.join)

    asyncio.run(run())
    assert sum(sizes) == 4 and len(group.out()) == 4
    assert [member.seen > 0 for member in group.all(schema.member)] == [True] + [False] * 3
    writer.stop()


def test_a_caller_that_has_gone_does_not_disturb_others(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 2)
    first, second = group.members

    async def run() -> bool:
        with held_up():
            gone = asyncio.ensure_future(writer.publish(first, group.message("m0", 1)))
            stays = asyncio.ensure_future(writer.publish(second, group.message("m1", 1)))
            await asyncio.sleep(0.05)
            gone.cancel()
        return await stays

    assert asyncio.run(run())
    assert [*group.out()] == ["m0", "m1"]


def test_members_are_seen_at_most_once_a_minute(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, now = Group(engine, 2), [1000.0]
    first, second = (member.id for member in group.members)
    monkeypatch.setattr("fedbo.hub.writer.time.time", lambda: now[0])

    def seen(*notes: tuple[int, float]) -> list[float]:
        writer = Writer(engine)
        for member, now[0] in notes:
            writer.note_seen(member)
        writer.stop()
        return [member.seen for member in group.all(schema.member)]

    assert seen((first, 1000.0), (first, 1059.0), (second, 1030.0)) == [1000.0, 1030.0]
    assert seen((first, 2000.0), (first, 2060.0)) == [2060.0, 1030.0]


PROCESS = """
import asyncio, sys
from hub.group import Group
from sqlalchemy import select
from fedbo.hub import schema
from fedbo.hub.database import open_database
from fedbo.hub.publishing import MOST_NAMES
from fedbo.hub.statements import Statements
from fedbo.hub.writer import Writer

engine = open_database(sys.argv[1])
mine, step = sys.argv[2], int(sys.argv[3])
group = Group.__new__(Group)
with engine.connect() as connection:
    members = {row.name: row for row in connection.execute(select(schema.member))}

async def publish(writer, name, sequences):
    return [await writer.publish(members[name], group.message(name, i)) for i in sequences]

async def run():
    writer = Writer(engine)
    print("ready", flush=True)
    sys.stdin.readline()
    own, _ = await asyncio.gather(
        publish(writer, mine, range(60)), publish(writer, "shared", range(step, 120, 2))
    )
    assert all(own), own
    writer.stop()

asyncio.run(run())
"""


def test_two_processes_write_at_once(engine: Engine, database_url: str) -> None:
    group = Group(engine, 2)
    row = {"federation": group.id, "name": "shared", "token": b"s", "joined": 0, "seen": 0}
    with begin(engine) as connection:
        connection.execute(insert(schema.member).values(row))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, database_url, f"m{i}", str(i)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for i in range(2)
    ]
    for process in running:
        assert process.stdout and process.stdout.readline() == b"ready\n"
    for process in running:
        process.communicate(b"\n", timeout=120)
        assert process.returncode == 0
    rows = {row.sender: row.sequence for row in group.all(schema.message)}
    assert rows == {"m0": 59, "m1": 59, "shared": 119}
    published = Counter(row.subject for row in group.all(schema.audit) if row.action == "published")
    assert published["m0"] == published["m1"] == 60
    assert group.cursor() == published.total()


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """SQLite then undoes the whole transaction, whichever change of it failed."""
    engine = open_database(f"sqlite:///{tmp_path}/hub.db")
    group = Group(engine, 1)

    def fill(connection: Connection) -> None:
        (pages,) = connection.exec_driver_sql("PRAGMA page_count").one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 1}")
        try:
            connection.execute(insert(schema.epoch), [_long_epoch(group.id, i) for i in range(99)])
        finally:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")

    async def publish_and_fill() -> list[Any]:
        writer = Writer(engine)
        try:
            message = group.message("m0", 1)
            return await in_one_batch(
                writer.publish(group.members[0], message), writer.submit(fill)
            )
        finally:
            writer.stop()

    published, filled = asyncio.run(publish_and_fill())
    assert filled == "not-ready"
    assert published is True and group.out().keys() == {"m0"}
    engine.dispose()


def _long_epoch(federation: int, number: int) -> dict[str, Any]:
    return {
        "federation": federation,
        "number": 1 + number,
        "fingerprint": bytes(16),
        "file": "x" * 10_000,
        "created": 0.0,
    }
