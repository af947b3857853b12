"""What becomes of messages: the store's contract, on SQLite and PostgreSQL."""

from __future__ import annotations

import pytest
from contracts.hub_rows import Desk, caller, message, publish, withdrawal
from sqlalchemy import Connection, Engine, insert, select, update

from fedbo.exchange.hub.wire import News
from fedbo.hub import store
from fedbo.hub.problems import Refused
from fedbo.hub.store import messages, schema
from fedbo.hub.store.messages import MOST_NAMES
from fedbo.message import MOST_PEERS, Message, Withdrawal
from fedbo.message.signed import MOST_AGENTS
from fedbo.testing.keys import new_keys


class Group(Desk):
    """Members of one federation."""

    def __init__(self, engine: Engine, *names: str) -> None:
        self.engine = engine
        self.secret = self.federation()
        self.tokens = {name: self.enrol(self.secret, name) for name in names}

    def caller(self, connection: Connection, name: str) -> store.Caller:
        return caller(connection, self.tokens[name])

    def publish(self, *contents: Message | Withdrawal) -> bool:
        """Publish in the given order; return the answer to the last one."""
        for content in contents:
            with store.begin(self.engine) as connection:
                token = self.tokens[content.sender.partition("/")[0]]
                answer = publish(connection, token, content)
        return answer

    def fetch(self, cursor: str = "") -> News:
        with self.engine.connect() as connection:
            return store.fetch(connection, 1, cursor)

    def out(self) -> list[str]:
        """Return what is handed out to a newcomer."""
        news = self.fetch()
        assert news.is_all and not news.gone
        return [named(each.content) for each in news.handed]

    def put_many(self, count: int) -> None:
        """Put messages of nobody into the table."""
        with store.begin(self.engine) as connection:
            cursors = store.take_cursors(connection, 1, count)
            common = {"federation": 1, "key": b"?", "sequence": 1, "t_n": 1, "is_out": True}
            rows = [
                {**common, "sender": f"many/{n}", "content": b"%d" % n, "cursor": n, "changed": 1.0}
                for n in cursors
            ]
            connection.execute(insert(schema.message), rows)


def named(content: bytes) -> str:
    found = Message.decode(content)
    return f"{found.sender} {found.sequence}"


@pytest.fixture
def group(engine: Engine) -> Group:
    return Group(engine, "a", "b")


@pytest.mark.parametrize("cursor", ["", "x", "0000000000000000.1", "{}.99", "{}.-1"])
def test_a_cursor_that_means_nothing_gets_everything(group: Group, cursor: str) -> None:
    group.publish(message("a", 1))
    generation = group.fetch().cursor.partition(".")[0]
    news = group.fetch(cursor.format(generation))
    assert news.is_all and len(news.handed) == 1


def test_a_withdrawal_stays(engine: Engine) -> None:
    group = Group(engine, "a")
    kept = message("a", 1)
    group.publish(kept)
    cursor = group.fetch().cursor
    assert group.publish(withdrawal("a", 1))
    assert group.out() == []
    (handed,) = group.fetch(cursor).handed
    assert Withdrawal.decode(handed.content).sequence == 1
    assert not group.publish(kept)  # nobody can put it back
    assert group.publish(withdrawal("a", 1))  # a retry
    assert not group.fetch(group.fetch().cursor).handed
    assert group.publish(message("a", 2))
    assert not group.publish(withdrawal("a", 1))  # an old one
    assert group.out() == ["a 2"]


def test_signed_messages_of_a_member_that_left_cannot_be_put_back(engine: Engine) -> None:
    group = Group(engine, "a")
    kept = message("a", 5)
    group.publish(kept)
    cursor = group.fetch().cursor
    with store.begin(engine) as connection:
        store.leave(connection, group.caller(connection, "a"))
    assert group.out() == [] and group.fetch(cursor).gone
    group.tokens["a"] = group.enrol(group.secret, "a")
    assert not group.publish(kept)
    assert group.publish(message("a", 6))


def test_what_changed_since_the_request_was_identified(engine: Engine) -> None:
    group = Group(engine, "a")
    signed = message("a", 1)
    with store.begin(engine) as connection:
        early = group.caller(connection, "a")
        nonce = store.new_nonce(connection, early)
        proved: list[bytes] = []
        store.rekey(connection, early, new_keys().public, proved.append)
    assert proved == [nonce]
    with pytest.raises(Refused) as refused, store.begin(engine) as connection:
        store.publish(connection, early, signed, signed.encode())
    assert refused.value.slug == "wrong-key"
    with store.begin(engine) as connection:
        store.rotate(connection, group.caller(connection, "a"))
    with pytest.raises(Refused) as refused, store.begin(engine) as connection:
        store.publish(connection, early, signed, signed.encode())
    assert refused.value.slug == "wrong-token"


def test_of_many_the_latest_are_handed_out(group: Group) -> None:
    group.put_many(MOST_PEERS + 5)
    group.publish(message("a", 1))
    news = group.fetch()
    assert len(news.handed) == MOST_PEERS
    assert [each.content for each in news.handed[:2]] == [b"7", b"8"]
    assert named(news.handed[-1].content) == "a 1"
    assert group.fetch(news.cursor).handed == ()
    with store.begin(group.engine) as connection:  # as many changes as one answer can have
        cursors = store.take_cursors(connection, 1, MOST_PEERS + 2)
        rows = select(schema.message.c.id).order_by(schema.message.c.id).limit(MOST_PEERS + 2)
        for row, cursor in zip(connection.scalars(rows).all(), cursors, strict=True):
            own = schema.message.c.id == row
            connection.execute(update(schema.message).where(own).values(cursor=cursor))
    later = group.fetch(news.cursor)
    assert not later.is_all and len(later.handed) == MOST_PEERS
    assert later.handed[0].content == b"3" and later.handed[-1].content == b"%d" % (MOST_PEERS + 2)


def test_of_too_many_changes_everything_is_handed_out(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MOST_PEERS", 2)
    cursor = group.fetch().cursor
    group.put_many(4)
    assert not group.fetch(cursor).is_all
    group.publish(message("a", 1))
    news = group.fetch(cursor)
    assert news.is_all and len(news.handed) == 2


def test_a_member_has_so_many_agents(group: Group) -> None:
    for number in range(MOST_AGENTS):
        group.publish(message(f"a/{number}"))
    with pytest.raises(Refused) as refused:
        group.publish(message("a/one-more"))
    assert refused.value.slug == "too-many-agents"
    assert group.publish(message("a/3", 2))
    assert group.publish(message("b"))


def test_the_agents_of_a_member_have_so_many_names(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_NAMES > MOST_AGENTS
    monkeypatch.setattr(messages, "MOST_NAMES", 3)
    for number in range(3):
        group.publish(message(f"a/{number}"), withdrawal(f"a/{number}", 1))
    with pytest.raises(Refused):
        group.publish(message("a/one-more"))
    assert group.publish(message("a/0", 2))
