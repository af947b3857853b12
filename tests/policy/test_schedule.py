"""Schedules stay in (0, 1], never decrease, and say which p_t is wrong."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.policy.base import Gradual, Power, Schedule, Steps, schedule_from

probabilities = st.floats(0, 1, exclude_min=True)


def test_power_is_the_papers_sequence() -> None:
    fast, slow = Power(2), Power(0.5)
    assert fast(1) == fast(2) == 0.75  # p_1 = p_2
    assert fast(10) == pytest.approx(1 - 1 / 100)
    assert slow(1) == slow(2) == pytest.approx(1 - 1 / math.sqrt(2))
    assert slow(50) == pytest.approx(1 - 1 / math.sqrt(50))


@pytest.mark.parametrize("exponent", [0, -1.0, math.nan, math.inf, 1e-17, "2", True])
def test_power_refuses_other_exponents(exponent: Any) -> None:
    with pytest.raises(ValueError, match=f"exponent is {exponent!r}, expected a number above 0"):
        Power(exponent)


def test_gradual_starts_low_and_ends_as_the_root_of_t() -> None:
    gradual = Gradual(16)
    assert gradual(1) == pytest.approx(1 - 4 / math.sqrt(17))  # 1 + 1/16 = 17/16
    assert gradual(48) == pytest.approx(0.5)  # 1 + 3 = 4
    assert gradual(128) == pytest.approx(1 - 1 / 3)  # 1 + 8 = 9
    assert Gradual(0.5)(4) == pytest.approx(1 - 1 / 3)
    assert Gradual(1)(3) == Gradual(2)(6) == 0.5  # t in units of scale
    # 1 - p_t is, for large t, that of Power(0.5) times the root of scale
    assert (1 - gradual(10**8)) / (1 - Power(0.5)(10**8)) == pytest.approx(4, rel=1e-4)


@given(scale=st.floats(1e-3, 1e6), start=st.integers(1, 10**6))
def test_gradual_rises_within_bounds_towards_1(scale: float, start: int) -> None:
    values = [Gradual(scale)(t) for t in range(start, start + 20)]
    assert all(0 < p < 1 for p in values)
    assert all(p < q for p, q in pairwise(values))
    assert Gradual(scale)(10**15) > 0.9999
    assert Gradual(scale)(start) > Gradual(2 * scale)(start)


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, -math.inf, "16", None, True])
def test_gradual_refuses_other_scales(scale: Any) -> None:
    with pytest.raises(ValueError, match=f"scale is {scale!r}, expected a number above 0"):
        Gradual(scale)


@given(st.lists(probabilities, min_size=1, max_size=20).map(sorted), st.integers(1, 50))
def test_steps_keep_their_last_value(values: list[float], t: int) -> None:
    assert Steps(tuple(values))(t) == values[min(t, len(values)) - 1]


@pytest.mark.parametrize("p", [0, -0.1, 1.0000001, math.nan, math.inf, None, "0.5", True])
def test_every_p_must_be_in_bounds(p: Any) -> None:
    with pytest.raises(ValueError, match=f"p_1 is {p!r}, expected a number above 0 and at most 1"):
        schedule_from((p,))
    with pytest.raises(ValueError, match="p_2 is"):
        Steps((0.5, p))


def test_no_schedule_may_decrease() -> None:
    with pytest.raises(ValueError, match=r"p_3 is 0\.5, below p_2 = 0\.75; .* never decreases"):
        Steps((0.25, 0.75, 0.5))


@pytest.mark.parametrize("schedule", [Power(2.0), Gradual(16), Steps((0.5, 1.0))])
def test_queries_are_counted_from_1_in_whole_numbers(schedule: Schedule) -> None:
    assert schedule(np.int64(1)) == schedule(1)  # type: ignore[arg-type]
    assert type(schedule(1)) is float
    for t in (0, -1):
        with pytest.raises(ValueError, match=f"t is {t}, expected 1 or more"):
            schedule(t)
    with pytest.raises(TypeError):
        schedule(1.5)  # type: ignore[arg-type]


def test_schedule_from_takes_what_a_person_writes() -> None:
    power, gradual = Power(2.0), Gradual(16)
    assert schedule_from(power) is power
    assert schedule_from(gradual) is gradual
    assert schedule_from(1) == Steps((1.0,))
    assert schedule_from(np.float64(0.5)) == Steps((0.5,))
    assert schedule_from([0.5, 1]) == schedule_from(np.array([0.5, 1.0])) == Steps((0.5, 1.0))
    for value in ("0.5", b"x", None, {0.5}, True, lambda t: t / (t + 1)):
        with pytest.raises(ValueError, match="expected a Power, Gradual or Steps, a number p"):
            schedule_from(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schedule", [Power(0.5), Gradual(16), Gradual(0.25), Steps((0.9,)), Steps((0.5, 0.75))]
)
def test_schedules_go_through_a_file(schedule: Schedule) -> None:
    data = msgspec.to_builtins(schedule)
    assert data["type"] == type(schedule).__name__.lower()
    assert msgspec.convert(data, Schedule) == schedule


@pytest.mark.parametrize(
    "data, text",
    [
        ({"type": "steps", "values": [2.0]}, "p_1 is 2"),
        ({"type": "gradual", "scale": -1}, "scale is -1"),
        ({"type": "constant", "p": 0.5}, "'constant'"),
    ],
)
def test_files_are_checked(data: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=text):
        msgspec.convert(data, Schedule)
