"""The kinds of parameter, and where their values lie on the unit interval.

======  ===================================================================  ==================
symbol  meaning                                                              shape
======  ===================================================================  ==================
x, X    place of one value, places of n values: ``size`` numbers each        (size,), (n, size)
q       a value (Continuous) or a level (Levels), before any logarithm       scalar
K       number of levels                                                     scalar
k       a level, 0 ... K - 1; linear: it owns the cell [k / K, (k + 1) / K)  scalar
======  ===================================================================  ==================

For numbers x = (s(q) - start) / width, where s is the logarithm on a log scale and the identity
otherwise. A level lies at the centre of its cell. On a log scale the whole number v owns
[v - 1/2, v + 1/2) and lies at v.

Continuous values are rounded when they are encoded and decoded: to a decimal grid 12 digits below
their range, or to 12 significant digits on a log scale. A value that rounds to the same number as
an end of the range becomes that end. So a value that was decoded, or typed with at most 12 digits,
is restored exactly, for every range up to 1e300 in size.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Value = str | int | float | bool | None
Real = TypeVar("Real", np.float32, np.float64)
_N = TypeVar("_N", int, float)

LARGEST = 1e300  # size of a bound; differences and rounded values stay finite
MOST_LEVELS = 10**12  # and the largest level on a log scale; float64 can tell them apart
STEPS = 16  # places of a number on the public lattice
MOST_CHOICES = 1000  # each takes a dimension of the cube
_FINE = 256  # levels; with more, a grid is as good as continuous


def to_builtin(value: Any) -> Any:
    """Convert a NumPy scalar to its Python value; return anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def is_unicode(text: str) -> bool:
    r"""Whether a text can be written as UTF-8: one with half of a surrogate pair cannot.

    >>> is_unicode("é"), is_unicode("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def number(value: Any, kind: type[int] | type[float]) -> float:
    """Convert a value to ``kind``, never -0.0; NaN if it is not such a number or not finite.

    >>> number(np.int64(3), int), number(3, float), number(True, int), number("3", float)
    (3, 3.0, nan, nan)
    """
    real = to_builtin(value)
    if isinstance(real, bool) or not isinstance(real, int | kind) or not abs(real) <= LARGEST:
        return math.nan
    return kind(real) + kind(0)


# An axis has ``size`` dimensions of the cube, and says what it allows in words. `encode` returns
# the place of a value, or None if it is not allowed; `decode` the value nearest to a place, in
# Python's own types; `snap` the places of the values nearest to the rows of X (n, size); `lattice`
# the places (K, size) of the values that are on the public lattice.


class Continuous:
    """All numbers from low to high, on a linear or a logarithmic scale.

    >>> Continuous(1e-4, 10.0, log=True).decode([0.6])
    0.1
    """

    size = 1

    def __init__(self, low: float, high: float, *, log: bool) -> None:
        self.low, self.high, self.log = low, high, log
        self.digits = 12 - math.floor(math.log10(high - low))
        self.bottom, self.top = self._rounded(low), self._rounded(high)
        if log and self.bottom == self.top:
            ends = f"low is {low} and high is {high}"
            raise ValueError(f"{ends}, equal in the 12 digits of a log scale; use log=False")
        self.start = self._scaled(low)
        self.width = self._scaled(high) - self.start
        self.allowed = f"a number from {low} to {high}"

    def encode(self, value: Any) -> Sequence[float] | None:
        real = number(value, float)
        if not self.low <= real <= self.high:
            return None
        return ((self._scaled(self._rounded_inside(real)) - self.start) / self.width,)

    def decode(self, x: list[float]) -> float:
        if not 0.0 < x[0] < 1.0:
            return self.low if x[0] <= 0.0 else self.high
        scaled = self.start + x[0] * self.width
        return self._rounded_inside(math.exp(scaled) if self.log else scaled)

    def snap(self, X: Array) -> Array:
        return X

    def lattice(self) -> Array:
        places = [self.encode(self.decode([x])) for x in np.linspace(0.0, 1.0, STEPS).tolist()]
        return np.array(places)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else value

    def _rounded(self, value: float) -> float:
        return float(f"{value:.11e}") if self.log else round(value, self.digits)

    def _rounded_inside(self, value: float) -> float:
        value = self._rounded(value)
        if self.bottom < value < self.top:
            return value + 0.0  # -0.0 becomes 0.0
        return self.low if value <= self.bottom else self.high


class Levels:
    """The levels low, low + step, ... high: whole numbers if step is an int, otherwise decimals.

    >>> tenths = Levels(0.0, 1.0, 0.1)
    >>> tenths.decode([0.3]), tenths.encode(0.1 + 0.2) == tenths.encode(0.3)
    (0.3, True)
    """

    size = 1

    def __init__(self, low: float, high: float, step: float, *, log: bool = False) -> None:
        self.low, self.high, self.step, self.log = low, high, step, log
        self.whole = isinstance(step, int)
        # Level k is (first + k stride) / scale in whole numbers, so that 3 steps of 0.1 are 0.3.
        exact = [Fraction(repr(decimal)) for decimal in (low, high, step)]
        self.scale = math.lcm(*(fraction.denominator for fraction in exact))
        self.first, last, self.stride = (int(fraction * self.scale) for fraction in exact)
        steps, rest = divmod(last - self.first, self.stride)
        if rest:
            raise ValueError(
                f"high is {high}, which steps of {step} from {low} do not reach: "
                f"the largest they reach is {self._value(steps)}"
            )
        self.K = steps + 1
        if self.K > MOST_LEVELS or (log and high > MOST_LEVELS):
            raise ValueError(
                f"{low} to {high} in steps of {step} is too fine for a grid: expected at most "
                f"{MOST_LEVELS} levels, and high at most {MOST_LEVELS} if log is True; "
                "use a Float without step"
            )
        self.base = self.first if log else 0  # q = base + k
        self.start = float(self._scaled(self.base - 0.5))
        self.width = float(self._scaled(self.base + self.K - 0.5)) - self.start
        kind = "an int" if self.whole else "a number"
        self.allowed = f"{kind}: {low}, {self._value(1)}, ... {high}"

    def encode(self, value: Any) -> Sequence[float] | None:
        real = number(value, int if self.whole else float)
        if math.isnan(real):
            return None
        k = round((min(max(real, self.low), self.high) - self.low) / self.step)
        level = self._value(k)
        slack = 0.0 if self.whole else 1e-8 * self.step  # sums of steps differ from the decimals
        if real != level and abs(real - level) > slack:
            return None
        return (float(self._centre(k)),)

    def decode(self, x: list[float]) -> int | float:
        return self._value(int(self._level(x[0])))

    def snap(self, X: Array) -> Array:
        return np.asarray(self._centre(self._level(X)))

    def lattice(self) -> Array:
        if self.K <= _FINE:
            return np.asarray(self._centre(np.arange(self.K, dtype=np.float64)))[:, None]
        return np.unique(self.snap(np.linspace(0.0, 1.0, STEPS)))[:, None]

    def _value(self, k: int) -> int | float:
        multiple = self.first + k * self.stride
        return multiple if self.whole else multiple / self.scale

    # Numbers and arrays share these formulas, because NumPy's and Python's logarithms may differ in
    # the last bit, and a snapped place must be exactly an encoded one.

    def _scaled(self, q: Any) -> Any:
        return np.log(q) if self.log else q

    def _level(self, x: Any) -> Any:
        scaled = self.start + np.minimum(np.maximum(x, 0.0), 1.0) * self.width
        k = np.floor((np.exp(scaled) if self.log else scaled) + 0.5) - self.base
        return np.minimum(np.maximum(k, 0.0), self.K - 1.0)

    def _centre(self, k: Any) -> Any:
        return (self._scaled(self.base + k) - self.start) / self.width


class Choices:
    """Choices without an order: 0 or 1 for two choices, otherwise one-hot.

    A one-hot point stands for the choice with the largest number.

    >>> Choices(("rbf", "linear", "poly")).encode("linear")
    [0.0, 1.0, 0.0]
    """

    def __init__(self, choices: Sequence[Value]) -> None:
        self.choices = choices
        self.codes = np.eye(len(choices)) if len(choices) > 2 else np.array([[0.0], [1.0]])
        self.size = self.codes.shape[1]
        self.places: dict[Any, list[float]] = dict(zip(choices, self.codes.tolist(), strict=True))
        self.allowed = f"one of {', '.join(map(repr, choices))}"

    def encode(self, value: Any) -> Sequence[float] | None:
        return self.places.get(value) if isinstance(value, Hashable) else None

    def decode(self, x: list[float]) -> Value:
        return self.choices[x.index(max(x)) if self.size > 1 else int(x[0] >= 0.5)]

    def snap(self, X: Array) -> Array:
        chosen = np.argmax(X, axis=1) if self.size > 1 else (X[:, 0] >= 0.5).astype(np.intp)
        return self.codes.take(chosen, axis=0)  # a fifth of the time of codes[chosen]

    def lattice(self) -> Array:
        return self.codes


Axis = Continuous | Levels | Choices


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


Parameter = Float | Int | Categorical


def _check_choice(choice: object) -> None:
    is_small = not isinstance(choice, int) or -(2**63) <= choice < 2**63
    is_number = not math.isnan(number(choice, float)) and is_small
    is_text = isinstance(choice, str) and is_unicode(choice)
    if not (choice is None or isinstance(choice, bool) or is_text or is_number):
        expected = "a str in Unicode, a finite number of at most 64 bits, a bool or None"
        raise ValueError(f"choice {choice!r} is not {expected}")


def rank(choice: Value) -> tuple[int, Any]:
    """Return what choices of all types can be sorted by."""
    if choice is None:
        return 0, 0
    if isinstance(choice, bool):
        return 1, choice
    return (3 if isinstance(choice, str) else 2), choice


def _check_range(span: Float | Int, kind: type[int] | type[float]) -> None:
    for field in ("low", "high", "step") if span.step is not None else ("low", "high"):
        value = number(getattr(span, field), kind)
        if math.isnan(value) or (kind is int and abs(value) >= 2**63):
            numbers = "a finite number, at most 1e300 in size"
            expected = "an int of at most 64 bits" if kind is int else numbers
            raise ValueError(f"{field} is {getattr(span, field)!r}, expected {expected}")
        msgspec.structs.force_setattr(span, field, value)
    low, high, log, step = span.low, span.high, span.log, span.step
    if not low < high or (log and low <= 0) or (step is not None and step <= 0):
        wanted = "low < high, more than 0 on a log scale, and a step of more than 0"
        raise ValueError(f"low is {low}, high is {high} and step is {step}, expected {wanted}")
    if not isinstance(log, bool) or (log and step != (1 if kind is int else None)):
        raise ValueError(f"log is {log!r} and step is {step}, expected one of them")
