"""The kinds of parameter that a space can have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from fedbo.space.axis import Axis, Choices, Continuous, Levels, Value, number, to_builtin

_N = TypeVar("_N", int, float)


class _Parameter(
    msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True, forbid_unknown_fields=True
):
    pass


class _Range(_Parameter, Generic[_N], frozen=True, repr_omit_defaults=True):
    low: _N
    high: _N


class Float(_Range[float], frozen=True, kw_only=True, tag="float"):
    """A number from ``low`` to ``high``.

    Args:
        low: Smallest value.
        high: Largest value.
        log: Whether the parameter is searched on a logarithmic scale (default False).
        step: Allow only ``low``, ``low + step``, ... ``high`` (default None: every number).

    >>> Float(1e-4, 10, log=True)
    Float(low=0.0001, high=10.0, log=True)
    """

    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        _check_range(self, float)
        if self.step is not None and self.step < 8 * math.ulp(max(abs(self.low), abs(self.high))):
            raise ValueError(f"step is {self.step}, too small to tell neighbours apart")
        self.axis()

    def axis(self) -> Axis:
        if self.step is None:
            return Continuous(self.low, self.high, log=self.log)
        return Levels(self.low, self.high, self.step)


class Int(_Range[int], frozen=True, kw_only=True, tag="int"):
    """A whole number from ``low`` to ``high``.

    Args:
        low: Smallest value.
        high: Largest value.
        log: Whether the parameter is searched on a logarithmic scale (default False).
        step: Allow only ``low``, ``low + step``, ... ``high`` (default 1).

    >>> Int(1, 9, step=2)
    Int(low=1, high=9, step=2)
    """

    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        _check_range(self, int)
        self.axis()

    def axis(self) -> Axis:
        return Levels(self.low, self.high, self.step, log=self.log)


class Categorical(_Parameter, frozen=True, tag="categorical"):
    """One of two or more choices without an order.

    Args:
        choices: The choices, each a str, an int, a float or a bool.

    >>> Categorical(["rbf", "linear"])
    Categorical(choices=('rbf', 'linear'))
    """

    choices: Sequence[Value]

    def __post_init__(self) -> None:
        if isinstance(self.choices, str) or not isinstance(self.choices, Sequence):
            raise ValueError(f"choices is {self.choices!r}, expected a list of choices")
        choices = tuple(map(to_builtin, self.choices))
        for choice in choices:
            if not isinstance(choice, str | bool) and math.isnan(number(choice, float)):
                raise ValueError(f"choice {choice!r} is not a str, a finite number or a bool")
        if len(choices) < 2 or len({*choices}) < len(choices):
            raise ValueError(f"choices is {choices!r}, expected two or more, no two of them equal")
        msgspec.structs.force_setattr(self, "choices", choices)

    def axis(self) -> Axis:
        return Choices(self.choices)


Parameter = Float | Int | Categorical


def _check_range(given: Float | Int, kind: type[int] | type[float]) -> None:
    for field in ("low", "high", "step") if given.step is not None else ("low", "high"):
        value = number(getattr(given, field), kind)
        if math.isnan(value) or (kind is int and abs(value) >= 2**63):
            numbers = "a finite number, at most 1e300 in size"
            expected = "an int of at most 64 bits" if kind is int else numbers
            raise ValueError(f"{field} is {getattr(given, field)!r}, expected {expected}")
        msgspec.structs.force_setattr(given, field, value)
    if not isinstance(given.log, bool):
        raise ValueError(f"log is {given.log!r}, expected True or False")
    if not given.low < given.high:
        raise ValueError(f"low is {given.low} and high is {given.high}, expected low < high")
    if given.log and given.low <= 0:
        raise ValueError(f"low is {given.low}, expected more than 0 on a log scale")
    if given.step is not None and given.step <= 0:
        raise ValueError(f"step is {given.step}, expected more than 0")
    if given.log and given.step != (1 if kind is int else None):
        raise ValueError(f"step is {given.step} and log is True: leave one of them out")
