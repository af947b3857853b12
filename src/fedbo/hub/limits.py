"""How much anyone may ask of a hub: requests a second, failed log-ins, and the size of a body."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator
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

    def take(self, key: Hashable, now: float | None = None) -> float:
        """Count one time, unless it is too often; return what `wait` returned before."""
        if not self.rate:
            return 0.0
        now = time.monotonic() if now is None else now
        level = self._level(key, now)
        if level < 1.0:
            return (1.0 - level) / self.rate
        self._levels[key] = level - 1.0, now
        self._levels.move_to_end(key)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return 0.0

    def _level(self, key: Hashable, now: float) -> float:
        level, when = self._levels.get(key, (self.burst, now))
        return min(self.burst, level + (now - when) * self.rate)


class Room:
    """Limits how much memory large bodies take at the same time.

    Args:
        most: In bytes.

    >>> room = Room(100)
    >>> with room.for_bytes(90), room.for_bytes(10):
    ...     room.taken
    100
    """

    def __init__(self, most: int) -> None:
        self._most, self.taken = most, 0

    @contextlib.contextmanager
    def for_bytes(self, size: int) -> Iterator[None]:
        """Keep so many bytes free for a body; `Refused` if there are not so many.

        Args:
            size: The largest size that it may have.
        """
        if size > JSON_BYTES and self.taken and self.taken + size > self._most:
            raise Refused("not-ready", "the hub reads many large messages: try again soon", 2)
        self.taken += size
        try:
            yield
        finally:
            self.taken -= size


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


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request, which is not read further than it may be.

    Args:
        request: The request.
        most: How many bytes it may have.

    Raises:
        Refused: If it is too large or too slow.
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
