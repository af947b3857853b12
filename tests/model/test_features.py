"""Features against the exact kernels, finite differences and pinned numbers (appendix A)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model.test_gp import difference
from sklearn.gaussian_process.kernels import RBF, Matern

from fedbo.model.features import Features

KERNELS = ("se", "matern52")


def exact(kernel, X, Z, length_scales):
    length_scales = np.asarray(length_scales, dtype=np.float64)
    shape = RBF(length_scales) if kernel == "se" else Matern(length_scales, nu=2.5)
    return shape(X, Z)


@given(
    seed=st.integers(0, 2**63 - 1),
    D=st.integers(1, 6),
    M=st.integers(2, 200),
    kernel=st.sampled_from(KERNELS),
    length_scales=st.floats(0.01, 10),
    variance=st.floats(0.01, 100),
)
def test_norm_is_the_signal_variance(seed, D, M, kernel, length_scales, variance):
    phi = Features(
        D, M, kernel=kernel, length_scales=length_scales, seed=seed, signal_variance=variance
    )
    Phi = phi(np.random.default_rng(0).random((5, D)))
    assert Phi.shape == (5, M)
    np.testing.assert_allclose((Phi**2).sum(axis=1), variance, rtol=1e-12)


PINNED = [  # arguments, s, b, a point, φ there
    (
        dict(dimensions=2, M=4, kernel="se", length_scales=(0.5, 0.25), seed=7),
        [[0.63778, 5.06334], [-1.04784, 4.5734], [1.6624, -0.32185], [-1.31849, -0.55244]],
        [1.41502, 5.15993, 1.7494, 3.47773],
        [0.25, 0.75],
        [0.492839, -0.367133, -0.277907, -0.738303],
    ),
    (
        dict(dimensions=1, M=3, kernel="matern52", length_scales=0.5, seed=2**40 + 1),
        [[-3.63944], [-0.14038], [-1.86945]],
        [3.19494, 4.43284, 0.75386],
        [0.25],
        [-0.544943, -0.257445, 0.797972],
    ),
]


@pytest.mark.parametrize(("arguments", "s", "b", "x", "values"), PINNED)
def test_pinned(arguments, s, b, x, values):
    """All agents of a federation have these, on every machine: they must never change."""
    phi = Features(**arguments)
    np.testing.assert_allclose(phi.s, s, atol=6e-6)
    np.testing.assert_allclose(phi.b, b, atol=6e-6)
    np.testing.assert_allclose(phi(np.array([x]))[0], values, atol=6e-7)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("length_scales", [0.3, (0.1, 0.3, 2.0)])
def test_kernel_of_many_features(kernel, length_scales):
    """φφ' misses k by 1/√M times a number of order one; averaged over seeds by far less."""
    M, seeds = 4000, 30
    X = np.random.default_rng(0).random((25, 3))
    k = exact(kernel, X, X, np.broadcast_to(length_scales, 3))
    approximate = []
    for seed in range(seeds):
        Phi = Features(3, M, kernel=kernel, length_scales=length_scales, seed=seed)(X)
        approximate.append(Phi @ Phi.T)
        assert np.abs(approximate[-1] - k).max() < 5 / np.sqrt(M)
    assert np.abs(np.mean(approximate, axis=0) - k).max() < 5 / np.sqrt(M * seeds)


functions = st.builds(
    lambda seed, D, M, kernel, scales, variance: Features(
        D, M, kernel=kernel, length_scales=scales, seed=seed, signal_variance=variance
    ).function(np.random.default_rng(seed).standard_normal(M)),
    seed=st.integers(0, 2**32),
    D=st.integers(1, 6),
    M=st.integers(20, 200),
    kernel=st.sampled_from(KERNELS),
    scales=st.floats(0.02, 2),
    variance=st.floats(0.1, 10),
)


@given(f=functions, seed=st.integers(0, 2**32))
def test_function_is_features_times_weights(f, seed):
    X = np.random.default_rng(seed).random((7, len(f.length_scales)))
    values, _ = f.value_and_gradient(X)
    np.testing.assert_allclose(f(X), f.features(X) @ f.omega, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(values, f.features(X) @ f.omega, rtol=1e-10, atol=1e-10)


@given(f=functions, seed=st.integers(0, 2**32))
def test_gradient_against_finite_differences(f, seed):
    D = len(f.length_scales)
    X = np.random.default_rng(seed).random((4, D))
    _, gradient = f.value_and_gradient(X)
    h = 1e-4 * f.length_scales[0]
    finite = np.stack([difference(f, X, h * e) / h for e in np.eye(D)], axis=1)
    scale = np.abs(f.features.s).max() * np.sqrt(f.features.signal_variance)
    np.testing.assert_allclose(gradient, finite, rtol=1e-6, atol=1e-7 * scale)


@pytest.mark.parametrize(("length_scale", "margin"), [(0.3, 1e-5), (0.01, 2e-4)])
def test_float32_is_close(length_scale, margin):
    rng = np.random.default_rng(0)
    for seed in range(20):
        f = Features(2, 100, length_scales=length_scale, seed=seed).function(
            rng.standard_normal(100)
        )
        X = rng.random((200, 2)).astype(np.float32)
        value, gradient = f.value_and_gradient(X.astype(np.float64))
        value32, gradient32 = f.value_and_gradient(X)
        assert f(X).dtype == value32.dtype == gradient32.dtype == np.float32
        assert np.abs(f(X) - value).max() < margin
        assert np.abs(value32 - value).max() < margin
        assert np.abs(gradient32 - gradient).max() < margin / length_scale
