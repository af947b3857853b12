"""The closed form of leave-one-out beliefs against beliefs fitted without the observation."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.model.features import Features
from fedbo.model.gp import GP, Hyper, LeaveOneOut
from fedbo.model.linear import Regression
from fedbo.model.surrogate import Surrogate, SurrogateSettings

n = 10
ROWS = np.array([7, 0, 3, 9])


class Given:
    """A generator that returns given normals in turn."""

    def __init__(self, *normals: np.ndarray) -> None:
        self.normals = list(normals)

    def standard_normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(self.normals.pop(0)[..., : shape[-1]], shape)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.random((n, 2)), rng.standard_normal(n)


def gp_of(noise: float, rows: np.ndarray) -> GP:
    X, y = data()
    gp = GP(Hyper(length_scales=(0.3, 0.5), signal_variance=1.5, noise_variance=noise), X[rows])
    gp.set_scores(y[rows])
    return gp


def moments_of(loo: LeaveOneOut) -> tuple[np.ndarray, list[np.ndarray]]:
    """The means of the beliefs (m, m), a row for each, and their covariances."""
    m = len(ROWS)
    mean = loo.draws(Given(np.zeros(m), np.zeros(m)), 1)[0]
    shared = loo.draws(Given(np.eye(n)[:m], np.zeros(m)), m) - mean
    forgotten = loo.draws(Given(np.zeros(m), np.eye(m)), m) - mean
    roots = np.concatenate([shared, forgotten])  # a column of a root each
    return mean, [roots[:, i].T @ roots[:, i] for i in range(m)]


@pytest.mark.parametrize("noise", [1e-5, 1e-2, 1.0])
def test_mean_and_covariance_are_those_of_a_gp_that_never_saw_it(noise: float) -> None:
    X, _ = data()
    mean, covariances = moments_of(gp_of(noise, np.arange(n)).leave_one_out(ROWS))
    for i, j in enumerate(ROWS):
        without = gp_of(noise, np.delete(np.arange(n), j))
        mu, _ = without.predict(X[ROWS])
        np.testing.assert_allclose(mean[i], mu, atol=1e-7)
        k = without.covariance(without.X, X[ROWS])
        covariance = without.covariance(X[ROWS], X[ROWS]) - k.T @ without.solve(k)
        np.testing.assert_allclose(covariances[i], covariance, atol=1e-7)


def test_the_same_for_regression_over_features() -> None:
    X, y = data()
    features = Features(2, 40, length_scales=0.4, seed=1)
    whole = Regression(features, 0.1)
    whole.add(X)
    mean, covariances = moments_of(whole.leave_one_out(y, ROWS))
    Phi = features(X[ROWS])
    for i, j in enumerate(ROWS):
        part = Regression(features, 0.1)
        part.add(np.delete(X, j, axis=0))
        without = part.posterior(np.delete(y, j))
        np.testing.assert_allclose(mean[i], without.predict(X[ROWS])[0], atol=1e-9)
        np.testing.assert_allclose(covariances[i], Phi @ without.covariance() @ Phi.T, atol=1e-9)


@pytest.mark.parametrize("exact_limit", [1000, 4])
def test_a_surrogate_knows_its_own_on_either_side_of_the_exact_limit(exact_limit: int) -> None:
    X, y = data()
    belief = Surrogate(SurrogateSettings(exact_limit=exact_limit), 2)
    belief.update(X, y, np.random.default_rng(0))
    draws = belief.leave_one_out(np.arange(n)).draws(np.random.default_rng(1), 2000)
    mean = np.diagonal(draws.mean(axis=0))
    mu, var = belief.marginal().predict(X)
    assert np.abs(mean - y).mean() > np.abs(mu - y).mean()
    np.testing.assert_allclose(belief.predict(X), (mu, var))
