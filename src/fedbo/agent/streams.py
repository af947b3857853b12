"""The random streams of an agent besides the one of its queries."""

from __future__ import annotations

from enum import Enum


class Stream(Enum):
    """A stream of random numbers for one purpose; its value is part of the seed."""

    DESIGN = (1,)
    MESSAGE = (2,)
    QUERY = (3,)
    SCALARS = tuple(b"scalars")
    EXPLAIN = tuple(b"explain")
