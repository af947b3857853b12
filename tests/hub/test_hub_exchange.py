"""A hub as an exchange: the contract, on both databases, and what only a hub does."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.exchange import (
    NAMES,
    OTHERS,
    OURS,
    ExchangeContract,
    heard,
    message,
    sequences,
    unwarned,
    withdrawal,
)
from contracts.hub import HubProcess, OpenHub, new_postgresql
from msgspec.structs import replace

from fedbo.errors import HubRefused
from fedbo.exchange import Exchange, ExchangeError, ExchangeWarning, Identity, Ledger
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.member import Member
from fedbo.exchange.hub.memberships import HubUrl, Memberships
from fedbo.exchange.latest import Content
from fedbo.message.message import MOST_PEERS
from fedbo.testing.keys import keys_of

#: What cannot be the name of a member.
NO_MEMBERS = (".", "..", "../a", "/etc/passwd", " a ", "e\u0301", "/" * 64)
LONGEST = 48  # bytes of a member's name


@pytest.fixture(scope="module")
def sqlite_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as hub:
        yield hub


@pytest.fixture(scope="module")
def postgresql_hub(postgresql_server: str) -> Iterator[HubProcess]:
    with new_postgresql(postgresql_server) as db, HubProcess(db) as hub:
        yield hub


class HubContract(ExchangeContract):
    guards_door = True
    tells_of_others = False
    lists_all = False
    names = (
        *(one for one in NAMES if one not in NO_MEMBERS and len(one.encode()) <= LONGEST),
        "x" * LONGEST,
        "語" * 16,
        "x" * LONGEST + "/" + "y" * 15,
    )

    @pytest.fixture
    def exchange(self, hub: HubProcess, own_state: None) -> OpenHub:
        return OpenHub(hub.address, hub.db, f"t{secrets.token_hex(6)}")

    def again(self, exchange: Exchange) -> OpenHub:
        assert isinstance(exchange, OpenHub)
        return OpenHub(exchange.address, exchange.db, exchange.town)

    def peer(self, i: int) -> str:
        return f"peer-{i // 15:02}/{i % 15:02}"  # a member may have 16 agents

    def put(self, exchange: Exchange, content: Content) -> None:
        assert isinstance(exchange, OpenHub)
        exchange.put(content)

    def put_back(self, exchange: Exchange, content: Content) -> None:
        self.put(exchange, content)


class TestHubOnSQLite(HubContract):
    @pytest.fixture
    def hub(self, sqlite_hub: HubProcess) -> HubProcess:
        return sqlite_hub


@pytest.mark.slow
class TestHubOnPostgreSQL(HubContract):
    @pytest.fixture
    def hub(self, postgresql_hub: HubProcess) -> HubProcess:
        return postgresql_hub


# What only a hub does


@pytest.fixture
def exchange(sqlite_hub: HubProcess) -> OpenHub:
    return OpenHub(sqlite_hub.address, sqlite_hub.db, f"t{secrets.token_hex(6)}")


def joined(exchange: OpenHub, name: str = "site-a") -> HubExchange:
    """The hub as a member comes to it, who has joined the federation of these tests."""
    federation = exchange.come(OURS)
    for one in Memberships().at(HubUrl(exchange.url.base, federation)):
        Memberships().remove(one)
    exchange.office.enrol(exchange.url.base, federation, name)
    return HubExchange(f"{exchange.url.base}/{federation}")


def test_what_was_withdrawn_cannot_be_put_back_by_the_hub(exchange: OpenHub) -> None:
    mine = joined(exchange)
    sent = message(sequence=5)
    assert mine.publish(sent) and heard(mine) == [sent]
    assert mine.publish(withdrawal(sent)) and heard(mine) == []
    exchange.put(sent)
    with pytest.warns(ExchangeWarning, match="a later one of this sender was heard here before"):
        assert heard(mine) == []
    assert unwarned(HubExchange(mine.address)) == []  # nor by a program that starts later
    later = message(sequence=6)
    assert mine.publish(later) and heard(mine) == [later]


def test_a_token_can_be_rotated_while_others_use_it(exchange: OpenHub) -> None:
    mine = joined(exchange)
    mine.publish(message())
    before = Memberships().all()[-1]
    member = mine.member(OURS.fingerprint)
    assert member.membership.token == before.token
    Member(before, Memberships()).rotate()
    after = Memberships().all()[-1]
    assert after == replace(before, token=after.token) and after.token != before.token
    assert mine.publish(message(sequence=2)) is True
    Memberships().add(before)
    with pytest.raises(HubRefused, match="revoked or removed, the token was rotated") as caught:
        HubExchange(mine.address).fetch(OURS)
    assert caught.value.slug == "wrong-token"
    assert before.token not in str(caught.value) + repr(before) + repr(mine) + repr(member)


def test_who_is_no_member_learns_how_to_become_one(exchange: OpenHub) -> None:
    stranger = HubExchange(exchange.url.base)
    for call in (
        lambda: stranger.fetch(OURS),
        lambda: stranger.publish(message()),
        lambda: stranger.publish(withdrawal(message())),
        lambda: stranger.identity(OURS),
        stranger.holdings,
        stranger.member,
    ):
        with pytest.raises(ExchangeError, match=r"not a member .* fedbo join .* --invite FILE"):
            call()
    mine = joined(exchange, "clinic")
    assert mine.identity(OURS) == Identity("clinic", str(keys_of("clinic")))
    with pytest.raises(ExchangeError, match=f"not a member .*, only of {mine.address}: check the"):
        HubExchange("https://locahost:8765").fetch(OURS)
    with pytest.raises(ExchangeError, match=r"'liver' is not an agent of yours .* 'clinic/liver'"):
        mine.publish(message(sender="liver"))
    with pytest.raises(ExchangeError, match="this is another federation"):
        mine.fetch(OTHERS["seed"])


def test_of_several_federations_the_address_names_one(exchange: OpenHub) -> None:
    names = [f"{exchange.town}-{i}" for i in range(2)]
    for name in names:
        exchange.office.create(name, OURS)
        exchange.office.enrol(exchange.url.base, name, "clinic")
    with pytest.raises(ExchangeError, match=f"several federations .*{names[0]} and .*{names[1]}"):
        HubExchange(exchange.url.base).fetch(OURS)
    first, second = (HubExchange(f"{exchange.url.base}/{name}") for name in names)
    first.publish(message(sender="clinic"))
    assert (len(first.fetch(OURS)), len(second.fetch(OURS))) == (1, 0)


def test_of_very_many_peers_the_latest_are_held(exchange: OpenHub) -> None:
    mine = joined(exchange)
    names = [f"peer-{i:04}" for i in range(1300)]
    exchange.office.put(mine.url.federation, *(message(sender=name) for name in names))
    assert [*sequences(mine)] == names[-MOST_PEERS:]
    mine.publish(message())
    held = sequences(mine).keys()
    assert held == {"site-a", *names[1 - MOST_PEERS :]}
    exchange.office.take_back(mine.url.federation, names[-300:])
    assert sequences(mine).keys() == held - {*names[-300:]}


def test_a_hub_that_was_killed_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.exchange.hub.client.BUDGET", 1.0)
    hub = HubProcess(f"sqlite:///{tmp_path}/hub.db").start()
    try:
        exchange = OpenHub(hub.address, hub.db, "t")
        exchange.publish(message())
        assert sequences(exchange) == {"site-a": 1}
        hub.kill()
        with pytest.raises(ExchangeError, match="check"):
            exchange.fetch(OURS)
        hub.start()
        assert sequences(exchange) == {"site-a": 1}
        assert exchange.publish(message(sequence=2)) is True
    finally:
        hub.stop()


def test_nothing_that_is_kept_or_said_has_a_token(
    exchange: OpenHub, sqlite_hub: HubProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    mine = joined(exchange)
    token = Memberships().all()[-1].token
    ledger = Ledger()
    ledger.publish(mine, message())
    mine.fetch(OURS)
    mine.holdings()
    with pytest.raises(ExchangeError) as caught:
        mine.publish(message(OTHERS["kind"], fingerprint=bytes(OURS.fingerprint)))
    mine.member().leave()
    said = caplog.text + str(caught.value) + sqlite_hub.log + ledger.path.read_text()
    assert caplog.text and mine.address in ledger.path.read_text()
    assert token not in said
