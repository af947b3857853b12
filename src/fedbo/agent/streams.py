"""The random streams of an agent."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np


class Stream(Enum):
    """What a stream of random numbers is for; its value is the spawn key of the stream.

    The agent's queries have the root stream. Everything else has a stream of its own, so that
    handing out a message, say, does not change the next query.
    """

    DESIGN = (1,)
    MESSAGE = (2,)
    QUERY = (3,)
    COMPACT = tuple(b"compact")
    TIP = tuple(b"tip")
    EXPLAIN = tuple(b"explain")

    def generator(self, entropy: Any, *key: int) -> np.random.Generator:
        """Return this stream of the agent with this entropy, from its beginning.

        A key, such as the number of a query, selects one of several streams.
        """
        seed = np.random.SeedSequence(entropy, spawn_key=(*self.value, *key))
        return np.random.default_rng(seed)
