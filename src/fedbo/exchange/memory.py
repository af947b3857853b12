"""An exchange inside one process, for simulations, tests and studies in one program."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from fedbo.caller import warn
from fedbo.exchange.base import Holding
from fedbo.exchange.choice import (
    OpenExchange,
    Origin,
    Outlawed,
    check_fit,
    chosen,
    foreign_notice,
    is_withdrawable,
    origin,
    replaces,
    signature_fault,
    withdrawal_of,
)
from fedbo.exchange.errors import ExchangeWarning
from fedbo.federation.federation import Federation
from fedbo.files import Lock
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair
from fedbo.message import Heard, Message, MessageRefused, Withdrawal


class MemoryExchange(OpenExchange):
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
        self._held: dict[tuple[str, Origin], tuple[Heard, float]] = {}
        self._withdrawn: dict[Origin, Withdrawal] = {}
        # What was warned of, by federation: messages that are skipped, and other federations.
        self._skipped: dict[bytes, set[tuple[Heard, str]]] = {}
        self._foreign: dict[bytes, set[bytes]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def publish(self, message: Heard) -> bool:
        key = message.type, origin(message)
        with self._lock:
            if message in Outlawed(self._withdrawn.values()):
                return False
            before, _ = self._held.get(key, (None, None))
            if replaces(message, before):
                self._held[key] = message, time.time()
            return self._held[key][0].encode() == message.encode()

    def _chosen(self, federation: Federation) -> list[Heard]:
        own = bytes(federation.fingerprint)
        with self._lock:
            fitting: list[Heard] = []
            faults: set[tuple[Heard, str]] = set()
            for message, _ in self._held.values():
                if message.fingerprint == own:
                    try:
                        check_fit(federation, message)
                        fitting.append(message)
                    except MessageRefused as error:
                        faults.add((message, str(error)))
            messages, refused = chosen(federation, self.keyring, fitting)
            faults.update(refused)
            news = sorted(text for _, text in faults - self._skipped.get(own, set()))
            self._skipped[own] = faults
            foreign = {message.fingerprint for message, _ in self._held.values()} - {own}
            new_foreign = foreign - self._foreign.get(own, set())
            self._foreign[own] = self._foreign.get(own, set()) | foreign
        for text in news:
            warn(f"a message was skipped: {text}", ExchangeWarning)
        if new_foreign:
            warn(foreign_notice(self.address, federation, new_foreign), ExchangeWarning)
        return messages

    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        source = Origin(bytes(federation.fingerprint), sender, keys.public if keys else b"")
        with self._lock:
            message, _ = self._held.get((Message.type, source), (None, None))
            if not isinstance(message, Message):
                return False
            if not is_withdrawable(message, federation, sender, keys, mine):
                return False
            del self._held[Message.type, source]
            if keys is not None:
                self._withdrawn[source] = withdrawal_of(message, keys)
        return True

    def holdings(self) -> list[Holding]:
        with self._lock:
            held = sorted(self._held.items())
        return [
            Holding(message, when, self.address, signature_fault(message))
            for _, (message, when) in held
        ]
