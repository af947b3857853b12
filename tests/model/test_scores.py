"""Standard scores: what they keep, what does not affect them, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.model.surrogate import Standardised

SCORES = st.lists(st.integers(-1000, 1000), min_size=2, max_size=20).map(
    lambda scores: np.array(scores, dtype=np.float64)
)


@given(SCORES)
def test_mean_0_and_deviation_1(y: np.ndarray) -> None:
    z = Standardised(y).z
    if np.ptp(y) == 0.0:
        assert not z.any()
        return
    assert z.mean() == pytest.approx(0.0, abs=1e-9)
    assert z.std() == pytest.approx(1.0)


@given(SCORES)
def test_the_order_stays(y: np.ndarray) -> None:
    """Ties stay ties, and different scores stay different."""
    z = Standardised(y).z
    for i in range(len(y)):
        assert (np.sign(y - y[i]) == np.sign(np.round(z - z[i], 10))).all()


@given(SCORES, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_neither_unit_nor_zero_matters(y: np.ndarray, scale: float, shift: float) -> None:
    np.testing.assert_allclose(Standardised(scale * y + shift).z, Standardised(y).z, atol=1e-5)


@pytest.mark.parametrize("low", [-100.0, -1e6])
def test_one_very_low_score_does_not_flatten_the_rest(low: float) -> None:
    """The others still spread over a fair part of a standard deviation."""
    assert np.ptp(Standardised(np.append(np.linspace(0.0, 1.0, 12), low)).z[:-1]) > 0.3


@pytest.mark.parametrize(
    "scores",
    [
        [1e308, -1e308],
        [1.7e308, 1.7e308, -1.7e308],
        [0.0, 1e-300, 1e308],
        [1e-308, 2e-308],
        [5e-324, 0.0],
        [-1e12, 0.0, 1.0, 2.0],
    ],
)
def test_huge_and_tiny_scores_stay_finite(scores: list[float]) -> None:
    y = np.array(scores)
    z = Standardised(y).z
    assert np.isfinite(z).all()
    assert z.std() == pytest.approx(1.0)
    assert int(np.argmax(z)) == int(np.argmax(y))


# The way back


@given(SCORES)
def test_unwarping_undoes_it(y: np.ndarray) -> None:
    scores = Standardised(y)
    np.testing.assert_allclose(scores.unwarp(scores.z), y, atol=1e-9 * np.abs(y).max(initial=1.0))


def test_unwarping_keeps_the_order_between_and_beyond_scores() -> None:
    scores = Standardised(np.random.default_rng(0).standard_normal(12) ** 3)
    assert (np.diff(scores.unwarp(np.linspace(-5.0, 5.0, 200))) > 0.0).all()


def test_an_outlier_that_is_infinitely_many_deviations_away() -> None:
    """The other scores differ by less than any usual number."""
    z = Standardised(np.array([0.0, 2.2250738585072014e-308, -178.0])).z
    assert np.isfinite(z).all() and z[2] < z[0] <= z[1]
