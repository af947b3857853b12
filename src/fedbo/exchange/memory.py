"""An exchange inside one process, for simulations, tests and studies in one program."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from fedbo.caller import warn
from fedbo.exchange.base import Exchange, ExchangeWarning, Holding
from fedbo.exchange.choice import (
    Outlawed,
    audible,
    chosen,
    contributed,
    foreign_notice,
    is_withdrawable,
    origin,
    replaces,
    same_federation,
    signature_fault,
    withdrawal_of,
)
from fedbo.federation import Federation
from fedbo.identity import KeyPair, Keyring, verify
from fedbo.locks import Lock
from fedbo.message import Heard, Message, MessageRefused, Withdrawal

_Place = tuple[bytes, int]  # a federation and an epoch
_Origin = tuple[bytes, int, str, bytes]  # and a sender and its key


class MemoryExchange(Exchange):
    """An exchange that keeps messages in the memory of this process.

    Args:
        keyring: Which keys belong to whom; by default a new one that is in memory too.

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

    def __init__(self, keyring: Keyring | None = None) -> None:
        self.address = "memory"
        self.keyring: Keyring = Keyring() if keyring is None else keyring
        self._lock = Lock()
        # With the type, and when it was published.
        self._held: dict[tuple[str, *_Origin], tuple[Heard, float]] = {}
        self._withdrawn: dict[_Origin, Withdrawal] = {}
        self._told: dict[_Place, set[tuple[Heard, str]]] = {}  # each has had its warning
        self._foreign: dict[_Place, set[bytes]] = {}  # other federations that were reported

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def publish(self, message: Heard) -> bool:
        key = message.type, *origin(message)
        with self._lock:
            if message in Outlawed(self._withdrawn.values()):
                return False
            before, _ = self._held.get(key, (None, None))
            if replaces(message, before):
                self._held[key] = message, time.time()
            return self._held[key][0].encode() == message.encode()

    def fetch(self, federation: Federation) -> list[Heard]:
        return audible(federation, self._chosen(federation))

    def contributions(self, federation: Federation) -> list[Message]:
        return contributed(federation, self._chosen(federation))

    def _chosen(self, federation: Federation) -> list[Heard]:
        place = bytes(federation.fingerprint), federation.epoch
        with self._lock:
            fitting: list[Heard] = []
            faults: set[tuple[Heard, str]] = set()
            for message, _ in self._held.values():
                if place == (message.fingerprint, message.epoch):
                    try:
                        federation.check(message)
                        if message.key:
                            verify(message)
                        fitting.append(message)
                    except MessageRefused as error:
                        faults.add((message, str(error)))
            found, refused = chosen(federation, self.keyring, fitting)
            faults.update(refused)
            news = sorted(text for _, text in faults - self._told.get(place, set()))
            self._told[place] = faults
            foreign = self._count_foreign(federation)
        for text in news:
            warn(f"a message was skipped: {text}", ExchangeWarning)
        if foreign:
            warn(foreign_notice(self.address, federation, foreign), ExchangeWarning)
        return found

    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        withdrawn = []
        with self._lock:
            for key, (message, _) in list(self._held.items()):
                if isinstance(message, Message) and is_withdrawable(
                    message, federation, sender, keys, mine
                ):
                    withdrawn.append(message)
                    del self._held[key]
                    if keys is not None:
                        self._withdrawn[origin(message)] = withdrawal_of(message, keys)
            for told in self._told.values():
                told.difference_update([one for one in told if one[0] in withdrawn])
        return bool(withdrawn)

    def holdings(self) -> list[Holding]:
        with self._lock:
            held = sorted(self._held.items())
        return [
            Holding(message, when, self.address, signature_fault(message))
            for _, (message, when) in held
        ]

    def _count_foreign(self, federation: Federation) -> Counter[bytes]:
        """Count the messages of each other federation that was not reported before."""
        known = self._foreign.setdefault((bytes(federation.fingerprint), federation.epoch), set())
        foreign = Counter(
            message.fingerprint
            for message, _ in self._held.values()
            if not same_federation(federation, message) and message.fingerprint not in known
        )
        known.update(foreign)
        return foreign
