"""Agents that apply what they fetch hold exactly what is out, or a good selection of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hub.group import FEDERATION, Group, M
from sqlalchemy import Connection, Engine, event, text

from fedbo.exchange.hub.wire import News, Wanted
from fedbo.hub import admin, feed, schema
from fedbo.hub.database import begin, open_database
from fedbo.hub.feed import Feeds
from fedbo.hub.problems import Refused
from fedbo.hub.writer import Writer
from fedbo.message import Message, Withdrawal, read


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    started = Writer(engine)
    yield started
    started.stop()


class Agent:
    """What an agent remembers between two questions."""

    def __init__(self, group: Group, member: Any) -> None:
        self.group, self.member = group, member
        self.cursor = ""
        self.held: dict[int, bytes] = {}

    async def fetch(self, feeds: Feeds, epoch: int = 0) -> News:
        wanted = Wanted(epoch, self.cursor)
        news = await feeds.news(self.group.id, self.member.id, wanted)
        if news.is_all:
            self.held.clear()
        for number in news.gone:
            self.held.pop(number, None)
        self.held |= {one.number: one.content for one in news.handed}
        self.cursor = news.cursor
        return news

    @property
    def senders(self) -> dict[str, bytes]:
        found = {content: read(content) for content in self.held.values()}
        return {one.sender: data for data, one in found.items() if isinstance(one, Message)}


async def publish(writer: Writer, group: Group, count: int, sequence: int = 1) -> None:
    sent = (group.message(one.name, sequence, omega=_omega(one.id)) for one in group.members)
    pairs = [*zip(group.members, sent, strict=False)][:count]
    assert all(await asyncio.gather(*(writer.publish(*pair) for pair in pairs)))


def _omega(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(M)


@pytest.mark.parametrize("most", [5, 12, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_deltas_add_up(engine: Engine, writer: Writer, seed: int, most: int) -> None:
    """Random changes, with more and with fewer messages out than an agent gets."""
    chance, group = random.Random(seed), Group(engine, 20, signed=True)
    sequences = dict.fromkeys([member.name for member in group.members], 0)

    async def change() -> None:
        member, action = chance.choice(group.members), chance.random()
        if action < 0.6:
            sequences[member.name] += 1
            at = member.name, sequences[member.name]
            omega = [chance.gauss(0, 1) for _ in range(M)]
            await writer.publish(member, group.message(*at, omega=omega, key=member.key))
        elif action < 0.95:
            at = member.name, sequences[member.name]
            await writer.publish(member, group.withdrawal(*at, member.key))
        else:  # so that a row is published again after its removal
            await writer.submit(lambda connection: remove(connection, member.id))

    def remove(connection: Connection, member: int) -> None:
        rows = schema.message.update().where(schema.message.c.member == member)
        (cursor,) = admin.take_cursors(connection, group.id)
        connection.execute(rows.values(is_out=False, content=b"", cursor=cursor))

    async def run() -> None:
        feeds = Feeds(engine, most_peers=most)
        agents = [Agent(group, member) for member in group.members[:4]]
        agents.append(Agent(group, SimpleNamespace(id=10_000, name="nobody")))
        for _ in range(60):
            for _ in range(chance.randrange(4)):
                await change()
            agent = chance.choice(agents)
            await agent.fetch(feeds)
            check(agent)
        feeds.stop()

    def check(agent: Agent) -> None:
        out = group.out()
        if len(out) <= most:
            assert agent.senders == out
            return
        assert agent.senders.items() <= out.items()
        assert 7 / 8 * most <= len(agent.senders) <= most
        if agent.member.name in out:
            assert agent.member.name in agent.senders

    asyncio.run(run())


def test_a_delta_has_only_what_changed(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 6)

    async def run() -> None:
        feeds, agent = Feeds(engine), Agent(group, group.members[0])
        await publish(writer, group, 5)
        first = await agent.fetch(feeds)
        assert first.is_all and len(first.handed) == 5 and first.epoch == 0
        nothing = await agent.fetch(feeds)
        assert not nothing.is_all and nothing.handed == () and nothing.gone == ()
        assert nothing.cursor == first.cursor
        await writer.publish(group.members[1], group.message("m1", 2))
        await writer.submit(lambda connection: admin.leave(connection, group.members[2].id))
        news = await agent.fetch(feeds)
        assert [Message.decode(one.content).sequence for one in news.handed] == [2]
        assert len(news.gone) == 1 and not news.is_all
        feeds.stop()

    asyncio.run(run())


def test_a_selection_is_the_own_messages_and_a_sample(engine: Engine, writer: Writer) -> None:
    group, most = Group(engine, 60), 20

    async def run() -> None:
        feeds = Feeds(engine, most_peers=most)
        await publish(writer, group, 60)
        asks, other = Agent(group, group.members[0]), Agent(group, group.members[1])
        news = await asks.fetch(feeds)
        await other.fetch(feeds)
        assert news.is_all
        assert len(asks.held) == len(other.held) == most - 1  # there is room for one more
        assert "m0" in asks.senders and "m1" in other.senders
        assert {*asks.senders} != {*other.senders}
        again = Agent(group, group.members[0])
        await again.fetch(feeds)
        assert again.held == asks.held
        feeds.stop()

    asyncio.run(run())


def test_a_selection_is_kept(engine: Engine, writer: Writer) -> None:
    group, most = Group(engine, 60), 20

    async def run() -> None:
        feeds = Feeds(engine, most_peers=most)
        await publish(writer, group, 50)
        asks = Agent(group, group.members[0])
        await asks.fetch(feeds)
        kept = {*asks.held}
        await writer.publish(group.members[50], group.message("m50", 1))
        await writer.publish(group.members[1], group.message("m1", 2))
        news = await asks.fetch(feeds)
        assert {*asks.held} >= kept and news.gone == () and len(asks.held) <= most
        kept = {*asks.held}

        await writer.publish(group.members[0], group.message("m0", 2))
        news = await asks.fetch(feeds)
        assert {*asks.held} == kept and news.gone == () and len(news.handed) == 1
        feeds.stop()

    asyncio.run(run())


def test_a_selection_is_filled_up_when_much_of_it_is_gone(engine: Engine, writer: Writer) -> None:
    group, most = Group(engine, 60), 32  # 30 are drawn, and at least 28 are kept

    async def run() -> None:
        feeds = Feeds(engine, most_peers=most)
        await publish(writer, group, 60)
        asks = Agent(group, group.members[0])
        await asks.fetch(feeds)
        assert len(asks.held) == 30
        gone = [one for one in group.members if one.name in asks.senders and one.name != "m0"][:4]
        for i, member in enumerate(gone):
            await writer.submit(lambda connection, id=member.id: admin.leave(connection, id))
            news = await asks.fetch(feeds)
            assert len(news.gone) == 1 and len(asks.held) == (29, 28, 30, 29)[i]
            assert len(news.handed) == (3 if i == 2 else 0)
        feeds.stop()

    asyncio.run(run())


def test_the_sample_is_uniform(engine: Engine, writer: Writer) -> None:
    group, most = Group(engine, 60), 20

    async def run() -> None:
        feeds = Feeds(engine, most_peers=most)
        await publish(writer, group, 50)
        counts = dict.fromkeys((member.name for member in group.members[:50]), 0)
        for i in range(200):
            member = SimpleNamespace(id=10_000 + i)  # somebody without a message
            agent = Agent(group, member)
            await agent.fetch(feeds)
            assert len(agent.held) == most - 1
            for sender in agent.senders:
                counts[sender] += 1
        # 200 draws with probability 0.38 each: 76 ± 7
        assert min(counts.values()) > 41 and max(counts.values()) < 111
        feeds.stop()

    asyncio.run(run())


def test_a_sample_shrinks_when_it_has_grown_too_large(engine: Engine, writer: Writer) -> None:
    group, most = Group(engine, 200), 32

    async def run() -> None:
        feeds, agent = Feeds(engine, most_peers=most), Agent(group, group.members[0])
        before: set[str] = set()
        known: set[str] = set()
        for count in (20, 40, 60, 120, 200):
            await publish(writer, group, count, sequence=count)
            await agent.fetch(feeds)
            assert agent.senders.items() <= group.out().items() and "m0" in agent.senders
            assert len(agent.held) == count if count <= most else 28 <= len(agent.held) <= most
            assert {*agent.senders} & known <= before  # nobody comes that was there already
            before, known = {*agent.senders}, {*group.out()}
        agent.cursor = agent.cursor.rpartition(".")[0] + ".ffffffffffffffff"  # a greedy member
        await writer.publish(group.members[1], group.message("m1", 999))
        news = await agent.fetch(feeds)
        assert news.is_all and len(news.handed) <= most
        feeds.stop()

    asyncio.run(run())


def test_what_others_committed_before_a_fetch_is_in_it(engine: Engine, database_url: str) -> None:
    """A fetch that arrives while another one looks at the database waits for the next look."""
    group, other = Group(engine, 2), open_database(database_url)

    async def run() -> None:
        feeds, writer = Feeds(engine), Writer(other)
        for sequence in range(1, 30):
            early = [asyncio.ensure_future(Agent(group, group.members[0]).fetch(feeds))]
            await asyncio.sleep(0)
            await writer.publish(group.members[1], group.message("m1", sequence))
            late = Agent(group, group.members[0])
            await asyncio.gather(late.fetch(feeds), *early)
            assert late.senders["m1"] == group.message("m1", sequence).encode()
        writer.stop()
        feeds.stop()

    asyncio.run(run())
    other.dispose()


def test_many_fetches_share_a_look(engine: Engine, writer: Writer) -> None:
    group, looks = Group(engine, 3), list[str]()

    @event.listens_for(engine, "before_cursor_execute")
    def _count(*given: Any) -> None:
        looks.append(given[2])

    async def run() -> None:
        feeds = Feeds(engine)
        await publish(writer, group, 3)
        looks.clear()
        agents = [Agent(group, group.members[0]) for _ in range(100)]
        await asyncio.gather(*(agent.fetch(feeds) for agent in agents))
        assert all(len(agent.held) == 3 for agent in agents)
        feeds.stop()

    asyncio.run(run())
    assert len([one for one in looks if one.startswith("SELECT")]) <= 4


def test_a_large_federation_is_read_in_pages(
    engine: Engine, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.hub.feed._PAGE", 7)
    monkeypatch.setattr("fedbo.hub.feed._CHANGED", feed._CHANGED.limit(7))
    group = Group(engine, 28)

    async def run() -> None:
        feeds, agent = Feeds(engine, most_peers=10), Agent(group, group.members[0])
        for count in (7, 13, 28):
            await publish(writer, group, count, sequence=count)
            await agent.fetch(feeds)
            assert len(agent.held) == min(count, 10)
        await Agent(group, group.members[1]).fetch(feeds)
        feeds.stop()

    asyncio.run(run())


def test_after_a_restore_everything_is_handed_out_again(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 4)

    async def run() -> None:
        feeds, agent = Feeds(engine), Agent(group, group.members[0])
        await publish(writer, group, 4)
        await agent.fetch(feeds)
        group.change(schema.hub, 1, generation="restored")
        with begin(engine) as connection:
            connection.execute(schema.message.delete().where(schema.message.c.sender == "m3"))
        group.change(schema.federation, group.id, cursor=3)
        news = await agent.fetch(feeds)
        assert news.is_all and news.cursor == f"restored.{group.members[0].id}.3.ffffffffffffffff"
        assert agent.senders == group.out() and len(agent.held) == 3
        feeds.stop()

    asyncio.run(run())


def test_below_the_floor_everything_is_handed_out_again(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 4)

    async def run() -> None:
        feeds, early, late = Feeds(engine), *(Agent(group, one) for one in group.members[:2])
        await publish(writer, group, 4)
        await early.fetch(feeds)
        await writer.submit(lambda connection: admin.leave(connection, group.members[3].id))
        await late.fetch(feeds)
        with begin(engine) as connection:
            assert admin.prune(connection, days=-1) == 1
        for started in (feeds, Feeds(engine)):
            assert (await early.fetch(started)).is_all
            assert not (await late.fetch(started)).is_all
            assert early.senders == late.senders == group.out()
            early.cursor = early.cursor.replace(".5.", ".4.")
        feeds.stop()

    asyncio.run(run())


@pytest.mark.parametrize("most", [2, 1000])
def test_whoever_held_a_message_gets_its_withdrawal(
    engine: Engine, writer: Writer, most: int
) -> None:
    group = Group(engine, 5, signed=True)

    async def run() -> None:
        feeds = Feeds(engine, most_peers=most)
        for one in group.members[1:]:
            await writer.publish(one, group.message(one.name, 4, key=one.key))
        agents = [Agent(group, one) for one in group.members if one.name != "m1"]
        for agent in agents:
            await agent.fetch(feeds)
        gone = group.withdrawal("m1", 4, group.members[1].key)
        assert await writer.publish(group.members[1], gone)
        for agent in agents:
            held = "m1" in agent.senders
            news = await agent.fetch(feeds)
            told = [read(one.content) for one in news.handed]
            assert [one for one in told if isinstance(one, Withdrawal)] == [gone] * held
            assert "m1" not in agent.senders
            later = await agent.fetch(feeds)
            assert later.handed == ()
        feeds.stop()

    asyncio.run(run())


def test_after_many_removals_everything_is_handed_out_again(
    engine: Engine, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.hub.shelf.MOST_PEERS", 2)
    group = Group(engine, 10)

    async def run() -> None:
        feeds, agent = Feeds(engine), Agent(group, group.members[0])
        await publish(writer, group, 10)
        await agent.fetch(feeds)
        for count, gone in ((4, group.members[1:5]), (5, group.members[5:10])):
            for one in gone:
                await writer.submit(lambda connection, id=one.id: admin.leave(connection, id))
            assert (await agent.fetch(feeds)).is_all == (count == 5)
            assert agent.senders == group.out()
        feeds.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "x", "1", ".", "{g}.", "{g}.{m}", "{g}.{m}.2", "{g}.{m}.-1.f", "{g}.{m}.999.f"),
        *("{g}.{m}.٣.f", "{g}.{m}.2.-f", "{g}.{m}.2.f ", "z.{m}.2.f", "{g}.999.2.f"),
    ],
)
def test_a_cursor_that_means_nothing_gets_everything(
    engine: Engine, writer: Writer, cursor: str
) -> None:
    group = Group(engine, 2)
    (hub,) = group.all(schema.hub)

    async def run() -> None:
        feeds, agent = Feeds(engine), Agent(group, group.members[0])
        await publish(writer, group, 2)
        agent.cursor = cursor.format(g=hub.generation, m=agent.member.id)
        assert (await agent.fetch(feeds)).is_all
        assert len(agent.held) == 2
        feeds.stop()

    asyncio.run(run())


def test_epochs_and_federations_do_not_meet(engine: Engine, writer: Writer) -> None:
    liver, lung = Group(engine, 2, name="liver"), Group(engine, 2, name="lung")

    async def run() -> None:
        feeds = Feeds(engine)
        await publish(writer, liver, 2)
        later = FEDERATION.next_epoch(length_scale=0.9)
        await writer.submit(
            lambda connection: admin.add_epoch(connection, "liver", later, actor="test")
        )
        await writer.publish(liver.members[0], liver.message("m0", 5, epoch=1))
        agents = [Agent(liver, liver.members[0]), Agent(liver, liver.members[0])]
        agents.append(Agent(lung, lung.members[0]))
        for agent, epoch in zip(agents, (0, 1, 0), strict=True):
            news = await agent.fetch(feeds, epoch)
            assert news.epoch == (1 if agent.group is liver else 0)
        assert [len(agent.held) for agent in agents] == [2, 1, 0]
        with pytest.raises(Refused) as refused:
            await agents[2].fetch(feeds, 1)
        assert refused.value.slug == "wrong-epoch"
        with pytest.raises(Refused) as refused:
            await feeds.news(999, 1, Wanted(0))
        assert refused.value.slug == "no-such-federation"
        assert len(feeds) == 3
        feeds.stop()

    asyncio.run(run())


def test_who_joins_again_gets_everything_again(engine: Engine, writer: Writer) -> None:
    group, most = Group(engine, 60), 20

    async def run() -> None:
        feeds, agent = Feeds(engine, most_peers=most), Agent(group, group.members[0])
        await publish(writer, group, 60)
        await agent.fetch(feeds)
        await writer.submit(lambda connection: admin.leave(connection, group.members[1].id))
        agent.member = group.members[2]  # another row: its sample is another one
        news = await agent.fetch(feeds)
        assert news.is_all and agent.senders.items() <= group.out().items()
        feeds.stop()

    asyncio.run(run())


def test_of_large_messages_fewer_are_handed_out(
    engine: Engine, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(engine, 30)
    size = len(group.message("m0", 1).encode())
    monkeypatch.setattr("fedbo.hub.shelf.ANSWER_BYTES", 10 * size + size // 2)

    async def run() -> None:
        feeds, agent = Feeds(engine), Agent(group, group.members[0])
        await publish(writer, group, 30)
        await agent.fetch(feeds)
        assert 5 <= len(agent.held) <= 10 and "m0" in agent.senders
        feeds.stop()

    asyncio.run(run())


@pytest.mark.parametrize("epoch", [3, 2**31 - 1])
def test_an_epoch_that_does_not_exist_takes_no_memory(engine: Engine, epoch: int) -> None:
    group = Group(engine, 1)

    async def run() -> None:
        feeds = Feeds(engine)
        with pytest.raises(Refused) as refused:
            await Agent(group, group.members[0]).fetch(feeds, epoch)
        assert refused.value.slug == "wrong-epoch"
        assert len(feeds) == 0 and feeds.nbytes == 0
        feeds.stop()

    asyncio.run(run())


def test_memory_is_bounded(engine: Engine, writer: Writer) -> None:
    groups = [Group(engine, 5, name=f"f{i}") for i in range(6)]

    async def run() -> None:
        feeds = Feeds(engine, most_bytes=10_000)
        agents = [Agent(group, group.members[0]) for group in groups]
        for _ in range(3):
            for agent in agents:
                await publish(writer, agent.group, 5)
                await agent.fetch(feeds)
                assert agent.senders == agent.group.out()
                assert len(feeds) < 4 and feeds.nbytes < 20_000
        feeds.stop()

    asyncio.run(run())


def test_a_database_that_does_not_answer_is_a_problem_that_passes(
    engine: Engine, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(engine, 2)

    async def run() -> None:
        feeds, agent = Feeds(engine), Agent(group, group.members[0])
        await publish(writer, group, 2)
        with monkeypatch.context() as patch:
            patch.setattr("fedbo.hub.feed._HEAD", text("SELECT * FROM nowhere"))
            for _ in range(2):
                with pytest.raises(Refused) as refused:
                    await agent.fetch(feeds)
                assert refused.value.slug == "not-ready" and refused.value.retry_after == 1
        await agent.fetch(feeds)
        assert len(agent.held) == 2
        feeds.stop()

    asyncio.run(run())


def test_whoever_has_gone_does_not_disturb_others(engine: Engine, writer: Writer) -> None:
    group = Group(engine, 2)

    async def run() -> None:
        feeds, agent = Feeds(engine), Agent(group, group.members[0])
        await publish(writer, group, 2)
        gone = asyncio.ensure_future(Agent(group, group.members[1]).fetch(feeds))
        stays = asyncio.ensure_future(agent.fetch(feeds))
        await asyncio.sleep(0)
        gone.cancel()
        await stays
        assert len(agent.held) == 2
        feeds.stop()

    asyncio.run(run())
