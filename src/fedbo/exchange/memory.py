"""An exchange inside one process, for simulations, tests and studies in one program."""

from __future__ import annotations

import warnings
from typing import Any, Self

from fedbo.exchange.base import Exchange, ExchangeWarning, same_federation
from fedbo.federation import Federation
from fedbo.locks import Lock
from fedbo.message import Message, MessageRefused


class MemoryExchange(Exchange):
    """An exchange that keeps messages in the memory of this process.

    >>> from fedbo import Agent, Federation, Float
    >>> federation = Federation({"x": Float(0, 1)})
    >>> agent = Agent(federation, name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> exchange = MemoryExchange()
    >>> exchange.publish(agent.message()), len(exchange.fetch(federation))
    (True, 1)
    >>> exchange.withdraw(federation, "site-a"), len(exchange.fetch(federation))
    (True, 0)
    """

    def __init__(self) -> None:
        self.address = "memory"
        self._lock = Lock()
        self._held: dict[tuple[bytes, int], dict[str, Message]] = {}
        self._refused: set[Message] = set()  # each has had its warning

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def publish(self, message: Message) -> bool:
        with self._lock:
            held = self._held.setdefault((bytes(message.fingerprint), message.epoch), {})
            before = held.get(message.sender)
            if before is None or before.sequence < message.sequence:
                held[message.sender] = message
            return held[message.sender].encode() == message.encode()

    def fetch(self, federation: Federation) -> list[Message]:
        found, news = [], []
        with self._lock:
            held = self._held.get((bytes(federation.fingerprint), federation.epoch), {})
            for _, message in sorted(held.items()):
                try:
                    federation.check(message)
                    found.append(message)
                except MessageRefused as error:
                    if message not in self._refused:
                        self._refused.add(message)
                        news.append(f"a message was skipped: {error}")
        for text in news:
            warnings.warn(text, ExchangeWarning, stacklevel=2)
        return found

    def withdraw(self, federation: Federation, sender: str) -> bool:
        with self._lock:
            withdrawn = [
                held.pop(sender)
                for held in self._held.values()
                if sender in held and same_federation(federation, held[sender])
            ]
            self._refused.difference_update(withdrawn)
            return bool(withdrawn)
