"""An exchange inside one process, for simulations, tests and studies in one program."""

from __future__ import annotations

from typing import Any, Self

from fedbo.exchange.base import OpenExchange
from fedbo.exchange.hearing import Hearing, foreign
from fedbo.exchange.latest import Content, Origin, latest, origin
from fedbo.federation.federation import Federation
from fedbo.files import Lock


class MemoryExchange(OpenExchange):
    """An exchange that keeps messages in the memory of this process.

    The agents of one program need no keys, and no signature is looked at.

    >>> from fedbo import Agent, Federation, Float
    >>> federation = Federation({"x": Float(0, 1)})
    >>> agent = Agent(federation, name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> exchange = MemoryExchange()
    >>> exchange.publish(agent.message()), len(exchange.fetch(federation))
    (True, 1)
    """

    def __init__(self) -> None:
        self.address = "memory"
        self._lock = Lock()
        self._places: dict[Origin, Content] = {}
        self._heard: dict[bytes, tuple[int, Hearing]] = {}  # by federation, after so many changes
        self._changes = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def publish(self, content: Content) -> bool:
        place = origin(content)
        with self._lock:
            before = self._places.get(place, content)
            (counting,) = latest([before, content]).values()
            if counting != self._places.get(place):
                self._places[place] = counting
                self._changes += 1
            return counting == content

    def _hearing(self, federation: Federation) -> Hearing:
        own = bytes(federation.fingerprint)
        with self._lock:
            new = 0, Hearing(federation, None, self.address)
            seen, hearing = self._heard.get(own, new)
            if not hearing.is_settled(federation) or seen != self._changes:
                entries = [(p.fingerprint, c) for p, c in self._places.items()]
                others = {fingerprint for fingerprint, _ in entries} - {own}
                hearing.hear(
                    (("a message", content.encode()) for place, content in entries if place == own),
                    [foreign(self.address, federation, other) for other in sorted(others)],
                )
                self._heard[own] = self._changes, hearing
        return hearing
