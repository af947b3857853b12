"""Kernels against scikit-learn, SciPy and the spectral densities of the textbook; precisions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import kstest, norm, t
from sklearn.gaussian_process.kernels import RBF, Matern

from fedbo.model.kernel import Twins, kernel_named, squared_distances

ORACLES = {"se": RBF(), "matern52": Matern(nu=2.5)}
SPECTRA = {"se": norm, "matern52": t(5)}  # Rasmussen & Williams, equation 4.15: ν = 5/2

each_kernel = pytest.mark.parametrize("name", sorted(ORACLES))


@each_kernel
@given(r=st.lists(st.floats(0, 30), min_size=1, max_size=20))
def test_value(name, r):
    expected = ORACLES[name](np.array(r)[:, None], np.zeros((1, 1)))[:, 0]
    np.testing.assert_allclose(kernel_named(name).value(np.array(r) ** 2), expected, rtol=1e-12)


@each_kernel
def test_slope(name):
    r2 = np.concatenate([[0.0], np.geomspace(1e-6, 50, 60)])
    h = 1e-7 * np.maximum(r2, 1e-2)
    kernel = kernel_named(name)
    value, slope = kernel.value_and_slope(r2)
    np.testing.assert_array_equal(value, kernel.value(r2))
    # one-sided: the distance cannot be negative; second order in h
    ahead = [kernel.value(r2 + i * h) for i in (1, 2)]
    finite = (-3 * value + 4 * ahead[0] - ahead[1]) / (2 * h)
    np.testing.assert_allclose(slope, finite, rtol=1e-4, atol=1e-7)


@each_kernel
def test_float32_in_float32_out(name):
    r2 = np.linspace(0, 20, 50, dtype=np.float32)
    kernel = kernel_named(name)
    value, slope = kernel.value_and_slope(r2)
    assert value.dtype == slope.dtype == kernel.value(r2).dtype == np.float32
    exact = kernel.value(r2.astype(np.float64))
    np.testing.assert_allclose(value, exact, rtol=1e-5, atol=1e-7)


@each_kernel
def test_frequencies_follow_the_spectral_density(name):
    rng = np.random.default_rng(0)
    s = kernel_named(name).frequencies(rng.standard_normal((20_000, 3)), rng.random(20_000))
    projected = s @ np.array([0.6, 0.0, 0.8])  # isotropic: any direction has the same density
    for sample in (*s.T, projected):
        assert kstest(sample, SPECTRA[name].cdf).pvalue > 1e-4


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(0, 8),
    m=st.integers(0, 8),
    scales=st.lists(st.floats(0.01, 50), min_size=1, max_size=6),
)
def test_squared_distances(seed, n, m, scales):
    rng = np.random.default_rng(seed)
    X, Z, scales = rng.random((n, len(scales))), rng.random((m, len(scales))), np.array(scales)
    expected = cdist(X / scales, Z / scales, "sqeuclidean")
    size = (1 / scales**2).sum()  # of the squares that are subtracted from one another
    np.testing.assert_allclose(squared_distances(X, Z, scales), expected, atol=1e-14 * size)
    single = squared_distances(X.astype(np.float32), Z.astype(np.float32), scales)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=2e-6 * size)


@pytest.mark.parametrize("held", [np.float32, np.float64])
@pytest.mark.parametrize("wanted", [np.float32, np.float64])
def test_arrays_have_the_precision_of_the_points(held: type, wanted: type) -> None:
    arrays = [np.arange(3, dtype=held) / 7, np.ones((2, 2), dtype=held)]
    twins = Twins(*arrays)
    cast = twins.like(np.empty((1, 1), dtype=wanted))
    assert [array.dtype for array in cast] == [np.dtype(wanted)] * 2
    for array, original in zip(cast, arrays, strict=True):
        np.testing.assert_allclose(array, original, rtol=1e-7)
    assert twins.like(np.empty((5, 2), dtype=wanted)) is cast
