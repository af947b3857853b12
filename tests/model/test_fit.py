"""The marginal likelihood and its maximum against scikit-learn's, also with little data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model.test_gp import hypers
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from fedbo.model.fit import Fit, Likelihood, LogNormal, Priors
from fedbo.model.gp import Hyper

KERNELS = ("se", "matern52")
NOISE_FLOOR = 1e-4
MARGIN = 0.05  # nats that a fit may be worse than the oracle's


def oracle_kernel(kernel, length_scales, signal, noise, ard=True):
    scales = np.array(length_scales) if ard else float(length_scales[0])
    bounds = (5e-3, 50.0)
    shape = RBF(scales, bounds) if kernel == "se" else Matern(scales, bounds, nu=2.5)
    return ConstantKernel(signal, (1e-4, 1e4)) * shape + WhiteKernel(noise, (NOISE_FLOOR, 10.0))


def oracle(kernel, X, y, *, ard=True, restarts=None):
    """scikit-learn's GP: at any hyper-parameters, or at the best of restarts + 1 searches."""
    start = oracle_kernel(kernel, [0.3] * X.shape[1], 1.0, 1e-2, ard)
    search = {"optimizer": None} if restarts is None else {"n_restarts_optimizer": restarts}
    gp = GaussianProcessRegressor(start, alpha=0.0, random_state=0, **search)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an optimum on a bound
        return gp.fit(X, y)


def likelihood_by_oracle(hyper, X, y, *, ard=True, gradient=False):
    """lml, and its gradient in fedbo's order of θ, by scikit-learn."""
    kernel = oracle_kernel(
        hyper.kernel, hyper.length_scales, hyper.signal_variance, hyper.noise_variance, ard
    )
    gp = oracle(hyper.kernel, X, y, ard=ard)
    if not gradient:
        return gp.log_marginal_likelihood(kernel.theta)
    value, slopes = gp.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    return value, np.concatenate([slopes[1:-1], slopes[:1], slopes[-1:]])


@settings(max_examples=200)
@given(
    hyper=hypers,
    seed=st.integers(0, 2**32),
    t=st.integers(2, 30),
    duplicates=st.booleans(),
    ard=st.booleans(),
)
def test_likelihood_and_gradient(hyper, seed, t, duplicates, ard):
    rng = np.random.default_rng(seed)
    D = len(hyper.length_scales)
    X, y = rng.random((t, D)), rng.standard_normal(t)
    if duplicates:
        X[t // 2 :] = X[: t - t // 2]
    if not ard:
        hyper = Hyper(
            length_scales=hyper.length_scales[:1] * D,
            signal_variance=hyper.signal_variance,
            noise_variance=hyper.noise_variance,
            kernel=hyper.kernel,
        )
    expected, slopes = likelihood_by_oracle(hyper, X, y, ard=ard, gradient=True)
    data = Likelihood(X, y, hyper.kernel, ard=ard)
    value, gradient = data(data.pack(hyper))
    # relative to the terms of the sum: (t/2) log 2π alone may cancel the rest
    np.testing.assert_allclose(value, expected, rtol=1e-8, atol=1e-8 * t)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-8, atol=1e-8 * np.abs(slopes).max())


def drawn_problem(seed, D, t, kernel):
    """Scores drawn from a GP of random length scales, standardised."""
    rng = np.random.default_rng(seed)
    X = rng.random((t, D))
    length_scales = np.exp(rng.uniform(np.log(0.1), np.log(1.5), D))
    K = oracle_kernel(kernel, length_scales, 1.0, NOISE_FLOOR * 10 ** rng.uniform(0, 3))(X)
    y = np.linalg.cholesky(K) @ rng.standard_normal(t)
    return X, (y - y.mean()) / y.std()


def seeded_problem(seed):
    """One of many problems: D from 1 to 6, t from 5 to 47, both kernels."""
    kernel = KERNELS[seed % 2]
    return kernel, *drawn_problem(seed, 1 + seed % 6, 5 + 7 * (seed % 7), kernel)


def test_as_likely_as_the_best_of_sklearns_restarts():
    """Not in every case: likelihoods have several maxima, and both searches start at random."""
    short = []
    for seed in range(24):
        kernel, X, y = seeded_problem(seed)
        best = oracle(kernel, X, y, restarts=4).log_marginal_likelihood_value_
        fit = Fit(kernel=kernel, priors=None, noise_floor=NOISE_FLOOR, starts=8)
        hyper = fit(X, y, np.random.default_rng(0))
        short.append(best - likelihood_by_oracle(hyper, X, y))
    assert max(short) < 1.5
    assert sum(gap > MARGIN for gap in short) <= 3


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_length_scale_for_all_dimensions(kernel):
    X, y = drawn_problem(5, 3, 20, kernel)
    best = oracle(kernel, X, y, ard=False, restarts=4).log_marginal_likelihood_value_
    fit = Fit(kernel=kernel, priors=None, noise_floor=NOISE_FLOOR, starts=8, ard=False)
    hyper = fit(X, y, np.random.default_rng(0))
    assert len(set(hyper.length_scales)) == 1 and len(hyper.length_scales) == 3
    assert likelihood_by_oracle(hyper, X, y, ard=False) > best - MARGIN


def log_posterior(kernel, X, y, priors):
    """−log density of θ in scikit-learn's order (signal, length scales, noise), and its box."""
    gp = oracle(kernel, X, y)
    D = X.shape[1]
    all_priors = [priors.signal_variance, *[priors.length_scale] * D, priors.noise_variance]
    growth = np.log([1.0, *[np.sqrt(D)] * D, 1.0])  # length scales: with √D
    centre = np.log([prior.median for prior in all_priors]) + growth
    spread = np.array([prior.spread for prior in all_priors])

    def minus(theta):
        value, gradient = gp.log_marginal_likelihood(theta, eval_gradient=True)
        z = (theta - centre) / spread
        return -value + 0.5 * z @ z, -gradient + z / spread

    return minus, gp.kernel_.bounds, centre, spread


def theta_of(hyper):
    return np.log([hyper.signal_variance, *hyper.length_scales, hyper.noise_variance])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("D", "t"), [(1, 6), (2, 15), (4, 30)])
def test_with_priors_it_is_the_mode_of_the_posterior(kernel, D, t):
    """Against SciPy's optimiser on scikit-learn's likelihood plus log-normal priors."""
    X, y = drawn_problem(D, D, t, kernel)
    priors = Priors(
        length_scale=LogNormal(0.4, 0.5),
        signal_variance=LogNormal(1.2, 0.6),
        noise_variance=LogNormal(1e-2, 1.0),
    )
    minus, bounds, centre, spread = log_posterior(kernel, X, y, priors)
    starts = centre + spread * np.random.default_rng(0).standard_normal((5, len(centre)))
    starts = np.clip([centre, *starts], *bounds.T)
    best = min(minimize(minus, start, jac=True, bounds=bounds).fun for start in starts)
    fit = Fit(kernel=kernel, priors=priors, noise_floor=NOISE_FLOOR, starts=6)
    hyper = fit(X, y, np.random.default_rng(0))
    assert minus(theta_of(hyper))[0] < best + MARGIN


# Hardly any data, and data that say nothing

half = np.full((1, 3), 0.5)
LITTLE = {
    "one point": (half, np.zeros(1)),
    "two points": (np.array([[0.1, 0.2, 0.3], [0.8, 0.7, 0.6]]), np.array([-1.0, 1.0])),
    "two equal points": (np.repeat(half, 2, axis=0), np.array([-1.0, 1.0])),
    "constant scores": (np.random.default_rng(0).random((12, 3)), np.zeros(12)),
    "one point again and again": (np.repeat(half, 20, axis=0), np.linspace(-1.6, 1.6, 20)),
    "the same and constant": (np.repeat(half, 20, axis=0), np.zeros(20)),
    "pairs that disagree": (
        np.repeat(np.random.default_rng(0).random((8, 3)), 2, axis=0),
        np.tile([-1.0, 1.0], 8),
    ),
    "one far score": (np.random.default_rng(0).random((50, 3)), np.eye(50)[0] * 7),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("priors", [None, Priors()])
@pytest.mark.parametrize("name", LITTLE)
def test_sane_with_little_data(kernel, priors, name):
    X, y = LITTLE[name]
    fit = Fit(kernel=kernel, priors=priors)
    hyper = fit(X, y, np.random.default_rng(0))
    again = fit.again(X, y, hyper)
    for fitted in (hyper, again):
        numbers = np.array([*fitted.length_scales, fitted.signal_variance, fitted.noise_variance])
        assert np.isfinite(numbers).all()
        assert len(fitted.length_scales) == 3 and fitted.kernel == kernel
        assert fitted.noise_variance >= fit.noise_floor * (1 - 1e-9)
        assert min(fitted.length_scales) > 1e-3 and max(fitted.length_scales) < 100
    if priors is not None and name != "one far score":
        assert min(hyper.length_scales) > 0.05 and max(hyper.length_scales) < 20


def test_a_dimension_that_does_not_matter_gets_a_long_length_scale():
    X = np.random.default_rng(0).random((40, 2))
    y = np.sin(9 * X[:, 0])
    hyper = Fit()(X, (y - y.mean()) / y.std(), np.random.default_rng(0))
    assert hyper.length_scales[1] > 3 * hyper.length_scales[0]


def test_more_observations_than_are_fitted():
    rng = np.random.default_rng(0)
    X = rng.random((700, 2))
    y = np.sin(7 * X[:, 0]) + 0.1 * rng.standard_normal(700)
    hyper = Fit()(X, (y - y.mean()) / y.std(), rng)
    assert 0.1 < hyper.length_scales[0] < 1.5
    assert 0.005 < hyper.noise_variance < 0.06  # 0.01 / var(y) = 0.02
