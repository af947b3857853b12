"""Summaries computed together are those that agents compute one by one."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo import Federation, Float
from fedbo.model.linear import Regression
from fedbo.model.summaries import Summaries
from fedbo.model.summary import NOISE, saturated
from fedbo.model.surrogate import Standardised, standardised

FEDERATION = Federation({"x": Float(0, 1), "y": Float(0, 1)}, features=30, seed=3)
N, T = 6, 7


def shrinkage(X: np.ndarray) -> np.ndarray:
    """Return the matrix that `summarise` multiplies v by, for counts as messages have them."""
    g, Q = np.linalg.eigh(FEDERATION.known_of(saturated(FEDERATION.counts(X))))
    g = g.clip(0.0, 1.0)
    return np.asarray((Q * (g / (g + NOISE**2 * (1.0 - g)))) @ Q.T)


@pytest.fixture
def histories() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.random((N, T, 2))
    X[0, 1] = X[0, 0]  # a repeated point
    X[1] = 0.1 * X[1]  # all in one corner: more in a cell than are counted
    return X, rng.standard_normal((N, T))


def summaries() -> Summaries:
    B, A = FEDERATION.basis.vectors, FEDERATION.cell_features
    return Summaries(FEDERATION.phi, B, A, FEDERATION.noise_variance)


def means(X: np.ndarray, z: np.ndarray, w: np.ndarray, e: np.ndarray) -> np.ndarray:
    cells = FEDERATION.nearest_cells(X.reshape(-1, 2)).reshape(X.shape[:2])
    made = np.array([np.bincount(each, minlength=len(FEDERATION.cells)) for each in cells])
    u = np.take_along_axis(saturated(made) / np.maximum(made, 1), cells, axis=1)
    m, h = summaries().means(X, z, cells, u, w, e)
    for i in range(len(X)):
        regression = Regression(FEDERATION.phi, FEDERATION.noise_variance)
        regression.add(X[i])
        np.testing.assert_allclose(
            h[i], FEDERATION.phi(X[i]) @ regression.posterior(z[i]).nu, atol=1e-4
        )
    return m


def test_without_noise_the_means_are_those_of_the_belief(
    histories: tuple[np.ndarray, np.ndarray],
) -> None:
    X, z = histories
    found = means(X, z, np.zeros((N, 30)), np.zeros((N, T)))
    for i in range(N):
        regression = Regression(FEDERATION.phi, FEDERATION.noise_variance)
        regression.add(X[i])
        expected = shrinkage(X[i]) @ (FEDERATION.basis.vectors.T @ regression.posterior(z[i]).nu)
        np.testing.assert_allclose(found[i], expected, atol=1e-9)
    single = means(X.astype(np.float32), z, np.zeros((N, 30)), np.zeros((N, T)))
    np.testing.assert_allclose(single, found, atol=1e-5)


def test_the_noise_has_the_covariance_of_the_belief(
    histories: tuple[np.ndarray, np.ndarray],
) -> None:
    """The means are linear in w and e, so the covariance of their noise is known exactly."""
    X, z = histories
    units = np.eye(30 + T)
    for i in range(N):
        many = np.repeat(X[i : i + 1], len(units), axis=0)
        J = means(many, np.zeros((len(units), T)), units[:, :30], units[:, 30:])
        regression = Regression(FEDERATION.phi, FEDERATION.noise_variance)
        regression.add(X[i])
        belief = regression.posterior(z[i]).covariance(FEDERATION.basis.vectors)
        S = shrinkage(X[i])
        np.testing.assert_allclose(J.T @ J, NOISE**2 * S @ belief @ S, atol=1e-9)


def test_the_noise_is_drawn_anew_for_each_agent() -> None:
    w, e = summaries().noise(2000, T, np.random.default_rng(1))
    for each in (w, e):
        assert abs(each.mean()) < 0.02 and abs(each.std() - 1.0) < 0.02
        assert len(np.unique(each)) == each.size


def test_scores_of_many_agents_are_standardised_one_by_one() -> None:
    rng = np.random.default_rng(2)
    Y = rng.standard_normal((50, 9)) * 10.0 ** rng.integers(-9, 9, (50, 1))
    Y[0] = 3.0
    Y[1:10, 0] = -1e6  # outliers
    Y[10] = [1e200, -1e200, *range(7)]
    Y[11] = [0.0] * 8 + [-5.0]  # most of them equal
    expected = np.array([Standardised(y).z for y in Y])
    np.testing.assert_allclose(standardised(Y), expected, atol=1e-12)
