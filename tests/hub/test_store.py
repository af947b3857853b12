"""What a hub stores, on SQLite and PostgreSQL: how it is opened, who takes part, what is logged."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contracts.hub_rows import (
    ACTOR,
    AGREED,
    GIVEN,
    all_rows,
    caller,
    fill,
    message,
    publish,
)
from sqlalchemy import Connection, Engine, inspect, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.proof import hashed
from fedbo.federation import Federation
from fedbo.hub import store
from fedbo.hub.names import check_member
from fedbo.hub.problems import Refused
from fedbo.hub.store import HubError, begin, open_database, schema, unusable
from fedbo.space import Float
from fedbo.testing.keys import keys_of, new_keys
from fedbo.trust import KeyPair

OPEN = "import sys; from fedbo.hub.store import open_database; open_database(sys.argv[1]).dispose()"
KEYS = KeyPair.generate()


# The database


def test_a_new_database_gets_its_tables_and_keeps_what_is_in_them(database_url: str) -> None:
    first = open_database(database_url)
    assert {*inspect(first).get_table_names()} == {*schema.metadata.tables, "alembic_version"}
    before = all_rows(first)
    again = open_database(database_url, must_exist=True)
    assert all_rows(again) == before
    first.dispose()
    again.dispose()


def test_numbers_of_deleted_rows_are_not_given_again(engine: Engine) -> None:
    numbers, secret = [], ""
    for _ in range(2):
        with begin(engine) as connection:
            secret = liver(connection) if not numbers else secret
            store.enrol(connection, secret, "anna", KEYS.public)
            numbers.append(store.members(connection, "liver").rows[0].id)
            store.remove(connection, "liver", "anna", actor=ACTOR)
    assert numbers[1] > numbers[0]


def test_several_processes_open_a_new_database_at_once(database_url: str) -> None:
    command = [sys.executable, "-c", OPEN, database_url]
    for process in [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    engine = open_database(database_url)
    assert len(all_rows(engine)["hub"]) == 1
    engine.dispose()


def test_a_database_of_another_program_is_refused(database_url: str) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        connection.execute(text("DROP TABLE hub"))
    engine.dispose()
    with pytest.raises(HubError, match="tables of another program"):
        open_database(database_url)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("nothing but notes\n" * 100)
    with pytest.raises(HubError, match="is not a database"):
        open_database(f"sqlite:///{file}")
    assert file.read_text() == "nothing but notes\n" * 100


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////no/such/folder/hub.db",
        "sqlite:////dev/null",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:a?uri=true",
        "mysql://a:secret@b/c",
        "hub.db",
        "postgresql://a:secret@b:port/c",
        "postgresql+psycopg://me:secret@127.0.0.1:1/x?password=secret",
    ],
)
def test_what_cannot_be_opened_is_explained_without_the_password(url: str) -> None:
    with pytest.raises(HubError) as caught:
        open_database(url)
    assert "secret" not in str(caught.value)


def test_sqlite_commits_are_durable_and_only_this_user_can_read_them(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/hub.db")
    with begin(engine) as connection:
        connection.execute(update(schema.hub).values(created=0.0))
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    with engine.connect() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
    assert values == ["wal", 2, 1]
    engine.dispose()


def test_a_database_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "hub.db"
    open_database(f"sqlite:///{file}").dispose()
    for mode in (0o660, 0o602):
        file.chmod(mode)
        with pytest.raises(HubError, match=f"other users can write to .*mode is {mode:o}.*chmod"):
            open_database(f"sqlite:///{file}")
    file.chmod(0o644)
    open_database(f"sqlite:///{file}").dispose()


def test_errors_never_show_values(engine: Engine) -> None:
    row = {"federation": 1, "secret": b"the token", "uses": 1, "expires": 0.0, "created": 0.0}
    with pytest.raises(DBAPIError) as caught, begin(engine) as connection:
        liver(connection)
        for _ in range(2):
            connection.execute(schema.invitation.insert().values(row))
    assert "the token" not in str(caught.value)
    assert "cannot be used" in str(unusable(engine, caught.value))
    with pytest.raises(IntegrityError), begin(engine) as connection:
        row = {"federation": 7, "name": "a", "joined": 0.0, "seen": 0.0}
        connection.execute(schema.member.insert().values(row))


# Federations, invitations and members


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with begin(engine) as connection:
        yield connection


def liver(connection: Connection, agreed: Federation = AGREED, uses: int = 10) -> str:
    """Create a federation; return the secret of an invitation to it."""
    store.create_federation(connection, "liver", agreed, actor=ACTOR)
    invited = store.invite(connection, "liver", uses=uses, actor=ACTOR)
    return Invitation.parse(invited.invitation).secret


def refused(slug: str) -> Any:
    return pytest.raises(Refused, check=lambda error: error.slug == slug)


def test_a_federation_is_created_once(connection: Connection) -> None:
    liver(connection)
    with refused("name-taken"):
        store.create_federation(connection, "liver", AGREED, actor=ACTOR)
    for name in ("", "Liver", "-a", "a" * 64, "a_b"):
        with refused("wrong-name"):
            store.create_federation(connection, name, AGREED, actor=ACTOR)
    (row,) = store.federations(connection)
    assert (row.name, row.fingerprint) == ("liver", str(AGREED.fingerprint))
    assert store.find_federation(connection, "liver").agreed == AGREED


def test_only_the_list_of_members_can_be_replaced(connection: Connection) -> None:
    secret = liver(connection)
    listed = Federation(AGREED.space, **GIVEN, members={"a": KEYS.public})
    for _ in range(2):  # the second time, nothing changes
        store.update_federation(connection, "liver", listed, actor=ACTOR)
    assert store.find_federation(connection, "liver").agreed.members == {"a": KEYS.public}
    lines = store.latest_lines(connection, "liver", 10)
    assert [line.action for line in lines] == ["updated", "invited", "created"]
    with refused("wrong-name"):
        store.enrol(connection, secret, "b", KEYS.public)
    with refused("wrong-federation"):
        other = Federation({"x": Float(0, 2)}, **GIVEN)
        store.update_federation(connection, "liver", other, actor=ACTOR)


@pytest.mark.parametrize(
    ("uses", "key", "expected"),
    [(5, None, 3 * ["not-invited"]), (10, KEYS, 7 * ["key-taken"])],
    ids=["more than invited", "one key"],
)
def test_those_who_enrol_at_the_same_moment(
    database_url: str, uses: int, key: KeyPair | None, expected: list[str]
) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        secret = liver(connection, uses=uses)
    start, slugs = threading.Barrier(8), list[str]()

    def join(name: str) -> None:
        start.wait()
        try:
            with begin(engine) as connection:
                store.enrol(connection, secret, name, (key or keys_of(name)).public)
        except Refused as error:
            slugs.append(error.slug)

    threads = [threading.Thread(target=join, args=(f"site-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert slugs == expected
    engine.dispose()


def test_whoever_has_seen_a_cursor_has_seen_all_below(database_url: str) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        secret = liver(connection)
        names = [f"site-{n}" for n in range(4)]
        tokens = [
            store.enrol(connection, secret, name, keys_of(name).public).token for name in names
        ]

    def work(n: int) -> None:
        for sequence in range(1, 10):
            with begin(engine) as connection:
                publish(connection, tokens[n], message(names[n], sequence))

    cursor, latest = "", dict[int, bytes]()

    def look() -> None:
        nonlocal cursor
        with engine.connect() as connection:
            news = store.fetch(connection, 1, cursor)
        latest.update({each.number: each.content for each in news.handed})
        cursor = news.cursor

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        look()
    look()
    with engine.connect() as connection:
        everything = store.fetch(connection, 1, "").handed
    assert latest == {each.number: each.content for each in everything}
    engine.dispose()


@pytest.mark.parametrize(
    "name",
    ["", "a/b", " a", "a ", "x" * 49, "\x1b[2J", "e\u0301", "\u3164", ".", "..",
     "release schedule", "\u0301"],
)  # fmt: skip
def test_names_that_nobody_can_have(name: str) -> None:
    with refused("wrong-name"):
        check_member(name)


def test_keys_that_are_not_safe(connection: Connection) -> None:
    secret = liver(connection)
    for key in (b"", bytes(31), bytes(32), b"\1" + bytes(31)):
        with refused("wrong-key"):
            store.enrol(connection, secret, "a", key)


def rekey(connection: Connection, own: store.Caller, key: bytes) -> None:
    """Change a member's key, as if both keys had signed that."""
    store.new_nonce(connection, own)
    store.rekey(connection, own, key, lambda nonce: None)


def test_one_key_has_one_name_in_a_federation(connection: Connection) -> None:
    """One party would vote several times."""
    secret, other = liver(connection), new_keys().public
    first = store.enrol(connection, secret, "a", KEYS.public)
    second = caller(connection, store.enrol(connection, secret, "b", other).token)
    for is_revoked in (False, True):
        with refused("key-taken"):
            store.enrol(connection, secret, "c", KEYS.public)
        with refused("key-taken"):
            rekey(connection, second, KEYS.public)
        if not is_revoked:
            store.revoke(connection, "liver", "a", actor=ACTOR)
    store.remove(connection, "liver", "a", actor=ACTOR)
    assert store.enrol(connection, secret, "c", KEYS.public).token != first.token
    rekey(connection, second, new_keys().public)
    store.create_federation(connection, "lung", AGREED, actor=ACTOR)
    invited = store.invite(connection, "lung", actor=ACTOR).invitation
    store.enrol(connection, Invitation.parse(invited).secret, "a", KEYS.public)


@pytest.mark.parametrize("how", ["leave", "remove", "revoke"])
def test_what_remains_of_a_member_that_goes(engine: Engine, how: str) -> None:
    filled = fill(engine)
    with begin(engine) as connection:
        if how == "leave":
            store.leave(connection, caller(connection, filled.tokens["clinic"]))
        else:
            getattr(store, how)(connection, "liver", "clinic", actor=ACTOR)
        assert store.by_token(connection, filled.tokens["clinic"]) is None
        query = select(schema.message).where(schema.message.c.sender.startswith("clinic"))
        for row in connection.execute(query):
            assert (row.is_out, row.content, row.t_n, row.member) == (False, b"", 0, None)
        names = [row.name for row in store.members(connection, "liver").rows]
        assert ("clinic" in names) == (how == "revoke")
        assert store.latest_lines(connection, "liver", 1)[0].action in (
            "left",
            "removed",
            "revoked",
        )


# The audit log


@pytest.mark.parametrize(
    "change", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit", "REPLACE", "TRUNCATE audit"]
)
def test_the_audit_log_is_append_only(engine: Engine, change: str) -> None:
    fill(engine)
    if change == "REPLACE":
        change = "INSERT OR REPLACE INTO audit SELECT * FROM audit"
    before = all_rows(engine)["audit"]
    with pytest.raises(DBAPIError), begin(engine) as connection:
        connection.execute(text(change))
    assert all_rows(engine)["audit"] == before


def test_only_lines_that_a_summary_names_can_be_deleted(engine: Engine) -> None:
    fill(engine)
    with begin(engine) as connection:
        count = store.prune(connection, time.time() + 1, actor=ACTOR)
        assert count > 5
        store.record(connection, "joined", actor="a", federation="liver")
    (summary, _) = before = all_rows(engine)["audit"]
    assert summary[3:6] == (ACTOR, "pruned", str(count))
    for change in ("DELETE FROM audit WHERE action = 'pruned'", "DELETE FROM audit",
                   "UPDATE audit SET subject = '99'"):  # fmt: skip
        with pytest.raises(DBAPIError), begin(engine) as connection:
            connection.execute(text(change))
    assert all_rows(engine)["audit"] == before


def test_the_audit_log_as_lines(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo.hub.store.audit._PAGE", 2)
    fill(engine)
    with begin(engine) as connection:
        store.record(connection, "joined", actor="\x1b[2J\u0085", federation="liver")
    raw = "".join(store.audit_lines(engine))
    assert "\x1b" not in raw and "\x85" not in raw  # a terminal may obey them
    lines = [json.loads(line) for line in raw.splitlines()]
    assert [line["number"] for line in lines] == [*range(1, len(lines) + 1)]
    assert lines[0]["action"] == "created" and lines[0]["time"].endswith("Z")
    assert [*store.audit_lines(engine, "")] == []


def test_no_secret_is_stored(engine: Engine) -> None:
    filled = fill(engine)
    stored = repr(all_rows(engine))
    for secret in (filled.secret, *filled.tokens.values()):
        assert secret not in stored
    assert repr(hashed(filled.tokens["clinic"])) in stored
