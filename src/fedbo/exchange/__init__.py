"""How messages travel: exchanges, their contract in `base`, and the ledger of what left."""

from fedbo.errors import ExchangeError
from fedbo.exchange.address import exchange_at
from fedbo.exchange.base import Exchange, Holding, Identity
from fedbo.exchange.errors import ExchangeWarning
from fedbo.exchange.folder import FolderExchange
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.ledger import Entry, Ledger
from fedbo.exchange.memory import MemoryExchange

__all__ = [
    "Entry",
    "Exchange",
    "ExchangeError",
    "ExchangeWarning",
    "FolderExchange",
    "Holding",
    "HubExchange",
    "Identity",
    "Ledger",
    "MemoryExchange",
    "exchange_at",
]
