"""How much anyone may ask of a hub: requests a second, wrong tokens, and bytes of a body."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable

from starlette.requests import ClientDisconnect, Request

from fedbo.hub.problems import Refused

#: The largest federation file, in bytes.
FILE_BYTES = 1024 * 1024
#: The largest body of a request in JSON; a federation file grows when it is escaped.
JSON_BYTES = 2 * FILE_BYTES
_MOST_KEYS = 100_000  # members or addresses that are remembered


class Buckets:
    """Lets everyone do something so many times a second, and more for a short while.

    Args:
        rate: How often in a second; 0: there is no limit.
        burst: How often at once.

    >>> buckets = Buckets(rate=1.0, burst=2.0)
    >>> [buckets.take("a", now=5.0), buckets.take("a", now=5.0), buckets.take("a", now=5.25)]
    [0.0, 0.0, 0.75]
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable, now: float | None = None) -> float:
        """Count one time, unless it is too often; return after how many seconds it is not.

        Args:
            key: Who does it.
            now: The time in seconds; by default a clock's.
        """
        if not self._rate:
            return 0.0
        now = time.monotonic() if now is None else now
        with self._lock:
            level, when = self._levels.get(key, (self._burst, now))
            level = min(self._burst, level + (now - when) * self._rate)
            if level < 1.0:
                return (1.0 - level) / self._rate
            self._levels[key] = level - 1.0, now
            self._levels.move_to_end(key)
            if len(self._levels) > _MOST_KEYS:
                self._levels.popitem(last=False)
            return 0.0


def refuse_for(seconds: float, detail: str) -> Refused:
    """Return the problem of someone who must wait.

    Args:
        seconds: How long.
        detail: What there was too much of.
    """
    wait = max(1, math.ceil(seconds))
    return Refused("too-many-requests", f"{detail}: try again in {wait} s", retry_after=wait)


def network(address: str) -> str:
    """Return what counts as one address: an IPv6 network of 64 bits has one owner.

    >>> network("192.0.2.7"), network("2001:db8::1:2:3:4"), network("testclient")
    ('192.0.2.7', '2001:db8::/64', 'testclient')
    """
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if given.version == 4:
        return str(given)
    return str(given.ipv4_mapped or ipaddress.ip_network((int(given) >> 64 << 64, 64)))


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request, which is not read further than it may be.

    Args:
        request: The request.
        most: How many bytes it may have.

    Raises:
        Refused: If it is too large.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    body = bytearray()
    is_more = True
    while is_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        is_more = message.get("more_body", False)
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> Refused:
    return Refused("too-large", f"the body has more than {most:,} bytes, which are allowed here")
