"""The exchange inside one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from contracts.exchange import ExchangeContract, message, sequences

from fedbo.exchange import MemoryExchange


class TestMemoryExchange(ExchangeContract):
    lists_all = False

    @pytest.fixture
    def exchange(self, tmp_path: Path) -> MemoryExchange:
        return MemoryExchange()


def test_two_of_them_are_two_places() -> None:
    one, two = MemoryExchange(), MemoryExchange()
    one.publish(message())
    assert sequences(one) == {"site-a": 1}
    assert sequences(two) == {}
