"""Climbing against SciPy's L-BFGS-B: quadratics in a box, a curved ridge, many hills."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedbo.model.argmax import ascend


def quadratic(rng, d, condition):
    """−½(x − c)ᵀA(x − c) with A of that condition number, its top in the box or outside."""
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    A = Q @ np.diag(np.geomspace(1, condition, d)) @ Q.T
    c = rng.uniform(-0.5, 1.5, d)

    def f(X):
        slope = (c - X) @ A
        return 0.5 * ((X - c) * slope).sum(axis=1), slope

    return f


def hills(X):
    """Many local maxima in every direction, correlated."""
    s = X.sum(axis=1)
    values = np.cos(9 * X).sum(axis=1) + np.sin(5 * s)
    return values, -9 * np.sin(9 * X) + 5 * np.cos(5 * s)[:, None]


def by_scipy(f, start, lower, upper):
    def minus(x):
        value, slope = f(x[None])
        return -value[0], -slope[0]

    bounds = list(zip(lower, upper, strict=True))
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}
    result = minimize(minus, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return -result.fun


def climbed(f, starts, lower=0.0, upper=1.0, **options):
    d = starts.shape[1]
    lower, upper = np.broadcast_to(lower, d), np.broadcast_to(upper, d)
    return ascend(
        lambda X, _: f(X),
        starts,
        lower,
        upper,
        **({"scale": np.ones(d), "turns": 300, "gain": 1e-12} | options),
    )


@given(
    seed=st.integers(0, 2**32),
    d=st.integers(1, 8),
    R=st.integers(1, 6),
    condition=st.floats(1, 100),
)
@example(seed=78, d=3, R=1, condition=50.0)  # a step that the box cuts off
@example(seed=293, d=2, R=1, condition=50.0)  # a bound that is reached early
@pytest.mark.slow
def test_quadratics_in_a_box(seed, d, R, condition):
    rng = np.random.default_rng(seed)
    f = quadratic(rng, d, condition)
    starts = rng.random((R, d))
    X, V = climbed(f, starts)
    assert X.shape == (R, d) and V.shape == (R,)
    best = by_scipy(f, starts[0], np.zeros(d), np.ones(d))  # concave: there is only one top
    assert V.min() > best - 1e-6 and np.ptp(V) < 1e-6
    np.testing.assert_allclose(V, f(X)[0], atol=1e-9)


def test_many_hills():
    """Each climber ends on a top: SciPy finds nothing higher next to it."""
    starts = np.random.default_rng(0).random((60, 3))
    X, V = climbed(hills, starts)
    higher = np.array([by_scipy(hills, x, np.zeros(3), np.ones(3)) for x in X]) - V
    assert (higher < 1e-6).sum() >= 58


@given(
    seed=st.integers(0, 2**32),
    d=st.integers(1, 6),
    turns=st.integers(0, 30),
    gain=st.sampled_from([1e-2, 1e-7]),
)
def test_never_below_the_start_and_never_outside(seed, d, turns, gain):
    rng = np.random.default_rng(seed)
    for f in (hills, quadratic(rng, d, 100)):
        starts = np.clip(rng.uniform(-0.3, 1.3, (5, d)), 0, 1)
        scale = rng.uniform(0.01, 1, d)
        X, V = climbed(f, starts, scale=scale, turns=turns, gain=gain)
        assert (V - f(starts)[0] >= -1e-9).all()
        assert (X >= 0).all() and (X <= 1).all()


def test_a_step_into_the_void_is_taken_back():
    """A climber avoids points where the value is not a number."""

    def cliff(X):
        values = np.where(X[:, 0] > 0.6, np.nan, X[:, 0])
        return values, np.ones_like(X)

    X, V = climbed(cliff, np.array([[0.1]]), turns=60)
    assert 0.55 < X[0, 0] <= 0.6 and V[0] == pytest.approx(X[0, 0])
