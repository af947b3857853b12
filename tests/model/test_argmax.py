"""Maximising against a far larger search.

The far search screens many more points than `argmax` does, from another Sobol sequence, and then
climbs with SciPy's L-BFGS-B from the best that are not neighbours. A case is a miss when `argmax`
stays more than 0.01 standard deviations of the function (those of its prior) below it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats.qmc import Sobol

from fedbo.model.argmax import argmax
from fedbo.model.features import Features
from fedbo.model.gp import GP, Hyper
from fedbo.model.linear import Regression
from fedbo.space import Categorical, Float, Int, Space

CASES = 100
MARGIN = 0.01


def cube(D):
    return Space({f"x{d}": Float(0, 1) for d in range(D)})


@cache
def sobol(D, log2_points):
    return Sobol(D, rng=987).random_base2(log2_points).astype(np.float32)


def far_search(f, space, log2_points, regions=24, tops=4):
    """The largest value of f on the space that a far larger search finds."""
    X = space.snap(sobol(space.dimensions, log2_points))
    values = f(X)
    keep = min(len(X), 300)
    best = np.argpartition(-values, keep - 1)[:keep]
    X = zoomed(f, space, apart(f, space, X[best[np.argsort(-values[best])]], regions))
    return max(climb(f, space, x) for x in X[np.argsort(-f(X))[:tops]])


def apart(f, space, X, n):
    """Return the first n rows of X that are 0.3 length scales apart or at other levels."""
    X = space.snap(X.astype(np.float64))
    chosen = []
    while len(X) and len(chosen) < n:
        chosen.append(X[0])
        other = (X[:, ~space.free] != X[0, ~space.free]).any(axis=1)
        X = X[other | (np.linalg.norm((X - X[0]) / f.length_scales, axis=1) > 0.3)]
    return np.array(chosen)


def zoomed(f, space, X, rounds=6, tries=12):
    """Move X uphill, within levels, by random steps that become smaller."""
    rng = np.random.default_rng(0)
    reach = np.where(space.free, 0.3 * np.minimum(f.length_scales, 1.0), 0.0)
    for r in range(rounds):
        steps = reach * 0.6**r * rng.standard_normal((tries, *X.shape))
        steps[0] = 0.0
        moved = np.clip(X + steps, 0, 1)
        values = f(moved.reshape(-1, X.shape[1])).reshape(tries, -1)
        X = moved[values.argmax(axis=0), np.arange(len(X))]
    return X


def climb(f, space, x):
    if not space.free.any():
        return f(x[None])[0]

    def minus(z):
        value, slope = f.value_and_gradient(z[None])
        return -value[0], -slope[0]

    bounds = [(0, 1) if free else (at, at) for free, at in zip(space.free, x, strict=True)]
    return -minimize(minus, x, jac=True, bounds=bounds, method="L-BFGS-B").fun


def message(D, length_scale, seed):
    """What a peer hands out: ω from its posterior after 0 to 40 observations."""
    rng = np.random.default_rng(seed)
    phi = Features(D, 100, length_scales=length_scale, seed=seed)
    regression = Regression(phi, 0.1)
    t = 20 * (seed % 3)
    regression.add(rng.random((t, D)))
    return regression.posterior(rng.standard_normal(t)).sample(rng)


def gp_draw(D, length_scale, seed, kernel="se"):
    """f_t after 0 to 40 observations of a function that the GP's prior could have made."""
    rng = np.random.default_rng(seed)
    hyper = Hyper(length_scales=(length_scale,) * D, noise_variance=1e-3, kernel=kernel)
    X = rng.random((20 * (seed % 3), D))
    truth = GP(hyper, X[:0]).sample(rng)
    gp = GP(hyper, X)
    gp.set_scores(truth(X) + np.sqrt(1e-3) * rng.standard_normal(len(X)))
    return gp.sample(rng)


def misses(draw, space, length_scale, log2_points, cases=CASES):
    """Return the gaps of the cases that are missed."""
    gaps = []
    for seed in range(cases):
        f = draw(space.dimensions, length_scale, seed)
        x = argmax(f, space)
        assert x.shape == (space.dimensions,) and x.dtype == np.float64
        assert ((x >= 0) & (x <= 1)).all()
        gaps.append(far_search(f, space, log2_points) - f(x[None])[0])
    return [round(gap, 3) for gap in gaps if gap > MARGIN]


@pytest.mark.parametrize("draw", [message, gp_draw])
@pytest.mark.parametrize(
    ("D", "length_scale", "log2_points"),
    [(2, 0.01, 17), (2, 0.2, 14), (3, 0.2, 15), (6, 0.5, 16)],
)
@pytest.mark.slow
def test_finds_the_maximum_in_99_of_100(draw, D, length_scale, log2_points):
    assert len(misses(draw, cube(D), length_scale, log2_points)) <= 1


# Spaces with levels

MIXED = Space({"a": Float(0, 1), "n": Int(1, 7), "c": Categorical(["u", "v", "w"])})
FINE = Space({"a": Float(0, 1), "b": Float(0, 1), "n": Int(1, 100), "m": Int(1, 5)})
LOG = Space(
    {
        "lr": Float(1e-5, 1, log=True),
        "width": Int(4, 512, log=True),
        "bias": Categorical([True, False]),
    }
)
LEVELS = Space({"n": Int(1, 10), "s": Float(0, 1, step=0.25), "c": Categorical([1, 2, 3])})


@pytest.mark.parametrize(
    "space", [MIXED, FINE, LOG, LEVELS], ids=["mixed", "fine", "log", "levels"]
)
def test_results_are_allowed(space):
    """Exactly the places that `encode` gives: trials that look equal must be equal."""
    for seed in range(10):
        f = gp_draw(space.dimensions, 0.4, seed)
        x = argmax(f, space)
        np.testing.assert_array_equal(x[None], space.snap(x[None]))
        fixed = ~space.free
        np.testing.assert_array_equal(x[fixed], space.encode(space.decode(x))[fixed])


@pytest.mark.parametrize("draw", [message, gp_draw])
@pytest.mark.parametrize("length_scale", [0.2, 1.0])
@pytest.mark.parametrize(
    "space", [MIXED, FINE, LOG, LEVELS], ids=["mixed", "fine", "log", "levels"]
)
@pytest.mark.slow
def test_spaces_with_levels(draw, length_scale, space):
    assert len(misses(draw, space, length_scale, 14, cases=25)) <= 2


# Discrete domains


def listed(n, seed):
    rng = np.random.default_rng(seed)
    space = Space({"a": Float(0, 1), "b": Float(0, 1)})
    points = [space.decode(x) for x in rng.random((n, 2))]
    return Space(dict(space.parameters), points=points)


@pytest.mark.parametrize("n", [1, 2, 500, 5000])
def test_discrete_domain_is_enumerated(n):
    space = listed(n, n)
    for seed in range(5):
        f = message(2, 0.1, seed)
        brute = max(range(n), key=lambda i: f(space.points[[i]])[0])
        np.testing.assert_array_equal(argmax(f, space), space.points[brute])


# Points worth a look


def test_near_is_looked_at():
    """A needle that screening misses is found from a point beside it."""

    class Needle:
        length_scales = np.full(4, 0.02)
        top = np.array([0.3, 0.1, 0.8, 0.6])

        def __call__(self, X):
            return np.exp(-0.5 * (((X - self.top) / 0.02) ** 2).sum(axis=1)).astype(X.dtype)

        def value_and_gradient(self, X):
            value = self(X)
            return value, (value[:, None] * (self.top - X) / 0.02**2).astype(X.dtype)

    near = np.array([[0.9, 0.9, 0.9, 0.9], Needle.top + 0.01])
    np.testing.assert_allclose(argmax(Needle(), cube(4), near), Needle.top, atol=1e-4)


# Points that are taken


class Hills:
    """Three hills, the one at 0.2 the highest, then that at 0.8."""

    length_scales = np.array([0.1])
    tops, heights = np.array([0.2, 0.5, 0.8]), np.array([1.0, 0.6, 0.8])

    def __call__(self, X):
        return self.value_and_gradient(X)[0]

    def value_and_gradient(self, X):
        gaps = X - self.tops.astype(X.dtype)
        hills = self.heights.astype(X.dtype) * np.exp(-0.5 * (gaps / 0.05) ** 2)
        return hills.sum(axis=1), -(hills * gaps / 0.05**2).sum(axis=1)[:, None]


def around(*places):
    return lambda X: (np.abs(X - np.array(places)) < 0.01).any(axis=1)


@pytest.mark.parametrize(
    ("taken", "expected"),
    [([], 0.2), ([0.2], 0.8), ([0.8], 0.2), ([0.2, 0.8], 0.5)],
)
def test_where_the_best_is_taken_the_next_best_is_the_answer(taken, expected):
    """Only the best climb is finished."""
    x = argmax(Hills(), cube(1), None, around(*taken))[0]
    assert x == pytest.approx(expected, abs=5e-3)


def test_taken_points_of_a_list():
    space = Space({"x": Float(0, 1)}, points=[{"x": x} for x in (0.2, 0.5, 0.78)])
    assert argmax(Hills(), space, None, around(0.2))[0] == pytest.approx(0.78)
    assert argmax(Hills(), space, None, around(0.2, 0.5, 0.78))[0] == pytest.approx(0.2)
