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

import math
import operator
from collections.abc import Sequence
from typing import Any, ClassVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

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
    """p_t = 1 - t^-exponent from t = 2 on, and p_1 = p_2.

    Args:
        exponent: How fast p_t tends to 1; above 0.

    >>> [round(Power(0.5)(t), 3) for t in (1, 2, 4, 100)]
    [0.293, 0.293, 0.5, 0.9]
    """

    exponent: float

    def __post_init__(self) -> None:
        _check(self, "exponent", self.exponent, 0.5)

    def __call__(self, t: int) -> float:
        return 1.0 - math.pow(max(_counted(t), 2), -self.exponent)


class Gradual(msgspec.Struct, frozen=True, tag="gradual", tag_field="type"):
    """p_t = 1 - (1 + t / scale)^-1/2: near 0 for t well below ``scale``, then 1 - √(scale / t).

    Args:
        scale: Number of queries until p_t reaches 0.29; above 0.

    >>> [round(Gradual(16)(t), 3) for t in (1, 16, 48, 1600)]
    [0.03, 0.293, 0.5, 0.9]
    """

    scale: float

    def __post_init__(self) -> None:
        _check(self, "scale", self.scale, 32)

    def __call__(self, t: int) -> float:
        return 1.0 - 1.0 / math.sqrt(1.0 + _counted(t) / self.scale)


class Steps(msgspec.Struct, frozen=True, tag="steps", tag_field="type"):
    """p_1, p_2, ... as listed; the last value stays. A single value is p_t in every query.

    Args:
        values: p_1, p_2, ...; each in (0, 1], never decreasing.

    >>> Steps((0.5, 0.75, 1.0))(2), Steps((0.5, 0.75, 1.0))(50)
    (0.75, 1.0)
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.values) == 0:
            raise ValueError("Steps has no values, expected at least p_1")
        for t, p in enumerate(self.values, 1):
            before = self.values[max(t - 2, 0)]
            if not (_is_number(p) and 0 < p <= 1):
                raise ValueError(f"p_{t} is {p!r}, expected a number above 0 and at most 1")
            if p < before:
                raise ValueError(
                    f"p_{t} is {p!r}, below p_{t - 1} = {before!r}; "
                    "expected a schedule that never decreases"
                )
        msgspec.structs.force_setattr(self, "values", tuple(float(p) for p in self.values))

    def __call__(self, t: int) -> float:
        return self.values[min(_counted(t), len(self.values)) - 1]


Schedule = Power | Gradual | Steps


def schedule_from(value: Schedule | float | Sequence[float] | NDArray[Any]) -> Schedule:
    """Return the schedule that a number, a sequence or a schedule stands for.

    >>> schedule_from(0.9), schedule_from([0.5, 1])
    (Steps(values=(0.9,)), Steps(values=(0.5, 1.0)))
    """
    if isinstance(value, Schedule):
        return value
    if _is_number(value):
        return Steps((value,))  # type: ignore[arg-type]
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
        return Steps(tuple(value))
    raise ValueError(
        f"schedule is {value!r}, expected a Power, Gradual or Steps, a number p, or a sequence p_t"
    )


def _check(schedule: Power | Gradual, name: str, value: object, usual: float) -> None:
    if not (_is_number(value) and 0 < value < math.inf and schedule(1) > 0):  # type: ignore[operator]
        raise ValueError(
            f"{type(schedule).__name__}'s {name} is {value!r}, expected a number above 0, such as "
            f"{usual}, that makes p_1 more than 0"
        )


def _counted(t: int) -> int:
    number = operator.index(t)
    if number < 1:
        raise ValueError(f"t is {number}, expected 1 or more: queries are counted from 1")
    return number


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
