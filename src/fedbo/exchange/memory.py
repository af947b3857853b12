"""An exchange inside one process, for simulations, tests and studies in one program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Self

from fedbo.exchange.choice import (
    OpenExchange,
    Origin,
    choose,
    foreign,
    is_withdrawable,
    origin,
    origin_of,
    replaces,
    standing,
    tell,
    withdrawal_of,
)
from fedbo.federation.federation import Federation
from fedbo.files import Lock
from fedbo.identity.keyring import Keyring
from fedbo.identity.keys import KeyPair
from fedbo.message import Heard, Message, Withdrawal


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
        self._held: dict[tuple[str, Origin], Heard] = {}  # by type and origin
        self._withdrawn: dict[Origin, Withdrawal] = {}
        self._told: defaultdict[bytes, set[str]] = defaultdict(set)  # warnings, by federation

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def publish(self, message: Heard) -> bool:
        key = message.type, origin(message)
        with self._lock:
            if not standing([message], self._withdrawn.values()):
                return False
            if replaces(message, self._held.get(key)):
                self._held[key] = message
            return self._held[key].encode() == message.encode()

    def _chosen(self, federation: Federation) -> list[Heard]:
        own = bytes(federation.fingerprint)
        with self._lock:
            ours = [("a message", each) for each in self._held.values() if each.fingerprint == own]
            messages, faults = choose(federation, self.keyring, ours)
            others = {each.fingerprint for each in self._held.values()} - {own}
            faults += [foreign(self.address, federation, other) for other in sorted(others)]
            tell(faults, self._told[own], self.address)
        return messages

    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        source = origin_of(federation, sender, keys)
        with self._lock:
            message = self._held.get((Message.type, source))
            if message is None or not is_withdrawable(message, federation, sender, keys, mine):
                return False
            del self._held[Message.type, source]
            if keys is not None:
                self._withdrawn[source] = withdrawal_of(message, keys)
        return True
