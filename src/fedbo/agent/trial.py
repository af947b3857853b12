"""One trial of an agent: what was queried, who proposed it, how it ended."""

from __future__ import annotations

from typing import Literal

import msgspec

from fedbo.policy.base import Source
from fedbo.space.axis import Value

State = Literal["pending", "complete", "failed"]


class Trial(msgspec.Struct, kw_only=True):
    """A trial; its ``params`` are what the objective is to be called with.

    ``source`` says where the query came from: an ``initial`` point, the agent's ``own`` posterior
    draw, a ``peer`` (then ``peer`` is its name), the ``pool`` of all peers, or ``told`` without
    having been asked for. ``credit`` has the shares of the most important peers in it, by name,
    which add up to 1 at most; ``weights`` how much the policy counted on each of them when it
    chose, whoever it followed: what they lack to 1 it counted on the agent itself. ``t`` is the
    number of the policy's query, if it was one. ``score`` is in the user's units. ``agent`` is the
    name of the agent that it belongs to.

    >>> Trial(number=0, params={"C": 1.0}, source="own", t=1).state
    'pending'
    """

    number: int
    params: dict[str, Value]
    source: Source
    peer: str | None = None
    t: int | None = None
    state: State = "pending"
    score: float | None = None
    agent: str = ""
    credit: dict[str, float] = {}
    weights: dict[str, float] = {}
