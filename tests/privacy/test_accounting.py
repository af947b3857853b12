"""The accountant against closed forms, exact sums, Monte Carlo, and published figures."""

from __future__ import annotations

import math
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from fedbo.federation.calibration import gaussian_delta, gaussian_sigma
from fedbo.privacy import Mechanism
from fedbo.privacy.accounting import (
    Gaussian,
    Laplace,
    epsilon,
    epsilon_basic,
    gaussian_epsilon,
)

DELTA = 1e-3
HALF = Gaussian(gaussian_sigma(1.0, DELTA))  # costs (1, DELTA)
FINE = 64  # steps, with which Laplace noise costs hardly more than over the real numbers


class TestGaussian:
    @pytest.mark.parametrize("z", [0.05, 0.7, 3.0, 40.0])
    @pytest.mark.parametrize("target", [0.0, 0.01, 1.0, 30.0])
    def test_delta_agrees_with_fifty_digits(self, z: float, target: float) -> None:
        with mpmath.workdps(50):
            mu, loss = 1 / mpmath.mpf(z), mpmath.mpf(target)
            right = mpmath.ncdf(mu / 2 - loss / mu)
            right -= mpmath.exp(loss) * mpmath.ncdf(-mu / 2 - loss / mu)
        assert gaussian_delta(1 / z, target) == pytest.approx(float(right), rel=1e-9, abs=1e-300)

    @given(st.floats(0.01, 50), st.floats(-14, -0.1).map(lambda power: 10.0**power))
    def test_sigma_and_epsilon_are_the_smallest(self, target: float, delta: float) -> None:
        z = gaussian_sigma(target, delta)
        assert gaussian_delta(1 / (z * (1 + 1e-12)), target) <= delta * (1 + 1e-9)
        assert gaussian_delta(1 / (z * (1 - 1e-6)), target) > delta
        assert gaussian_epsilon(1 / z, delta) == pytest.approx(target, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
@pytest.mark.parametrize("R", [1, 5, 20])
def test_closed_form_and_pld_agree_for_gaussian_releases(R: int, delta: float) -> None:
    """Asked for: 1 %. Hardly any Laplace noise beside them, so that a PLD is computed."""
    z, almost_free = gaussian_sigma(1.0, delta), Laplace(1e6, steps=1)
    for several in ([z] * R, [z * (1 + 0.3 * i) for i in range(R)]):
        releases = [Gaussian(z) for z in several]
        right = gaussian_epsilon(math.hypot(*(1 / z for z in several)), delta)
        assert epsilon(releases, delta) == right
        assert right * (1 - 1e-9) <= epsilon([almost_free, *releases], delta) <= right * (1 + 1e-4)


def laplace_and_gaussian_delta(scale: float, z: float, target: float) -> float:
    """Return δ of Laplace and Gaussian noise, by an integral over the loss of the Laplace noise."""
    a = 1 / scale
    ends = gaussian_delta_anywhere(z, target - a) / 2
    ends += math.exp(-a) / 2 * gaussian_delta_anywhere(z, target + a)

    def between(loss: float) -> float:  # noise x in (0, 1): loss a(1 − 2x), density e^(−ax) a/2
        return math.exp((loss - a) / 2) / 4 * gaussian_delta_anywhere(z, target - loss)

    return ends + quad(between, -a, a, epsabs=1e-13)[0]


def gaussian_delta_anywhere(z: float, target: float) -> float:
    """The same closed form, also for negative ε."""
    below, above = norm.cdf(0.5 / z - target * z), norm.cdf(-0.5 / z - target * z)
    return float(below - math.exp(target) * above)


class TestLaplaceAndGaussian:
    """Votes and a mean: nominally ε = 2."""

    @pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
    def test_on_a_fine_grid_it_agrees_with_an_integral(self, scale: float) -> None:
        z = HALF.multiplier
        right = brentq(lambda e: laplace_and_gaussian_delta(scale, z, e) - DELTA, 0, 5, xtol=1e-10)
        found = epsilon([Laplace(scale, FINE), HALF], DELTA)
        assert right - 1e-8 <= found <= right * (1 + 1e-3)

    def test_pld_agrees_with_monte_carlo(self) -> None:
        """δ at the accounted ε, from 2 million privacy losses; within 4 standard errors."""
        rng, n = np.random.default_rng(3), 2_000_000
        x = rng.laplace(0.0, 1.0, n)
        mu = 1 / HALF.multiplier
        losses = np.abs(x - 1) - np.abs(x) + rng.normal(mu**2 / 2, mu, n)
        found = epsilon([Laplace(1.0, FINE), HALF], DELTA)
        parts = np.maximum(0.0, -np.expm1(found - losses))
        error = parts.std() / math.sqrt(n)
        assert error < 0.03 * DELTA
        assert parts.mean() == pytest.approx(DELTA, abs=4 * error)

    @pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
    def test_votes_in_whole_numbers_cost_more(self, scale: float) -> None:
        """With one step, the loss is ±1/scale, as in randomised response."""
        z, a = HALF.multiplier, 1 / scale
        p = 1 / (1 + math.exp(-a))

        def delta(target: float) -> float:
            first, second = (gaussian_delta_anywhere(z, target - loss) for loss in (a, -a))
            return p * first + (1 - p) * second - DELTA

        right = brentq(delta, 0, 5, xtol=1e-10)
        coarse = epsilon([Laplace(scale, steps=1), HALF], DELTA)
        assert right - 1e-8 <= coarse <= right * (1 + 1e-3)
        assert coarse > epsilon([Laplace(scale, FINE), HALF], DELTA) + 0.003

    def test_finer_grids_cost_less(self) -> None:
        costs = [epsilon([Laplace(1.0, steps), HALF], DELTA) for steps in (1, 2, 4, 8, 16, 64)]
        assert costs == sorted(costs, reverse=True)
        assert costs[0] == pytest.approx(1.958, abs=5e-4)
        assert costs[-1] == pytest.approx(1.914, abs=5e-4)

    @settings(max_examples=25)
    @given(st.floats(0.2, 20), st.floats(0.3, 20), st.floats(-9, -0.5), st.integers(1, 40))
    def test_never_above_the_sum(self, scale: float, z: float, power: float, steps: int) -> None:
        both, delta = [Laplace(scale, steps), Gaussian(z)], 10.0**power
        most = 1 / scale + gaussian_epsilon(1 / z, delta)
        assert max(0.0, gaussian_epsilon(1 / z, delta) - 1e-9) <= epsilon(both, delta) <= most


def discrete_gaussian_delta(shift: tuple[int, ...], sigma: float, target: float) -> float:
    """Return δ of discrete Gaussian noise for one change, by adding up the whole grid."""
    reach = int(12 * sigma) + max(map(abs, shift)) + 1
    x = np.arange(-reach, reach + 1)
    one, other = np.ones(1), np.ones(1)
    total = np.exp(-(x**2) / (2 * sigma**2)).sum()
    for s in shift:
        one = np.multiply.outer(one, np.exp(-(x**2) / (2 * sigma**2)) / total).ravel()
        other = np.multiply.outer(other, np.exp(-((x - s) ** 2) / (2 * sigma**2)) / total).ravel()
    return float(np.maximum(0.0, one - math.exp(target) * other).sum())


class TestDiscreteGaussian:
    @pytest.mark.parametrize("shift", [(1,), (2,), (7,), (1, 1), (3, -2)])
    @pytest.mark.parametrize("sigma", [4.5, 6.0, 9.0])
    def test_accounted_cost_is_an_upper_bound(self, shift: tuple[int, ...], sigma: float) -> None:
        length = math.hypot(*shift)
        mechanism = Gaussian(sigma / length, steps=int(length))
        for target in np.linspace(0.0, 3.0, 13):
            exact = discrete_gaussian_delta(shift, sigma, float(target))
            assert exact <= gaussian_delta(mechanism.mu, float(target)) + 1e-13

    def test_a_grid_that_is_too_coarse_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"deviation is 2\.5 steps; it must exceed 3"):
            Gaussian(2.5, steps=1)


class TestLimits:
    def test_no_delta(self) -> None:
        assert epsilon([Laplace(2.0, 1), Laplace(4.0, 1)], 0.0) == 0.75
        assert epsilon([Laplace(2.0, 1), HALF], 0.0) == math.inf
        with pytest.raises(ValueError, match=r"delta is 1\.0; it must be at least 0 and below 1"):
            epsilon([], 1.0)

    def test_a_delta_that_is_too_small_for_a_pld(self) -> None:
        both = [Laplace(1.0, FINE), HALF]
        assert epsilon_basic(both, 1e-15) == epsilon(both, 1e-15) > epsilon(both, 1e-11)

    @pytest.mark.parametrize(
        "released",
        [
            [Laplace(1e-4, FINE)],
            [Gaussian(1e-3), Laplace(1.0, FINE)],
            [Laplace(1e4, FINE)] * 50,
            [Laplace(1.0, FINE), Gaussian(1e4)],
            [Laplace(0.5, 1)] * 30 + [HALF] * 30,
        ],
    )
    @pytest.mark.parametrize("delta", [1e-11, 1e-4, 0.9])
    def test_extremes(self, released: list[Mechanism], delta: float) -> None:
        found = epsilon(released, delta)
        assert 0.0 <= found <= epsilon_basic(released, delta)

    def test_no_noise_is_refused(self) -> None:
        for multiplier in (0.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="must be positive and finite"):
                Gaussian(multiplier)


def test_without_dp_accounting_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert epsilon([HALF, HALF], DELTA) > 1.0
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fedbo\[privacy\]'"):
        epsilon([HALF, Laplace(1.0, FINE)], DELTA)
