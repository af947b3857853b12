"""A hub as an exchange: the contract, on both databases, and what only a hub does."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from contracts.exchange import NAMES, ExchangeContract
from contracts.hub import HubProcess, OpenHub, new_postgresql

from fedbo import Message
from fedbo.exchange import Exchange

#: What cannot be the name of a member.
NO_MEMBERS = (".", "..", "../a", "/etc/passwd", " a ", "e\u0301", "/" * 64)


@pytest.fixture(scope="module")
def sqlite_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as hub:
        yield hub


@pytest.fixture(scope="module")
def postgresql_hub(postgresql_server: str) -> Iterator[HubProcess]:
    with new_postgresql(postgresql_server) as db, HubProcess(db) as hub:
        yield hub


@pytest.mark.filterwarnings("ignore:epoch . of the federation has begun")
class HubContract(ExchangeContract):
    guards_door = True
    tells_of_others = False
    names = tuple(name for name in NAMES if name not in NO_MEMBERS)

    @pytest.fixture
    def exchange(self, hub: HubProcess, own_state: None) -> OpenHub:
        return OpenHub(hub.address, hub.db, f"t{secrets.token_hex(6)}")

    def again(self, exchange: Exchange) -> OpenHub:
        assert isinstance(exchange, OpenHub)
        return OpenHub(exchange.address, exchange.db, exchange.town)

    def peer(self, i: int) -> str:
        return f"peer-{i // 15:02}/{i % 15:02}"  # a member may have 16 agents

    def put(self, exchange: Exchange, content: Message) -> None:
        assert isinstance(exchange, OpenHub)
        exchange.put(content)


class TestHubOnSQLite(HubContract):
    @pytest.fixture
    def hub(self, sqlite_hub: HubProcess) -> HubProcess:
        return sqlite_hub


class TestHubOnPostgreSQL(HubContract):
    @pytest.fixture
    def hub(self, postgresql_hub: HubProcess) -> HubProcess:
        return postgresql_hub
