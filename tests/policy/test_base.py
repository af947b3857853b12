"""What a target says of its points: where trials are or were, and the best of what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbo.message.inbox import Inbox
from fedbo.model.argmax import argmax
from fedbo.model.features import Features
from fedbo.model.gp import Hyper
from fedbo.model.surrogate import Surrogate, SurrogateSettings, SurrogateState
from fedbo.policy import Target
from fedbo.space import Float, Space

LINE = Space({"x": Float(0, 1)})
LISTED = Space({"x": Float(0, 1)}, points=[{"x": x} for x in np.linspace(0, 1, 11)])


def target(told: list[float], open_points: list[float], scale: float = 0.2, **given: Any) -> Target:
    """A target with this length scale, which is not fitted."""
    known = SurrogateState(hyper=Hyper(length_scales=(scale,), noise_variance=0.01), fitted=10**6)
    return Target(
        t=1,
        space=given.pop("space", LINE),
        X=np.array(told).reshape(-1, 1),
        y=np.arange(float(len(told))),
        open_points=lambda: np.array(open_points).reshape(-1, 1),
        surrogate=Surrogate(SurrogateSettings(), 1, known),
        inbox=Inbox(10),
        phi=Features(1, 10, seed=0),
        maximiser=argmax,
        rng=np.random.default_rng(0),
        **given,
    )


class Slope:
    """The further right the better."""

    length_scales = np.array([0.2])

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return X[:, 0]

    def value_and_gradient(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return X[:, 0], np.ones_like(X)


@pytest.mark.parametrize("scale, unit", [(0.2, 0.2), (0.01, 0.01), (40.0, 1.0)])
def test_taken_is_what_is_close_in_length_scales(scale: float, unit: float) -> None:
    """Within .05 of an open trial, .001 of a told one; of scales longer than the cube, its side."""
    shown = target([0.3], [0.6], scale)
    steps = unit * np.array([-0.051, -0.049, 0.0, 0.049, 0.051])
    assert shown.taken(0.6 + steps[:, None]).tolist() == [False, True, True, True, False]
    steps /= 50
    assert shown.taken(0.3 + steps[:, None]).tolist() == [False, True, True, True, False]


def test_nothing_is_taken_where_nothing_was_tried() -> None:
    assert not target([], []).taken(np.linspace(0, 1, 5)[:, None]).any()


def test_an_own_draw_takes_the_place_of_a_taken_point_only() -> None:
    shown = target([0.3], [0.6])
    draws: list[str] = []
    shown.own_draw = lambda beta=1.0: draws.append("drawn") or Slope()  # type: ignore[method-assign]
    free = np.array([0.8])
    assert shown.elsewhere(free) is free
    assert not draws
    assert shown.elsewhere(np.array([0.605]))[0] == pytest.approx(1.0)
    assert draws == ["drawn"]


def test_of_a_list_what_is_neither_barred_nor_taken() -> None:
    """1.0 is barred, .9 is open; where all that is not barred is taken, the best of that."""
    shown = target([1.0], [0.9], space=LISTED, barred=np.array([10]))
    assert shown.argmax(Slope())[0] == pytest.approx(0.9)
    assert shown.argmax(Slope(), shown.taken)[0] == pytest.approx(0.8)
    assert shown.argmax(Slope(), lambda X: np.ones(len(X), dtype=bool))[0] == pytest.approx(0.9)
