"""What a policy is, how its answer is checked, and the sequences p_t and β_t of a policy.

=====  ====================================================================================
t      number of the query, from 1
p_t    ``schedule``: probability of using the agent's own draw in query t; 1 - p_t that of a
       peer's message (Algorithm 1). In (0, 1] and never decreasing: peers matter most at the
       start
β_t    ``beta``: factor on a draw's deviation from the mean
=====  ====================================================================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar, get_args

import msgspec
import numpy as np

from fedbo.message import Kind
from fedbo.model.kernel import Array
from fedbo.policy.target import Origin, Query, Target

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
        """Choose the next query of the agent that ``target`` describes."""
        raise TypeError(f"{type(self).__name__} does not say how to query: define query(target)")

    def chance(self, sender: str) -> float:
        """Return this peer's P_N before normalisation; 0 means that it is never drawn."""
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


class Power(msgspec.Struct, frozen=True, tag="power", tag_field="type"):
    """p_t = 1 - t^-exponent from t = 2 on, and p_1 = p_2. It tends to 1 as fast as it says.

    >>> [round(Power(0.5)(t), 3) for t in (1, 2, 4, 100)]
    [0.293, 0.293, 0.5, 0.9]
    """

    exponent: float

    def __post_init__(self) -> None:
        _check_positive(self, "exponent", self.exponent)

    def __call__(self, t: int) -> float:
        return 1.0 - math.pow(max(t, 2), -self.exponent)


class Gradual(msgspec.Struct, frozen=True, tag="gradual", tag_field="type"):
    """p_t = 1 - (1 + t / scale)^-1/2: near 0 for t well below ``scale``, then 1 - √(scale / t).

    >>> [round(Gradual(16)(t), 3) for t in (1, 16, 48, 1600)]
    [0.03, 0.293, 0.5, 0.9]
    """

    scale: float

    def __post_init__(self) -> None:
        _check_positive(self, "scale", self.scale)

    def __call__(self, t: int) -> float:
        return 1.0 - 1.0 / math.sqrt(1.0 + t / self.scale)


class Steps(msgspec.Struct, frozen=True, tag="steps", tag_field="type"):
    """p_1, p_2, ... as listed, in (0, 1] and never decreasing; the last value stays.

    >>> Steps((0.5, 0.75, 1.0))(2), Steps((0.5, 0.75, 1.0))(50)
    (0.75, 1.0)
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        values = tuple(map(float, self.values))
        rise = all(p <= q for p, q in itertools.pairwise(values))
        if not (values and rise and values[0] > 0.0 and values[-1] <= 1.0):
            raise ValueError(
                f"a schedule has the values {self.values!r}, expected probabilities above 0 and at "
                "most 1 that never decrease"
            )
        msgspec.structs.force_setattr(self, "values", values)

    def __call__(self, t: int) -> float:
        return self.values[min(t, len(self.values)) - 1]


Schedule = Power | Gradual | Steps


def schedule_from(value: Schedule | float | Sequence[float] | Array) -> Schedule:
    """Return the schedule that a number, a sequence or a schedule stands for.

    >>> schedule_from(0.9), schedule_from([0.5, 1])
    (Steps(values=(0.9,)), Steps(values=(0.5, 1.0)))
    """
    if isinstance(value, Schedule):
        return value
    return Steps(tuple(np.atleast_1d(value)))


def _check_positive(schedule: Power | Gradual, name: str, value: float) -> None:
    if not (0.0 < value < math.inf and schedule(1) > 0.0):
        raise ValueError(
            f"{type(schedule).__name__}'s {name} is {value!r}, expected a number above 0 that "
            "makes p_1 more than 0"
        )
