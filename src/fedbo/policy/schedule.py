"""The sequence p_t: how likely an agent is to trust itself in query t.

=====  ====================================================================================
t      number of the query, from 1
p_t    probability of using the agent's own draw in query t; 1 - p_t that of a peer's message
       (Algorithm 1). In (0, 1] and never decreasing: peers matter most at the start
=====  ====================================================================================
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray


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
