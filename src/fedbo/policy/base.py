"""What a policy is, and how its answer is checked.

======  =======================================================  ========
symbol  meaning                                                  shape
======  =======================================================  ========
P_N     distribution over the peers whose message is not used    (N,)
β_t     factor on an own draw's deviation from the mean          scalar
======  =======================================================  ========
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, get_args

import msgspec
import numpy as np

from fedbo.message import Kind
from fedbo.model.kernel import Array
from fedbo.policy.query import Origin, OriginError, Query
from fedbo.policy.target import Target

Beta = float | tuple[float, ...]

_SLACK = 1e-9  # rounding at the faces of the cube


class Policy(msgspec.Struct, frozen=True):
    """The rule by which an agent picks its next query.

    The contract: `query` is called for each query after the initial points, possibly several times
    before the next score. It takes all randomness from ``target.rng``, keeps no state, and changes
    nothing but the inbox, where it marks the messages that it used. `chance` is called for each
    message that arrives. ``kinds`` are the kinds of message that the policy can use, the one that
    suits it best first.

    >>> class Centre(Policy, frozen=True):
    ...     def query(self, target):
    ...         return Query(np.full(target.space.dimensions, 0.5))
    >>> Centre().chance("site-a")
    1.0
    """

    kinds: ClassVar[tuple[Kind, ...]] = get_args(Kind)

    def query(self, target: Target) -> Query:
        """Choose the next query of the agent that ``target`` describes.

        Args:
            target: The agent that asks, as its policy sees it.
        """
        raise TypeError(f"{type(self).__name__} does not say how to query: define query(target)")

    def starts(self, n_initial: int, messages: int) -> int:
        """Return how many initial points come before the first query.

        Args:
            n_initial: The number that the agent's settings ask for; the default.
            messages: How many messages the agent holds that say something.
        """
        return n_initial

    def chance(self, sender: str) -> float:
        """Return this peer's P_N before normalisation; 0 means that it is never drawn.

        Args:
            sender: The name of the peer.
        """
        return 1.0


def checked_query(policy: Policy, target: Target) -> Query:
    """Return the policy's next query, or raise an error that names the policy if it is invalid."""
    name = type(policy).__name__
    try:
        query = policy.query(target)
    except OriginError as error:
        raise ValueError(f"policy {name} made an invalid origin: {error}") from error
    if not isinstance(query, Query):
        raise TypeError(
            f"policy {name} returned {query!r}, expected a fedbo.Query: return "
            "target.query_draw(draw), or fedbo.Query(x)"
        )
    if not isinstance(query.origin, Origin):
        raise TypeError(f"policy {name} returned the origin {query.origin!r}, expected an Origin")
    try:
        x = np.asarray(query.x, dtype=np.float64)
    except (TypeError, ValueError):
        x = np.empty(0)
    low, high = target.space.box
    if x.shape != low.shape or not ((x >= low - _SLACK) & (x <= high + _SLACK)).all():
        raise ValueError(
            f"policy {name} returned x = {query.x!r}, which is not a point of the space: expected "
            f"{len(low)} finite numbers from {low.tolist()} to {high.tolist()}"
        )
    return Query(x, query.origin)


def beta_from(value: float | Sequence[float] | Array) -> Beta:
    """Return a constant β, or a sequence β_1, β_2, …, as a policy stores it.

    >>> beta_from(1), beta_from([2, 3])
    (1.0, (2.0, 3.0))
    """
    value = value.tolist() if isinstance(value, np.ndarray) else value
    values = tuple(map(float, value)) if isinstance(value, Sequence) else (float(value),)
    if not values or not all(0.0 <= b < math.inf for b in values):
        raise ValueError(
            f"beta is {value!r}, expected a number of 0 or more, or a sequence of them"
        )
    return values if isinstance(value, Sequence) else values[0]


def beta_at(beta: Beta, t: int) -> float:
    """Return β_t; the last value of a sequence stays.

    >>> beta_at(1.0, 7), beta_at((2.0, 3.0), 1), beta_at((2.0, 3.0), 7)
    (1.0, 2.0, 3.0)
    """
    return beta if isinstance(beta, float) else beta[min(t, len(beta)) - 1]
