"""The exchange inside one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from contracts.exchange import ExchangeContract

from fedbo.exchange import MemoryExchange


class TestMemoryExchange(ExchangeContract):
    lists_all = False
    knows_keys = False

    @pytest.fixture
    def exchange(self, tmp_path: Path) -> MemoryExchange:
        return MemoryExchange()
