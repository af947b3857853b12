"""Federations, invitations, members and operators in a hub's database."""

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
from contracts.hub_rows import ACTOR, AGREED, all_rows, fill, publish, share
from sqlalchemy import Connection, Engine, select, text, update
from sqlalchemy.exc import DBAPIError

from fedbo import Federation, Float
from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub import admin, schema
from fedbo.hub.admin.invitations import MOST_USES
from fedbo.hub.database import begin, open_database
from fedbo.hub.problems import Refused
from fedbo.hub.tokens import digest
from fedbo.identity import KeyPair
from fedbo.message.signed import key_text

KEY, OTHER = KeyPair.generate().public, KeyPair.generate().public
ENROL = """
import sys
from fedbo.hub import admin
from fedbo.hub.database import begin, open_database
from fedbo.hub.problems import Refused
url, secret, start = sys.argv[1:]
engine = open_database(url)
print("ready", flush=True)
sys.stdin.readline()
for i in range(6):
    try:
        with begin(engine) as connection:
            admin.enrol(connection, secret, f"{start}-{i}")
        print("in")
    except Refused as refused:
        assert "used up" in refused.detail
engine.dispose()
"""
WRITE = """
import sys
from sqlalchemy import insert
from fedbo.hub import admin, schema
from fedbo.hub.database import begin, open_database
url, start = sys.argv[1:]
engine = open_database(url)
print("ready", flush=True)
sys.stdin.readline()
for i in range(40):
    with begin(engine) as connection:
        cursors = admin.take_cursors(connection, 1, 1 + i % 3)
        rows = [
            dict(federation=1, epoch=0, sender=f"{start}-{cursor}", key=b"", sequence=0, t_n=1,
                 is_out=True, content=b"x", cursor=cursor, changed=0.0)
            for cursor in cursors
        ]
        connection.execute(insert(schema.message), rows)
engine.dispose()
"""


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A transaction in a database with the federation "liver"."""
    with begin(engine) as connection:
        admin.create_federation(connection, "liver", AGREED, actor=ACTOR)
        yield connection


def invited(connection: Connection, name: str = "liver", uses: int = 10) -> str:
    return admin.invite(connection, name, uses=uses, actor=ACTOR).invitation.secret


def enrolled(connection: Connection, name: str, key: bytes | None = None) -> admin.MemberRow:
    return admin.enrol(connection, invited(connection), name, key).member


def actions(connection: Connection) -> list[tuple[str, str, str, str]]:
    audit = schema.audit.c
    rows = connection.execute(
        select(audit.action, audit.actor, audit.subject, audit.federation).order_by(audit.id)
    )
    return [tuple(row) for row in rows]


def race(script: str, *arguments: list[str]) -> Iterator[str]:
    """Run a script in several processes that start together; yield what they print."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, *each],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for each in arguments
    ]
    for process in processes:
        assert process.stdout is not None and process.stdin is not None
        if process.stdout.readline() != "ready\n":
            raise AssertionError(process.communicate()[1])
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        yield from output.split()


def test_a_federation_is_created_once(connection: Connection) -> None:
    (found,) = admin.federations(connection)
    assert (found.name, found.epoch, found.members, found.messages) == ("liver", 0, 0, 0)
    assert found.fingerprint == AGREED.fingerprint
    file = admin.epoch_file(connection, found.id, 0).file
    assert Federation.from_toml(file) == AGREED
    with pytest.raises(Refused, match="has a federation 'liver' already") as caught:
        admin.create_federation(connection, "liver", AGREED, actor=ACTOR)
    assert caught.value.slug == "name-taken"
    with pytest.raises(Refused, match="expected 1 to 63 small letters") as caught:
        admin.create_federation(connection, "Liver!", AGREED, actor=ACTOR)
    assert caught.value.slug == "wrong-name"
    with pytest.raises(Refused, match="has no federation 'lung'"):
        admin.find_federation(connection, "lung")
    assert actions(connection) == [("created", "command line", "", "liver")]


def test_a_federation_may_start_in_a_later_epoch(connection: Connection) -> None:
    later = AGREED.next_epoch(length_scale=0.7)
    here = admin.create_federation(connection, "later", later, actor=ACTOR)
    assert here.epoch == 1
    with pytest.raises(Refused, match="has no epoch 0 here"):
        admin.epoch_file(connection, here.id, 0)


def test_an_invitation_says_what_it_is_for(connection: Connection) -> None:
    made = admin.invite(connection, "liver", uses=3, days=2, actor=ACTOR)
    again = Invitation.parse(str(made.invitation))
    assert again == made.invitation and again.name == "liver"
    again.check(AGREED)
    assert 1.9 * 86400 < made.expires - time.time() < 2.1 * 86400
    here, opened = admin.open_invitation(connection, again.secret)
    assert (here.name, opened.uses) == ("liver", 3)
    (listed,) = admin.invitations(connection, "liver")
    assert listed == opened and again.secret not in repr(listed)


def test_invitations_are_bounded(connection: Connection) -> None:
    wrong: list[dict[str, Any]] = [{"uses": uses} for uses in (0, MOST_USES + 1)]
    wrong += [{"days": days} for days in (0, -1, 1e9, float("nan"), float("inf"))]
    for given in wrong:
        with pytest.raises(Refused, match="expected") as caught:
            admin.invite(connection, "liver", **given, actor=ACTOR)
        assert caught.value.slug == "wrong-request"
    assert not admin.invitations(connection, "liver")


def test_invitations_that_cannot_be_used(connection: Connection) -> None:
    with pytest.raises(Refused, match="does not know the invitation") as caught:
        admin.enrol(connection, "x" * 32, "clinic")
    assert caught.value.slug == "not-invited"
    with pytest.raises(Refused, match="does not know"):
        admin.enrol(connection, "\ud800", "clinic")
    once = invited(connection, uses=1)
    admin.enrol(connection, once, "clinic")
    with pytest.raises(Refused, match="is used up: ask for a new one"):
        admin.enrol(connection, once, "other")
    late = invited(connection)
    connection.execute(update(schema.invitation).values(expires=time.time() - 1))
    with pytest.raises(Refused, match="has expired: ask for a new one"):
        admin.enrol(connection, late, "other")
    assert admin.invitations(connection, "liver") == []
    assert [one.name for one in admin.members(connection, "liver")] == ["clinic"]


def test_a_refused_member_does_not_use_an_invitation_up(connection: Connection) -> None:
    once = invited(connection, uses=1)
    with pytest.raises(Refused):
        admin.enrol(connection, once, "no/slash")
    admin.enrol(connection, once, "clinic")


def test_an_invitation_can_be_taken_back(connection: Connection) -> None:
    admin.create_federation(connection, "lung", AGREED, actor=ACTOR)
    made = admin.invite(connection, "liver", actor=ACTOR)
    with pytest.raises(Refused, match="there is no invitation 1 to 'lung'"):
        admin.drop_invitation(connection, "lung", made.id, actor=ACTOR)
    admin.drop_invitation(connection, "liver", made.id, actor=ACTOR)
    with pytest.raises(Refused, match="does not know"):
        admin.enrol(connection, made.invitation.secret, "clinic")
    assert actions(connection)[-1] == ("revoked", ACTOR, f"invitation {made.id}", "liver")


def test_a_member_enrols(connection: Connection) -> None:
    done = admin.enrol(connection, invited(connection), "clinic", KEY)
    assert done.token.startswith("fedbo-m-") and Federation.from_toml(done.file) == AGREED
    stored = connection.scalar(select(schema.member.c.token))
    assert stored == digest(done.token)
    assert admin.find_member(connection, "liver", "clinic") == done.member
    (shown,) = admin.members(connection, "liver")
    assert (shown.name, shown.key, shown.is_revoked) == ("clinic", KEY, False)
    assert actions(connection)[-1] == ("joined", "clinic", "clinic", "liver")
    (opened,) = admin.invitations(connection, "liver")
    assert opened.uses == 9


def test_names_are_unique_in_a_federation_only(connection: Connection) -> None:
    admin.create_federation(connection, "lung", AGREED, actor=ACTOR)
    enrolled(connection, "clinic")
    with pytest.raises(Refused, match="has a member 'clinic' already") as caught:
        enrolled(connection, "clinic", KEY)
    assert caught.value.status == 409
    admin.enrol(connection, invited(connection, "lung"), "clinic")


def test_names_that_nobody_can_have(connection: Connection) -> None:
    for name in [
        *("", " ", " a", "a ", ".", "..", "a/b", "/", "a\nb", "\x1b[2J", "\ud800", "a\u200eb"),
        *("x" * 49, "ü" * 25, "Zu\u0308rich", "\u212b"),
        *("command line", "unknown", "operator anna", "operator "),
        *("invitation 1", "invitation x"),
        *("\u3164", "a\u115f", "\u1160", "\uffa0", "clinic\u2800", "\u034f", "\ufe0f"),
    ]:
        with pytest.raises(Refused) as caught:
            enrolled(connection, name)
        assert caught.value.slug == "wrong-name", name
        with pytest.raises(Refused):
            admin.new_operator(connection, name, actor=ACTOR)
    assert not admin.members(connection, "liver") and not admin.operators(connection)


def test_names_that_anyone_can_have(connection: Connection) -> None:
    for name in ("a", "A", "x" * 48, "ü" * 24, "Zürich 2", "a.b", "-", "operators", "invitation"):
        enrolled(connection, name)
        assert admin.find_member(connection, "liver", name).name == name


def test_keys_that_are_not_safe(connection: Connection) -> None:
    for key in (b"", b"short", bytes(32)):
        with pytest.raises(Refused) as caught:
            enrolled(connection, "clinic", key)
        assert caught.value.slug == "wrong-key"


def test_a_federation_that_lists_its_members(connection: Connection) -> None:
    listed = Federation(AGREED.space, features=20, members={"clinic": KEY})
    admin.create_federation(connection, "listed", listed, actor=ACTOR)
    secret = invited(connection, "listed")
    with pytest.raises(Refused, match="'other' is not among them: ask the operator") as caught:
        admin.enrol(connection, secret, "other", KEY)
    assert caught.value.slug == "wrong-name"
    with pytest.raises(Refused, match="and you come with the key") as caught:
        admin.enrol(connection, secret, "clinic", OTHER)
    assert caught.value.slug == "wrong-key"
    with pytest.raises(Refused, match="and you come without a key: use the listed key"):
        admin.enrol(connection, secret, "clinic")
    own = admin.enrol(connection, secret, "clinic", KEY).member
    with pytest.raises(Refused, match="use the listed key"):
        admin.rekey(connection, own.id, OTHER)
    changed = Federation(AGREED.space, features=20, members={"clinic": OTHER, "b": KEY})
    admin.add_epoch(connection, "listed", changed, actor=ACTOR)
    admin.rekey(connection, own.id, OTHER)
    admin.enrol(connection, secret, "b", KEY)


def test_a_list_of_members_is_read_once(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"clinic": KEY, "other": OTHER}
    listed = Federation(AGREED.space, features=20, seed=41, members=members)
    admin.create_federation(connection, "listed", listed, actor=ACTOR)
    secret, read, usual = invited(connection, "listed"), list[str](), Federation.from_toml

    def from_toml(text: str) -> Federation:
        read.append(text)
        return usual(text)

    monkeypatch.setattr(Federation, "from_toml", from_toml)
    own = admin.enrol(connection, secret, "clinic", KEY).member
    admin.enrol(connection, secret, "other", OTHER)
    admin.rekey(connection, own.id, KEY)
    with pytest.raises(Refused, match="use the listed key"):
        admin.rekey(connection, own.id, OTHER)
    assert len(read) <= 1


def test_the_uses_of_an_invitation_are_counted_exactly(database_url: str) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        admin.create_federation(connection, "liver", AGREED, actor=ACTOR)
        secret = invited(connection, uses=7)
    printed = [*race(ENROL, *([database_url, secret, name] for name in "abc"))]
    assert printed == ["in"] * 7
    with engine.connect() as connection:
        assert len(admin.members(connection, "liver")) == 7
        assert connection.scalar(select(schema.invitation.c.uses)) == 0
    engine.dispose()


def test_whoever_has_seen_a_cursor_has_seen_all_below(database_url: str) -> None:
    engine = open_database(database_url)
    with begin(engine) as connection:
        admin.create_federation(connection, "liver", AGREED, actor=ACTOR)
    done, seen, message = threading.Event(), [0], schema.message.c

    def follow() -> None:
        query = select(message.cursor).order_by(message.cursor)
        while True:
            is_last = done.is_set()
            with engine.connect() as connection:
                seen.extend(connection.scalars(query.where(message.cursor > seen[-1])))
            if is_last:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        assert not [*race(WRITE, *([database_url, name] for name in "abc"))]
    finally:
        done.set()
        follower.join()
    assert seen == [*range(len(seen))] and len(seen) == 1 + 3 * sum(1 + i % 3 for i in range(40))
    with engine.connect() as connection:
        assert admin.find_federation(connection, "liver").cursor == seen[-1]
    engine.dispose()


def test_what_a_list_of_members_shows(connection: Connection) -> None:
    one, two = enrolled(connection, "one"), enrolled(connection, "two", KEY)
    publish(connection, one, "one", t_n=5)
    publish(connection, one, "one", epoch=1, t_n=8)
    publish(connection, one, "one/b", t_n=10)
    first, second = admin.members(connection, "liver")
    assert (first.agents, first.messages, first.bytes, first.trials) == (2, 3, 300, 18)
    assert (second.agents, second.messages, second.bytes, second.trials) == (0, 0, 0, 0)
    assert all(type(value) is int for value in first[-4:])
    assert admin.members(connection, "liver", most=1) == [first]
    assert admin.members(connection, "liver", after=one.id) == [second]
    assert second.id == two.id and admin.federations(connection)[0].messages == 3


def test_rotating_ends_sessions_and_the_old_token(engine: Engine) -> None:
    old = fill(engine).tokens["clinic"]
    with begin(engine) as connection:
        own = admin.find_member(connection, "liver", "clinic")
        new = admin.rotate(connection, own.id)
        tokens = connection.scalars(select(schema.member.c.token)).all()
        assert digest(new) in tokens and digest(old) not in tokens
        assert not connection.execute(select(schema.session)).all()
        assert actions(connection)[-1] == ("rotated", "clinic", "clinic", "liver")


def test_another_key_takes_messages_back(connection: Connection) -> None:
    own = enrolled(connection, "clinic", KEY)
    before = publish(connection, own, "clinic")
    admin.rekey(connection, own.id, KEY)
    assert actions(connection)[-1][0] == "joined"  # nothing has changed
    admin.rekey(connection, own.id, OTHER)
    (row,) = connection.execute(select(schema.message)).all()
    assert (row.is_out, row.content) == (False, b"")
    assert row.member == own.id  # its agents' names are still counted
    assert row.cursor > before
    assert admin.find_member(connection, "liver", "clinic").key == OTHER
    admin.rekey(connection, own.id, None)
    (again,) = connection.execute(select(schema.message)).all()
    assert again == row  # it was taken back already
    assert admin.find_member(connection, "liver", "clinic").key is None
    lines = connection.scalars(select(schema.audit.c.detail).order_by(schema.audit.c.id)).all()
    assert [json.loads(line)["key"] for line in lines[-2:]] == [key_text(OTHER), ""]


@pytest.mark.parametrize("how", ["left", "removed", "revoked"])
def test_what_remains_of_a_member_that_goes(engine: Engine, how: str) -> None:
    fill(engine)
    with begin(engine) as connection:
        other = all_rows(engine)["message"]
        own = admin.find_member(connection, "liver", "clinic")
        before = admin.find_federation(connection, "liver").cursor
        if how == "left":
            admin.leave(connection, own.id)
        else:
            act = admin.remove if how == "removed" else admin.revoke
            act(connection, "liver", "clinic", actor="operator anna")
        rows = connection.execute(select(schema.message).order_by(schema.message.c.id)).all()
        gone = [row for row in rows if row.sender.startswith("clinic")]
        assert [(row.is_out, row.content, row.member) for row in gone] == [(False, b"", None)] * 2
        assert [(row.sequence, row.t_n) for row in gone] == [(1, 0)] * 2
        assert {row.cursor for row in gone} == {before + 1, before + 2}
        assert [tuple(row) for row in rows if row not in gone] == other[2:]
        for table in (schema.scalars, schema.progress, schema.session):
            assert not connection.execute(select(table)).all()
        actor = "clinic" if how == "left" else "operator anna"
        assert actions(connection)[-1] == (how, actor, "clinic", "liver")
        with pytest.raises(Refused, match="the member has left, or was removed") as caught:
            admin.rotate(connection, own.id)
        assert caught.value.slug == "wrong-token"
        if how == "revoked":
            admin.revoke(connection, "liver", "clinic", actor=ACTOR)  # again: nothing changes
            assert actions(connection)[-1][1] == "operator anna"
            assert admin.find_member(connection, "liver", "clinic").is_revoked
            with pytest.raises(Refused, match="already: take another name"):
                enrolled(connection, "clinic")
            admin.remove(connection, "liver", "clinic", actor=ACTOR)
        new = enrolled(connection, "clinic")
        assert new.id > own.id
        with pytest.raises(Refused, match="has no member 'nobody'"):
            admin.revoke(connection, "liver", "nobody", actor=ACTOR)


def test_a_later_epoch(connection: Connection) -> None:
    later = AGREED.next_epoch(length_scale=0.7)
    before = admin.find_federation(connection, "liver").cursor
    assert admin.add_epoch(connection, "liver", later, actor="operator anna") == AGREED
    here = admin.find_federation(connection, "liver")
    assert here.epoch == 1 and here.cursor > before
    assert Federation.from_toml(admin.epoch_file(connection, here.id, 1).file) == later
    assert Federation.from_toml(admin.epoch_file(connection, here.id, 0).file) == AGREED
    assert admin.federations(connection)[0].fingerprint == later.fingerprint
    admin.invite(connection, "liver", actor=ACTOR).invitation.check(later)
    with pytest.raises(Refused, match="is of epoch 0, and 'liver' is in epoch 1"):
        admin.add_epoch(connection, "liver", AGREED, actor=ACTOR)
    with pytest.raises(Refused, match=r"the federations differ: length_scale is 0\.7 here"):
        changed = AGREED.next_epoch(length_scale=0.9)
        admin.add_epoch(connection, "liver", changed, actor=ACTOR)
    with pytest.raises(Refused, match="create a new federation for the rest") as caught:
        other = Federation({"x": Float(0, 2)}, features=20, epoch=5)
        admin.add_epoch(connection, "liver", other, actor=ACTOR)
    assert caught.value.slug == "wrong-federation"


def test_agreeing_counts_each_member_once(connection: Connection) -> None:
    assert admin.agree(connection, "liver", actor=ACTOR) is None
    for name in "abc":
        share(connection, enrolled(connection, name), name, 1.1, 20)
    wild = enrolled(connection, "wild")
    for i in range(16):
        share(connection, wild, f"wild/{i}", 1e-6, 30)
    agreed = admin.agree(connection, "liver", actor=ACTOR)
    assert agreed is not None and (agreed.epoch, agreed.length_scale) == (1, 0.57)
    assert admin.find_federation(connection, "liver").epoch == 1
    assert admin.agree(connection, "liver", actor=ACTOR) is None  # nobody shared in epoch 1


def test_operators(connection: Connection) -> None:
    token = admin.new_operator(connection, "anna", actor=ACTOR)
    assert token.startswith("fedbo-o-")
    with pytest.raises(Refused, match="has an operator 'anna' already"):
        admin.new_operator(connection, "anna", actor=ACTOR)
    (row,) = connection.execute(select(schema.operator)).all()
    assert row.token == digest(token)
    session = {"secret": b"s", "operator": row.id, "expires": 2e9}
    connection.execute(schema.session.insert().values(session))
    admin.drop_operator(connection, "anna", actor="operator anna")
    assert not admin.operators(connection)
    assert not connection.execute(select(schema.session)).all()
    with pytest.raises(Refused, match="has no operator 'anna'"):
        admin.drop_operator(connection, "anna", actor=ACTOR)
    assert actions(connection)[-2:] == [
        ("operator", "command line", "anna", ""),
        ("operator", "operator anna", "anna", ""),
    ]


def test_pruning_raises_the_floor(connection: Connection) -> None:
    one, two = enrolled(connection, "one"), enrolled(connection, "two")
    publish(connection, one, "one")
    publish(connection, one, "one/b")
    kept = publish(connection, two, "two")
    admin.leave(connection, one.id)
    gone = admin.find_federation(connection, "liver").cursor
    assert admin.prune(connection) == 0
    assert admin.find_federation(connection, "liver").floor == 0
    month = time.time() - 31 * 86400
    connection.execute(update(schema.message).values(changed=month))
    withdrawn = publish(connection, two, "two/b")
    _withdraw(connection, withdrawn, month)
    connection.execute(update(schema.invitation).values(expires=month))
    session = {"secret": b"s", "member": two.id, "expires": 1.0}
    connection.execute(schema.session.insert().values(session))
    assert admin.prune(connection) == 2
    assert admin.find_federation(connection, "liver").floor == gone
    assert [*connection.scalars(select(schema.message.c.cursor))] == [kept, withdrawn]
    assert not connection.execute(select(schema.session)).all()
    assert not connection.execute(select(schema.invitation)).all()
    assert admin.prune(connection) == 0
    assert admin.find_federation(connection, "liver").floor == gone


def test_a_withdrawal_stays_until_a_month_after_its_member_has_left(
    connection: Connection,
) -> None:
    own = enrolled(connection, "clinic", KEY)
    month = time.time() - 31 * 86400
    cursor = publish(connection, own, "clinic")
    _withdraw(connection, cursor, month)
    (before,) = connection.scalars(select(schema.message.c.content)).all()
    admin.rekey(connection, own.id, None)
    admin.rekey(connection, own.id, KEY)
    admin.leave(connection, own.id)
    assert admin.prune(connection) == 0
    (row,) = connection.execute(select(schema.message)).all()
    assert (row.content, row.cursor, row.member) == (before, cursor, None)
    connection.execute(update(schema.message).values(changed=month))
    assert admin.prune(connection) == 1
    assert admin.find_federation(connection, "liver").floor == cursor


def _withdraw(connection: Connection, cursor: int, when: float) -> None:
    """Pretend that the content of a row is a signed withdrawal."""
    change = update(schema.message).where(schema.message.c.cursor == cursor)
    connection.execute(change.values(is_out=False, changed=when))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit SET actor = 'nobody'",
        "DELETE FROM audit",
        "DELETE FROM audit WHERE id = 1",
        "postgresql: TRUNCATE audit",
        "sqlite: INSERT OR REPLACE INTO audit VALUES (1, 0, '', '', '', '', '')",
        "sqlite: REPLACE INTO audit VALUES (1, 0, '', '', '', '', '')",
    ],
)
def test_the_audit_log_is_append_only(engine: Engine, change: str) -> None:
    dialect, _, statement = change.rpartition(": ")
    fill(engine)
    before = all_rows(engine)["audit"]
    with pytest.raises(DBAPIError) as caught, begin(engine) as connection:
        connection.execute(text(statement))
    assert "append-only" in str(caught.value) or dialect not in ("", engine.dialect.name)
    assert all_rows(engine)["audit"] == before


def test_the_audit_log_as_lines(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(engine)
    monkeypatch.setattr("fedbo.hub.admin.audit._PAGE", 2)
    lines = [*admin.audit_lines(engine)]
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    parsed = [*map(json.loads, lines)]
    assert [line["number"] for line in parsed] == [*range(1, len(lines) + 1)]
    assert [line["action"] for line in parsed] == [
        *("created", "invited", "joined", "joined", "joined", "operator", "left"),
    ]
    assert parsed[0]["time"].endswith("Z") and parsed[0]["detail"]["epoch"] == 0
    assert [*admin.audit_lines(engine, "liver")] == [*lines[:5], lines[6]]
    assert [*admin.audit_lines(engine, "")] == [lines[5]]
    assert [*admin.audit_lines(engine, "lung")] == []
    assert [*admin.audit_lines(engine, "liver", member="left")] == [lines[4], lines[6]]
    now = time.time() + 1
    assert not [*admin.audit_lines(engine, "liver", member="left", since=now)]


def test_a_member_sees_only_its_own_lines(engine: Engine) -> None:
    """The name of one may be the start of another's, or have characters that SQL knows."""
    names = ["a", "A", "a%", "a_", "ab", "b", "ü", "Ü"]
    with begin(engine) as connection:
        for name in names:
            for subject in (name, f"{name}/x"):
                admin.record(connection, "refused", actor=ACTOR, federation="f", subject=subject)
    for name in names:
        own = [json.loads(line) for line in admin.audit_lines(engine, "f", member=name)]
        assert [line["subject"] for line in own] == [name, f"{name}/x"]


def test_anything_can_be_written_to_the_audit_log(engine: Engine) -> None:
    with begin(engine) as connection:
        admin.record(
            connection,
            "refused",
            actor="\ud800\x00",
            federation="liver",
            subject="x\x1b\x00\n" * 100,
            detail={"problem": "\x00"},
        )
    (line,) = admin.audit_lines(engine)
    assert line.isascii() and json.loads(line)["detail"] == {"problem": "\x00"}


def test_no_secret_is_stored(engine: Engine) -> None:
    filled = fill(engine)
    with begin(engine) as connection:
        secret = invited(connection)
        token = admin.enrol(connection, secret, "new").token
        own = admin.find_member(connection, "liver", "new")
        secrets = [filled.secret, *filled.tokens.values(), secret, token]
        secrets.append(admin.rotate(connection, own.id))
    dump = repr(all_rows(engine))
    for one in secrets:
        start = one.removeprefix("fedbo-m-").removeprefix("fedbo-o-")[:12]
        assert start not in dump
    if engine.dialect.name == "sqlite":
        engine.dispose()
        content = Path(str(engine.url.database)).read_bytes()
        assert not [one for one in secrets if one[8:20].encode() in content]
