"""How much anyone may ask of a hub: requests a second and at once, failed log-ins, and memory."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache

from starlette.requests import ClientDisconnect, Request

from fedbo.hub.problems import Refused

#: The largest body of a request in JSON that is not about a federation file, in bytes.
JSON_BYTES = 64 * 1024
#: The largest federation file, in bytes, and what JSON adds to it.
FILE_BYTES = 1024 * 1024
#: Seconds that a body may take to arrive.
BODY_SECONDS = 10.0
BURST = 4  # seconds of requests that may come at once
_MOST_KEYS = 100_000  # members or addresses that are remembered


class Buckets:
    """Lets everyone do something so many times a second, and more for a short while.

    Args:
        rate: How often in a second; 0: there is no limit.
        burst: How often at once.
        most: How many keys are remembered; the ones that were seen last.

    >>> buckets = Buckets(rate=1.0, burst=2.0)
    >>> [buckets.take("a", now=5.0), buckets.take("a", now=5.0), buckets.take("a", now=5.25)]
    [0.0, 0.0, 0.75]
    """

    def __init__(self, rate: float, burst: float, most: int = _MOST_KEYS) -> None:
        self.rate, self.burst, self._most = rate, burst, most
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait(self, key: Hashable, now: float | None = None) -> float:
        """Return after how many seconds this key may do it again; 0: at once.

        Args:
            key: Who wants to do it.
            now: The time in seconds; by default a clock's.
        """
        if not self.rate:
            return 0.0
        level = self._level(key, time.monotonic() if now is None else now)
        return max(0.0, (1.0 - level) / self.rate)

    def take(self, key: Hashable, now: float | None = None, cost: float = 1.0) -> float:
        """Count one time, unless it is too often; return after how many seconds it is not.

        Args:
            key: Who wants to do it.
            now: The time in seconds; by default a clock's.
            cost: How many requests it counts as; never more than may be made at once.
        """
        if not self.rate:
            return 0.0
        now = time.monotonic() if now is None else now
        level, cost = self._level(key, now), min(cost, self.burst)
        if level < cost:
            return (cost - level) / self.rate
        self._levels[key] = level - cost, now
        self._levels.move_to_end(key)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return 0.0

    def _level(self, key: Hashable, now: float) -> float:
        level, when = self._levels.get(key, (self.burst, now))
        return min(self.burst, level + (now - when) * self.rate)


class AtOnce:
    """Counts what runs at the same time, for each key.

    >>> at_once = AtOnce()
    >>> [at_once.enter("a", most=2), at_once.enter("a", most=2), at_once.enter("a", most=2)]
    [True, True, False]
    >>> at_once.leave("a")
    >>> at_once.enter("a", most=2)
    True
    """

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    def enter(self, key: Hashable, most: int) -> bool:
        """Count one more of a key, unless so many run; return whether it was counted.

        Args:
            key: Whose it is.
            most: How many may run.
        """
        count = self._counts.get(key, 0)
        if count >= most:
            return False
        self._counts[key] = count + 1
        return True

    def leave(self, key: Hashable) -> None:
        """Count one less of a key.

        Args:
            key: Whose it was.
        """
        if (count := self._counts[key] - 1) > 0:
            self._counts[key] = count
        else:
            del self._counts[key]


class Room:
    """Limits how much memory large bodies take at the same time, in total and for each member.

    A larger one is accepted if nothing else is held.

    Args:
        most: Bytes of all.
        share: Bytes of one member.

    >>> room = Room(10**6, share=500_000)
    >>> with room.hold("a") as first, room.hold("b") as second:
    ...     first.take(700_000)
    ...     second.take(300_000)
    ...     room.taken
    1000000
    >>> room.taken
    0
    """

    def __init__(self, most: int, share: int) -> None:
        self.most, self.share = most, share
        self.taken = 0
        self.taken_of: dict[Hashable, int] = {}

    def hold(self, key: Hashable) -> Hold:
        """Return what keeps bytes for a body, in a ``with`` statement.

        Args:
            key: Whose it is.
        """
        return Hold(self, key)


class Hold:
    """The bytes that a `Room` has for one body."""

    __slots__ = ("_key", "_room", "_size")

    def __init__(self, room: Room, key: Hashable) -> None:
        self._room, self._key, self._size = room, key, 0

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        if self._size:
            self._add(-self._size)

    def take(self, size: int) -> None:
        """Keep more bytes; `Refused` if there are not so many.

        Args:
            size: How many more. A body that stays small is never refused.
        """
        if self._size + size > JSON_BYTES:
            self._check(size)
        self._add(size)

    def _check(self, size: int) -> None:
        room, own = self._room, self._room.taken_of.get(self._key, 0)
        if own > self._size and own + size > room.share:
            raise Refused(
                "too-many-requests",
                f"messages of more than {room.share:,} bytes are on their way for this member: "
                "wait until they have arrived",
                2,
            )
        if room.taken > self._size and room.taken + size > room.most:
            raise Refused("not-ready", "many large messages are on their way: try again soon", 2)

    def _add(self, size: int) -> None:
        room = self._room
        self._size += size
        room.taken += size
        if own := room.taken_of.get(self._key, 0) + size:
            room.taken_of[self._key] = own
        else:
            room.taken_of.pop(self._key, None)


def refuse_for(seconds: float, detail: str) -> Refused:
    """Return the problem of someone who must wait.

    Args:
        seconds: How long.
        detail: What there was too much of.
    """
    wait = max(1, math.ceil(seconds))
    return Refused("too-many-requests", f"{detail}: try again in {wait} s", retry_after=wait)


@lru_cache(maxsize=4096)
def network(address: str) -> str:
    """Return what counts as one address: an IPv6 network of 64 bits has one owner.

    >>> network("192.0.2.7"), network("2001:db8::1:2:3:4"), network("")
    ('192.0.2.7', '2001:db8::/64', '')
    """
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if given.version == 4:
        return str(given)
    if given.ipv4_mapped is not None:
        return str(given.ipv4_mapped)
    return str(ipaddress.ip_network((int(given) >> 64 << 64, 64)))


@lru_cache(maxsize=4096)
def is_among(address: str, networks: tuple[str, ...]) -> bool:
    """Tell whether an address is one of these, or in one of these networks.

    Args:
        address: The address.
        networks: Addresses and networks; ``*``: all of them.

    >>> is_among("10.0.0.7", ("192.0.2.1", "10.0.0.0/8")), is_among("", ("192.0.2.1",))
    (True, False)
    """
    if "*" in networks:
        return True
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(given in ipaddress.ip_network(one) for one in networks)


async def read_body(request: Request, most: int, hold: Hold | None = None) -> bytes:
    """Return the body of a request, which is not read further than it may be.

    Args:
        request: The request.
        most: How many bytes it may have.
        hold: Takes the bytes as they arrive; None if there cannot be many.

    Raises:
        Refused: If it is too large or too slow, or if there is no room for it.
    """
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part = message.get("body", b"")
                if (size := size + len(part)) > most:
                    raise _too_large(most)
                if hold is not None and part:
                    hold.take(len(part))
                parts.append(part)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise Refused(
            "too-slow",
            f"the body did not arrive within {BODY_SECONDS:g} s: try again",
        ) from None


def _too_large(most: int) -> Refused:
    return Refused("too-large", f"the body has more than {most:,} bytes, which are allowed here")
