"""What is computed for many viewers, and kept as long as it is right."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

_SHARE = 0.1  # of the time that may be spent on one thing


class Latest(NamedTuple, Generic[T]):
    """A value, and the state of what it was computed from."""

    value: T
    state: Hashable


class Kept(Generic[T]):
    """A value that is computed again when its state has changed, but not too often.

    Those who ask while it is computed wait for it. It belongs to one event loop.

    Args:
        pause: Seconds from one computation to the next, at least. A slow one waits longer.
    """

    def __init__(self, pause: float) -> None:
        self._pause, self._lock = pause, asyncio.Lock()
        self._latest: Latest[T] | None = None
        self._next = 0.0

    async def latest(self, state: Hashable, compute: Callable[[], Awaitable[T]]) -> Latest[T]:
        """Return the value, which may be a little older than the state.

        Args:
            state: What the value depends on, now.
            compute: Computes the value.
        """
        async with self._lock:
            found, now = self._latest, time.monotonic()
            if found is None or (found.state != state and now >= self._next):
                found = self._latest = Latest(await compute(), state)
                end = time.monotonic()
                self._next = end + max(self._pause, (end - now) / _SHARE)
            return found
