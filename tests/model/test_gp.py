"""The exact GP against scikit-learn's, and its draws against the posterior they come from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model.moments import LIMIT, worst_z
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from fedbo.model.gp import GP, Hyper, rows_of

log_uniform = lambda low, high: st.floats(np.log(low), np.log(high)).map(np.exp)  # noqa: E731

hypers = st.integers(1, 6).flatmap(
    lambda D: st.builds(
        Hyper,
        length_scales=st.tuples(*[log_uniform(0.05, 5)] * D),
        signal_variance=log_uniform(0.1, 10),
        noise_variance=log_uniform(1e-4, 1),
        kernel=st.sampled_from(["se", "matern52"]),
    )
)


def data(hyper, seed, t, duplicates):
    rng = np.random.default_rng(seed)
    X, y = rng.random((t, len(hyper.length_scales))), rng.standard_normal(t)
    if duplicates:
        X[t // 2 :] = X[: t - t // 2]
    return X, y


def scored(hyper, X, y):
    gp = GP(hyper, X)
    gp.set_scores(y)
    return gp


def oracle(hyper, X, y):
    length_scales = np.array(hyper.length_scales)
    shape = RBF(length_scales) if hyper.kernel == "se" else Matern(length_scales, nu=2.5)
    kernel = ConstantKernel(hyper.signal_variance) * shape + WhiteKernel(hyper.noise_variance)
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X, y)


seeds = st.integers(0, 2**32)


@settings(max_examples=200)
@given(hyper=hypers, seed=seeds, t=st.integers(2, 30), duplicates=st.booleans())
def test_posterior(hyper, seed, t, duplicates):
    X, y = data(hyper, seed, t, duplicates)
    Z = np.concatenate([np.random.default_rng(seed + 1).random((6, X.shape[1])), X[:2]])
    mean, covariance = oracle(hyper, X, y).predict(Z, return_cov=True)
    covariance -= hyper.noise_variance * np.eye(len(Z))  # sklearn predicts noisy scores
    gp = scored(hyper, X, y)
    mu, var = gp.predict(Z)
    scale = 1e-8 * hyper.signal_variance
    np.testing.assert_allclose(mu, mean, rtol=1e-8, atol=1e-8 * np.abs(mean).max())
    np.testing.assert_allclose(var, np.diag(covariance), rtol=1e-8, atol=scale)


@given(
    hyper=hypers,
    seed=seeds,
    t=st.integers(0, 30),
    start=st.integers(0, 30),
    duplicates=st.booleans(),
)
def test_growth_is_as_a_fresh_factorisation(hyper, seed, t, start, duplicates):
    X, y = data(hyper, seed, t, duplicates)
    start = min(start, t)
    grown = GP(hyper, X[:start])
    for i in range(start, t):
        grown.add(X[i : i + 1])
    grown.set_scores(y)
    fresh = scored(hyper, X, y)
    assert len(grown) == t
    scale = 1e-8 * np.sqrt(hyper.signal_variance)
    np.testing.assert_allclose(grown.L, fresh.L, rtol=1e-8, atol=scale)
    Z = np.random.default_rng(seed).random((5, X.shape[1]))
    for a, b in zip(grown.predict(Z), fresh.predict(Z), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)


@given(hyper=hypers, seed=seeds, t=st.integers(0, 20))
@pytest.mark.slow
def test_gradients_of_mean_and_variance(hyper, seed, t):
    gp = scored(hyper, *data(hyper, seed, t, False))
    D = len(hyper.length_scales)
    X = np.random.default_rng(seed + 1).random((4, D))
    mu, var, *gradients = gp.predict_with_gradient(X)
    h = 1e-4 * min(hyper.length_scales)
    for i, (value, gradient) in enumerate(zip((mu, var), gradients, strict=True)):
        np.testing.assert_allclose(value, gp.predict(X)[i], rtol=1e-9, atol=1e-12)
        steps = [difference(lambda Z, i=i: gp.predict(Z)[i], X, h * e) / h for e in np.eye(D)]
        size = hyper.signal_variance * (1 + np.abs(gp.alpha).sum())
        tolerance = 1e-6 * np.abs(gradient).max() + 1e-13 * size / h
        np.testing.assert_allclose(gradient, np.stack(steps, axis=1), rtol=0, atol=tolerance)


@pytest.mark.parametrize("kernel", ["se", "matern52"])
@pytest.mark.parametrize("noise_variance", [1e-12, 1e-9, 1e-6])
def test_many_duplicates_and_hardly_any_noise(kernel, noise_variance):
    X = np.repeat(np.random.default_rng(0).random((5, 2)), 12, axis=0)
    hyper = Hyper(length_scales=(0.5, 0.5), noise_variance=noise_variance, kernel=kernel)
    y = np.sin(5 * X[:, 0])
    grown = GP(hyper, X[:1])
    grown.add(X[1:])
    grown.set_scores(y)
    for gp in (scored(hyper, X, y), grown):
        mu, var = gp.predict(X)
        np.testing.assert_allclose(mu, y, atol=1e-3)
        assert (var >= 0).all() and (var < 1e-4).all()


# Draws: exact moments, at a few points, near to data and far from it

BETA = 1.7
SCATTERED = np.random.default_rng(3).random((6, 2))
GRID = np.stack(np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 3)), axis=-1).reshape(-1, 2)


def believing(kernel, X):
    hyper = Hyper(
        length_scales=(0.25, 0.5), signal_variance=2.0, noise_variance=0.05, kernel=kernel
    )
    return scored(hyper, X, np.random.default_rng(9).standard_normal(len(X)))


def moments_at(gp, Z):
    """The mean and the covariance of f_t at Z, by scikit-learn."""
    mean, covariance = oracle(gp.hyper, gp.X, gp.y).predict(Z, return_cov=True)
    return mean, BETA**2 * (covariance - gp.hyper.noise_variance * np.eye(len(Z)))


@pytest.fixture(scope="module", params=["se", "matern52"])
def continuous(request):
    """24,000 draws at four points, with the moments they should have."""
    gp = believing(request.param, SCATTERED)
    Z = np.concatenate([SCATTERED[:1] + 0.02, np.random.default_rng(8).random((3, 2))])
    rng = np.random.default_rng(1)
    draws = np.array([gp.sample(rng, BETA)(Z) for _ in range(24_000)])
    return draws, *moments_at(gp, Z)


@pytest.fixture(scope="module")
def discrete():
    """30,000 joint draws on a grid of twelve, three of them observed, one of these twice."""
    gp = believing("se", GRID[[1, 5, 5, 10]])
    rng = np.random.default_rng(1)
    draws = np.array([gp.sample(rng, BETA, points=GRID)(GRID) for _ in range(30_000)])
    return draws, *moments_at(gp, GRID)


def test_moments_of_continuous_draws(continuous):
    assert worst_z(*continuous) < LIMIT


def test_moments_of_discrete_draws(discrete):
    assert worst_z(*discrete) < LIMIT


def test_a_grown_gp_draws_on_the_same_domain():
    gp = believing("se", GRID[:5])
    gp.sample(np.random.default_rng(0), points=GRID)
    gp.add(GRID[7:8])
    gp.set_scores(np.arange(6.0))
    fresh = scored(gp.hyper, gp.X, gp.y)
    first, same = (g.sample(np.random.default_rng(0), points=GRID)(GRID) for g in (gp, fresh))
    np.testing.assert_allclose(first, same, atol=1e-10)


def test_an_observation_off_the_domain():
    gp = believing("se", SCATTERED)
    with pytest.raises(ValueError, match="discrete domain"):
        gp.sample(np.random.default_rng(0), points=GRID)


@settings(max_examples=50)
@given(hyper=hypers, seed=seeds, t=st.integers(0, 20), beta=st.floats(0.1, 5))
def test_gradient_of_a_draw_against_finite_differences(hyper, seed, t, beta):
    gp = scored(hyper, *data(hyper, seed, t, False))
    f = gp.sample(np.random.default_rng(seed), beta)
    D = len(hyper.length_scales)
    X = np.random.default_rng(seed + 1).random((4, D))
    values, gradient = f.value_and_gradient(X)
    np.testing.assert_allclose(values, f(X), rtol=1e-9, atol=1e-9 * (1 + np.abs(values).max()))
    h = 1e-4 * min(hyper.length_scales)
    finite = np.stack([difference(f, X, h * e) / h for e in np.eye(D)], axis=1)
    scale = np.abs(f.v).sum() + beta * np.sqrt(hyper.signal_variance)
    tolerance = 1e-14 * scale / h + 1e-5 * np.abs(gradient).max() + 1e-8
    np.testing.assert_allclose(gradient, finite, rtol=0, atol=tolerance)


def difference(f, X, step):
    """f(X + step) − f(X) to fourth order, by central differences."""
    near, far = f(X + step) - f(X - step), f(X + 2 * step) - f(X - 2 * step)
    return (8 * near - far) / 12


# Rows of a list


def test_rows_of_a_list_are_found():
    rng = np.random.default_rng(0)
    points = np.unique(rng.integers(0, 6, (2000, 4)) / 5.0, axis=0)  # columns have few values
    rows = rng.integers(0, len(points), 300)
    np.testing.assert_array_equal(rows_of(points[rows], points), rows)
    assert len(rows_of(points[:0], points)) == 0
    with pytest.raises(ValueError, match="discrete domain"):
        rows_of(np.concatenate([points[:2], [[0.1, 0.0, 0.2, 0.4]]]), points)


def test_rows_that_share_a_key_are_told_apart():
    points = np.array([[1.0, 0.0], [0.0, np.sqrt(2.0) / np.sqrt(3.0)], [0.5, 0.5]])
    keys = [float(np.sqrt(2.0) * a + np.sqrt(3.0) * b) for a, b in points]
    assert keys[0] == keys[1]
    np.testing.assert_array_equal(rows_of(points, points), [0, 1, 2])


@pytest.mark.parametrize("kernel", ["se", "matern52"])
@pytest.mark.parametrize("noise_variance", [1e-5, 1e-2])
def test_predictions_in_float32_are_good_enough_to_screen(kernel, noise_variance):
    rng = np.random.default_rng(0)
    hyper = Hyper(length_scales=(0.2, 0.4), noise_variance=noise_variance, kernel=kernel)
    X = np.concatenate([rng.random((40, 2)), 0.5 + 0.02 * rng.random((10, 2))])
    gp = scored(hyper, X, np.sin(6.0 * X).sum(axis=1))
    Z = rng.random((500, 2)).astype(np.float32)
    for got, right in zip(gp.predict(Z), gp.predict(Z.astype(np.float64)), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, right, atol=2e-3)
