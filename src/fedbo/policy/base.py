"""What a policy is, and how its answer is checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, get_args

import msgspec
import numpy as np

from fedbo.message import Kind
from fedbo.model.kernel import Array
from fedbo.policy.query import Origin, Query
from fedbo.policy.target import Target

Beta = float | tuple[float, ...]

_SLACK = 1e-9  # rounding at the faces of the cube


class Policy(msgspec.Struct, frozen=True):
    """The rule by which an agent picks its next query.

    The contract: `query` is called for each query after the initial points, possibly several times
    before the next score; if the policy ``begins``, it is called for the first trials too, and
    takes ``target.initial`` where it wants an initial point. It takes all randomness from
    ``target.rng``, keeps no state, and changes nothing but the inbox, where it marks the messages
    that it used. `chance` is called for each message that arrives. ``kinds`` are the kinds of
    message that the policy can use, the one that suits it best first.

    >>> class Centre(Policy, frozen=True):
    ...     def query(self, target):
    ...         return Query(np.full(target.space.dimensions, 0.5))
    >>> Centre().chance("site-a")
    1.0
    """

    kinds: ClassVar[tuple[Kind, ...]] = get_args(Kind)
    begins: ClassVar[bool] = False

    def query(self, target: Target) -> Query:
        """Choose the next query of the agent that ``target`` describes.

        Args:
            target: The agent that asks, as its policy sees it.
        """
        raise TypeError(f"{type(self).__name__} does not say how to query: define query(target)")

    def chance(self, sender: str) -> float:
        """Return this peer's P_N before normalisation; 0 means that it is never drawn.

        Args:
            sender: The name of the peer.
        """
        return 1.0


def checked_query(policy: Policy, target: Target) -> Query:
    """Return the policy's next query, or raise an error that names the policy if it is invalid."""
    name = type(policy).__name__
    query = policy.query(target)
    if not isinstance(query, Query) or not isinstance(query.origin, Origin):
        raise TypeError(
            f"policy {name} returned {query!r}, expected a fedbo.Query with an Origin: return "
            "target.query_draw(draw), or fedbo.Query(x)"
        )
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
    """Return a constant β, or β_1, β_2, …, as a policy stores it: factors on a draw's deviation."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    values = tuple(map(float, value)) if isinstance(value, Sequence) else (float(value),)
    if not values or not all(0.0 <= b < math.inf for b in values):
        raise ValueError(
            f"beta is {value!r}, expected a number of 0 or more, or a sequence of them"
        )
    return values if isinstance(value, Sequence) else values[0]


def beta_at(beta: Beta, t: int) -> float:
    """Return β_t; the last value of a sequence stays."""
    return beta if isinstance(beta, float) else beta[min(t, len(beta)) - 1]
