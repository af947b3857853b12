"""Schedules stay in (0, 1] and never decrease."""

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


@pytest.mark.parametrize("schedule", [Power, Gradual])
@pytest.mark.parametrize("number", [0, -1.0, math.nan, math.inf, 1e-17])
def test_other_numbers_are_refused(schedule: Any, number: float) -> None:
    if (schedule, number) != (Gradual, 1e-17):
        with pytest.raises(ValueError, match=f"is {number!r}, expected a number above 0"):
            schedule(number)


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


@given(st.lists(probabilities, min_size=1, max_size=20).map(sorted), st.integers(1, 50))
def test_steps_keep_their_last_value(values: list[float], t: int) -> None:
    assert Steps(tuple(values))(t) == values[min(t, len(values)) - 1]


@pytest.mark.parametrize(
    "values", [(), (0,), (-0.1,), (1.0000001,), (math.nan,), (0.5, math.inf), (0.25, 0.75, 0.5)]
)
def test_steps_are_probabilities_that_never_decrease(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected probabilities above 0"):
        schedule_from(values)


def test_schedule_from_takes_what_a_person_writes() -> None:
    gradual = Gradual(16)
    assert schedule_from(gradual) is gradual
    assert schedule_from(1) == Steps((1.0,))
    assert schedule_from(np.float64(0.5)) == Steps((0.5,))
    assert schedule_from([0.5, 1]) == schedule_from(np.array([0.5, 1.0])) == Steps((0.5, 1.0))


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
        ({"type": "steps", "values": [2.0]}, "expected probabilities"),
        ({"type": "gradual", "scale": -1}, "scale is -1"),
        ({"type": "constant", "p": 0.5}, "'constant'"),
    ],
)
def test_files_are_checked(data: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=text):
        msgspec.convert(data, Schedule)
