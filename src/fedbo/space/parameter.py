"""The kinds of parameter that a space can have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import msgspec

from fedbo.space.axis import (
    Axis,
    Choices,
    Continuous,
    Levels,
    Value,
    is_unicode,
    number,
    to_builtin,
)

MOST_CHOICES = 1000  # each takes a dimension of the cube

_N = TypeVar("_N", int, float)


class _Parameter(
    msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True, forbid_unknown_fields=True
):
    pass


class _Range(_Parameter, Generic[_N], frozen=True, repr_omit_defaults=True):
    low: _N
    high: _N

    def canonical(self) -> Self:
        """Return the parameter itself: it has nothing to sort."""
        return self


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
        choices: The choices, each a str, an int, a float, a bool or None.

    >>> Categorical(["rbf", "linear"])
    Categorical(choices=('rbf', 'linear'))
    """

    choices: Sequence[Value]

    def __post_init__(self) -> None:
        if isinstance(self.choices, str) or not isinstance(self.choices, Sequence):
            raise ValueError(f"choices is {self.choices!r}, expected a list of choices")
        choices = tuple(map(to_builtin, self.choices))
        if len(choices) > MOST_CHOICES:
            raise ValueError(f"there are {len(choices)} choices, expected at most {MOST_CHOICES}")
        for choice in choices:
            _check_choice(choice)
        if len(choices) < 2 or len({*choices}) < len(choices):
            raise ValueError(f"choices is {choices!r}, expected two or more, no two of them equal")
        msgspec.structs.force_setattr(self, "choices", choices)

    def axis(self) -> Axis:
        return Choices(self.choices)

    def canonical(self) -> Categorical:
        """Return the parameter with sorted choices: None, bools, numbers, strings.

        Numbers are sorted by size, strings by their code points.

        >>> Categorical(["b", 2, None, "a", 0.5, True]).canonical()
        Categorical(choices=(None, True, 0.5, 2, 'a', 'b'))
        """
        return Categorical(sorted(self.choices, key=_rank))


Parameter = Float | Int | Categorical


def _check_choice(choice: object) -> None:
    if choice is None or isinstance(choice, bool):
        return
    if isinstance(choice, str):
        if not is_unicode(choice):
            raise ValueError(
                f"choice {choice!r} contains half of a surrogate pair, which no file can hold"
            )
    elif math.isnan(number(choice, float)):
        raise ValueError(f"choice {choice!r} is not a str, a finite number, a bool or None")
    elif isinstance(choice, int) and not -(2**63) <= choice < 2**63:
        raise ValueError(f"choice {choice!r} is an int of more than 64 bits")


def _rank(choice: Value) -> tuple[int, Any]:
    if choice is None:
        return 0, 0
    if isinstance(choice, bool):
        return 1, choice
    return (3 if isinstance(choice, str) else 2), choice


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
