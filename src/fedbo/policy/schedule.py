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
from collections.abc import Callable, Sequence
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
        if not (_is_number(self.exponent) and 0 < self.exponent < math.inf and self(1) > 0):
            raise ValueError(
                f"Power's exponent is {self.exponent!r}, expected a number above 0, such as 0.5, "
                "that makes p_2 = 1 - 2^-exponent more than 0"
            )

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
        if not (_is_number(self.scale) and 0 < self.scale < math.inf and self(1) > 0):
            raise ValueError(
                f"Gradual's scale is {self.scale!r}, expected a number above 0, such as 32, that "
                "makes p_1 = 1 - (1 + 1 / scale)^-1/2 more than 0"
            )

    def __call__(self, t: int) -> float:
        return 1.0 - 1.0 / math.sqrt(1.0 + _counted(t) / self.scale)


class Constant(msgspec.Struct, frozen=True, tag="constant", tag_field="type"):
    """The same p_t in every query; 1 means never to use a message.

    Args:
        p: The probability, in (0, 1] (default 1).

    >>> Constant(0.9)(7)
    0.9
    """

    p: float = 1.0

    def __post_init__(self) -> None:
        _require_rising([self.p])

    def __call__(self, t: int) -> float:
        _counted(t)
        return float(self.p)


class Steps(msgspec.Struct, frozen=True, tag="steps", tag_field="type"):
    """p_1, p_2, ... as listed; the last value stays.

    Args:
        values: p_1, p_2, ...; each in (0, 1], never decreasing.

    >>> Steps((0.5, 0.75, 1.0))(2), Steps((0.5, 0.75, 1.0))(50)
    (0.75, 1.0)
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.values) == 0:
            raise ValueError("Steps has no values, expected at least p_1")
        _require_rising(self.values)
        msgspec.structs.force_setattr(self, "values", tuple(float(p) for p in self.values))

    def __call__(self, t: int) -> float:
        return self.values[min(_counted(t), len(self.values)) - 1]


class Custom(msgspec.Struct, frozen=True, tag="custom", tag_field="type"):
    """p_t = function(t), checked in each query against p_{t-1}; it cannot be written to a file.

    >>> Custom(lambda t: t / (t + 1))(3)
    0.75
    """

    function: Any  # a function of t; msgspec knows no type for it

    def __call__(self, t: int) -> float:
        t = _counted(t)
        first = max(t - 1, 1)
        values = [self.function(s) for s in range(first, t + 1)]
        _require_rising(values, first)
        return float(values[-1])


Schedule = Power | Gradual | Constant | Steps | Custom


def schedule_from(
    value: Schedule | float | Sequence[float] | NDArray[Any] | Callable[[int], float],
) -> Schedule:
    """Return the schedule that a number, a sequence, a function or a schedule stands for.

    >>> schedule_from(0.9), schedule_from([0.5, 1])
    (Constant(p=0.9), Steps(values=(0.5, 1.0)))
    """
    if isinstance(value, Schedule):
        return value
    if _is_number(value):
        return Constant(float(value))  # type: ignore[arg-type]
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
        return Steps(tuple(value))
    if callable(value):
        return Custom(value)
    raise ValueError(
        f"schedule is {value!r}, expected a Power, Gradual, Constant or Steps, a number p, "
        "a sequence of p_t, or a function of t"
    )


def _counted(t: int) -> int:
    number = operator.index(t)
    if number < 1:
        raise ValueError(f"t is {number}, expected 1 or more: queries are counted from 1")
    return number


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _require_rising(values: Sequence[float], first: int = 1) -> None:
    """Refuse p_first, p_first+1, ... that leave (0, 1] or decrease."""
    before = values[0]
    for t, p in enumerate(values, first):
        if not (_is_number(p) and 0 < p <= 1):
            raise ValueError(f"p_{t} is {p!r}, expected a number above 0 and at most 1")
        if p < before:
            raise ValueError(
                f"p_{t} is {p!r}, below p_{t - 1} = {before!r}; "
                "expected a schedule that never decreases"
            )
        before = p
