"""How messages travel: one file an exchange, the contract in `base`, the log of what left."""

from fedbo.exchange.address import exchange_at
from fedbo.exchange.base import Exchange, ExchangeError, ExchangeWarning
from fedbo.exchange.folder import FolderExchange
from fedbo.exchange.ledger import Entry, Ledger
from fedbo.exchange.memory import MemoryExchange

__all__ = [
    "Entry",
    "Exchange",
    "ExchangeError",
    "ExchangeWarning",
    "FolderExchange",
    "Ledger",
    "MemoryExchange",
    "exchange_at",
]
