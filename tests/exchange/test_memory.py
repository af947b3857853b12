"""The exchange inside one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from contracts.exchange import OURS, ExchangeContract, message, sequences, spoilt

from fedbo.exchange import ExchangeWarning, MemoryExchange


class TestMemoryExchange(ExchangeContract):
    @pytest.fixture
    def exchange(self, tmp_path: Path) -> MemoryExchange:
        return MemoryExchange()


def test_two_of_them_are_two_places() -> None:
    one, two = MemoryExchange(), MemoryExchange()
    one.publish(message())
    assert sequences(one) == {"site-a": 1}
    assert sequences(two) == {}


def test_what_is_sent_again_after_it_was_withdrawn_is_refused_anew() -> None:
    exchange = MemoryExchange()
    for _ in range(2):
        exchange.publish(spoilt(message()))
        with pytest.warns(ExchangeWarning):
            assert exchange.fetch(OURS) == []
        assert exchange.fetch(OURS) == []
        assert exchange.withdraw(OURS, "site-a")
