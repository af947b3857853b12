"""Bayesian linear regression over φ against its definitions and appendix B, and its draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from model.moments import LIMIT, worst_z

from fedbo.model.features import Features
from fedbo.model.linear import Regression


def problem(seed, D, M, t, sigma2, kernel, signal_variance, duplicates):
    rng = np.random.default_rng(seed)
    X, y = rng.random((t, D)), rng.standard_normal(t)
    if duplicates:
        X[t // 2 :] = X[: t - t // 2]
    phi = Features(
        D, M, kernel=kernel, length_scales=0.3, seed=seed, signal_variance=signal_variance
    )
    return phi, X, y, sigma2


problems = st.builds(
    problem,
    seed=st.integers(0, 2**32),
    D=st.integers(1, 6),
    M=st.integers(2, 120),
    t=st.integers(0, 60),
    sigma2=st.floats(1e-4, 10),
    kernel=st.sampled_from(["se", "matern52"]),
    signal_variance=st.sampled_from([1.0, 0.3, 4.0]),
    duplicates=st.booleans(),
)


def regressed(phi, X, sigma2):
    regression = Regression(phi, sigma2)
    regression.add(X)
    return regression


@given(problems)
def test_definitions(data):
    """Equation 3, term by term."""
    phi, X, y, sigma2 = data
    regression = regressed(phi, X, sigma2)
    Sigma = sum((np.outer(f, f) for f in phi(X)), sigma2 * np.eye(phi.M))
    np.testing.assert_allclose(regression.Sigma, Sigma, rtol=1e-10, atol=1e-12)
    posterior = regression.posterior(y)
    np.testing.assert_allclose(Sigma @ posterior.nu, phi(X).T @ y, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        posterior.covariance() @ Sigma / sigma2, np.eye(phi.M), rtol=0, atol=1e-8
    )


@given(problems)
def test_appendix_b(data):
    """The posterior in feature form is that of a GP with kernel k̂(x, x') = φ(x)ᵀφ(x')."""
    phi, X, y, sigma2 = data
    posterior = regressed(phi, X, sigma2).posterior(y)
    Z = np.random.default_rng(1).random((9, X.shape[1]))
    K, k = phi(X) @ phi(X).T, phi(X) @ phi(Z).T
    gain = np.linalg.solve(K + sigma2 * np.eye(len(X)), k).T
    scale = phi.signal_variance
    expected = gain @ y, scale - (gain * k.T).sum(axis=1)
    np.testing.assert_allclose(posterior.predict(Z), expected, rtol=1e-8, atol=1e-8 * scale)


@given(problems)
def test_gradients_of_mean_and_variance(data):
    phi, X, y, sigma2 = data
    assume(phi.M >= 20)  # with a handful of features ‖c(x)‖ may come close to 0
    posterior = regressed(phi, X, sigma2).posterior(y)
    D, h = X.shape[1], 1e-5
    Z = np.random.default_rng(1).random((4, D))
    mean, variance, *gradients = posterior.predict_with_gradient(Z)
    np.testing.assert_allclose((mean, variance), posterior.predict(Z), rtol=1e-9, atol=1e-9)
    size = (1 + np.abs(posterior.nu).max()) * np.abs(phi.s).max() ** 3 * phi.M
    ends = [(posterior.predict(Z + h * e), posterior.predict(Z - h * e)) for e in np.eye(D)]
    for i, gradient in enumerate(gradients):
        steps = [(ahead[i] - behind[i]) / (2 * h) for ahead, behind in ends]
        tolerance = 1e-6 * np.abs(gradient).max() + h**2 * size + 1e-8
        np.testing.assert_allclose(gradient, np.stack(steps, axis=1), rtol=0, atol=tolerance)


def test_noise_variance_too_small_is_an_error_that_says_so():
    regression = regressed(Features(1, 50, seed=0), np.full((3, 1), 0.5), 1e-30)
    with pytest.raises(np.linalg.LinAlgError, match="1e-30"):
        regression.posterior(np.ones(3))


def test_moments_of_draws():
    """More features than observations: variances from 0.01 to 1, strongly correlated."""
    rng = np.random.default_rng(0)
    phi = Features(2, 12, length_scales=0.4, seed=3)
    posterior = regressed(phi, rng.random((8, 2)), 0.05).posterior(rng.standard_normal(8))
    draws = np.array([posterior.draw(rng) for _ in range(40_000)])
    covariance = posterior.sigma2 * np.linalg.inv(posterior.L @ posterior.L.T)  # σ²Σ⁻¹
    assert worst_z(draws, posterior.nu, covariance) < LIMIT
