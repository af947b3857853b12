"""The theory against closed forms, brute force, and the events in the lemmas.

Where lemma 1 says that an event fails with probability at most q, n independent repeats may show
no more failures than the 99.9 % quantile of Binomial(n, q).
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

from fedbo_paper import theory
from fedbo_paper.theory import Setting


def se(X, length_scale=0.2):
    return np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2) / length_scale**2)


def grid(n):
    return np.linspace(0, 1, n)[:, None]


def fourier(M, rng, length_scale=0.2):
    s, b = rng.standard_normal((M, 1)) / length_scale, rng.uniform(0, 2 * np.pi, M)

    def phi(X):
        C = np.cos(X @ s.T + b)
        return C / np.linalg.norm(C, axis=1, keepdims=True)

    return phi


def in_ball(K, B, rng, size):
    """Functions Σ a_i k(·, x_i) of RKHS norm B, by their values on the domain: (size, n)."""
    a = rng.standard_normal((size, len(K))) * (rng.random((size, len(K))) < 0.1)
    a[:, 0] += 1e-6  # none is all zero
    f = a @ K
    return B * f / np.sqrt(np.einsum("ij,ij->i", a, f))[:, None]


def observe(mean, C, x, y, sigma2):
    """Posterior means (R, n) and covariances (R, n, n) after one observation in each of R runs."""
    runs = np.arange(len(x))
    column = C[runs, :, x]
    gain = column / (C[runs, x, x] + sigma2)[:, None]
    mean = mean + gain * (y - mean[runs, x])[:, None]
    return mean, C - gain[:, :, None] * column[:, None, :]


def power(exponent):
    return lambda t: 1.0 - max(t, 2) ** -exponent


def setting(**changes):
    plain = dict(B=2.0, noise_variance=0.1, t_n=(5, 20, 0), d_n=(0.1, 1.0, 4.0), epsilon=0.05)
    plain |= dict(repaired=False)  # formulas as the paper prints them, unless asked otherwise
    return Setting.from_kernel(se(grid(30)), 60, **(plain | changes))


# ---------------------------------------------------------------- information gain and features


@pytest.mark.parametrize("sigma2", [0.01, 0.5])
def test_greedy_gain_and_its_upper_bound_enclose_brute_force(sigma2):
    rng = np.random.default_rng(0)
    K = se(rng.random((6, 2)), 0.4)
    lower, upper = theory.gamma_lower(K, 4, sigma2), theory.gamma_upper(K, 4, sigma2)
    np.testing.assert_allclose(upper, lower / (1 - 1 / math.e))
    for t in range(1, 5):
        best = max(
            0.5 * np.linalg.slogdet(np.eye(t) + K[np.ix_(A, A)] / sigma2)[1]
            for A in combinations_with_replacement(range(6), t)
        )
        assert lower[t] <= best + 1e-9 <= upper[t]


def test_epsilon_is_the_largest_error_and_falls_with_more_features():
    X = grid(40)
    K, errors = se(X), []
    for M in (20, 2000):
        phi = fourier(M, np.random.default_rng(1))
        Phi = phi(X)
        worst = max(abs(K[i, j] - Phi[i] @ Phi[j]) for i in range(40) for j in range(40))
        errors.append(theory.epsilon(phi, X, K))
        assert errors[-1] == pytest.approx(worst)
    assert errors[1] < errors[0] / 4  # M^-1/2 would give 1/10


# ------------------------------------------------------------------------------- the formulas


def test_formulas_as_the_paper_prints_them():
    s = setting()
    B, sigma, delta, N, M, eps = s.B, math.sqrt(0.1), s.delta, 3, s.M, s.epsilon
    for t in (1, 2, 7, 60):
        beta = B + sigma * math.sqrt(2 * (s.gamma[t - 1] + 1 + math.log(4 / delta)))
        c = beta * (1 + math.sqrt(2 * math.log(30 * t * t)))
        Delta = []
        for t_n, d_n in zip(s.t_n, s.d_n, strict=True):
            own = B + sigma * math.sqrt(2 * (s.gamma[t_n] + 1 + math.log(8 * N / delta)))
            root = math.sqrt(2 * math.log(4 * math.pi**2 * t**2 * N / (3 * delta)))
            draw = math.sqrt(2 * math.log(2 * math.pi**2 * t**2 * N / (3 * delta)) + M)
            tilde = eps * (t_n + 1) ** 2 / sigma**2 * (B + root) + own + draw
            Delta.append(tilde + d_n + c)
        assert theory.beta(t, s) == pytest.approx(beta)
        assert theory.c(t, s) == pytest.approx(c)
        np.testing.assert_allclose(theory.Delta(t, s), Delta)
        np.testing.assert_allclose(theory.Delta(t, s) - theory.Delta_tilde(t, s) - c, s.d_n)
        psi = 2 * t**-0.5 * np.mean(Delta)
        assert theory.psi(t, lambda t: 1 - t**-0.5 or 1e-9, s) == pytest.approx(psi)


def test_p_t_of_lemma_7_is_positive_exactly_where_lemma_8_holds():
    t = np.arange(1, 2000)
    P = theory.P(t, lambda t: 1.0)
    assert (P > 0).tolist() == (t >= theory.FIRST).tolist()
    assert np.all(1 / P[theory.FIRST - 1 :] <= 5 / theory.p)
    assert theory.p == pytest.approx(0.05189, abs=1e-5) and theory.p < norm.sf(1)


def test_bound_is_the_sum_in_the_proof():
    s, schedule, T = setting(), power(0.5), 25
    p, B = theory.p, s.B
    a = 1 + 10 / (p * schedule(1))
    total, squares = 8 * B, 0.0
    for t in range(5, T + 1):
        c, psi = float(theory.c(t, s)), float(theory.psi(t, schedule, s))
        total += psi + 2 * B / t**2
        squares += (c * (1 + 4 * B / p + 10 / (p * schedule(1))) + psi) ** 2
    sigmas = math.sqrt(2 * (T - 4) * s.gamma[T] / math.log(1 + 1 / s.noise_variance))
    total += a * float(theory.c(T, s)) * sigmas + math.sqrt(2 * math.log(4 / s.delta) * squares)
    bound = theory.bound(schedule, T, s)
    assert bound.shape == (T,) and bound[-1] == pytest.approx(total)
    np.testing.assert_allclose(bound[:4], 2 * B * np.arange(1, 5))
    assert np.all(np.diff(bound) > 0)
    np.testing.assert_allclose(theory.bound(schedule, 3, s), bound[:3])


# ------------------------------------------------------------------------------------- check


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_schedules_of_the_paper_fail_at_2_by_a_constant_factor(exponent):
    result = theory.check(power(exponent), 60, setting())
    c = theory.c([1, 2], setting())
    assert result.first_failure == 2
    assert result.excess == pytest.approx(c[1] / c[0])
    assert result.decay == pytest.approx(exponent)


def test_a_schedule_that_starts_low_enough_holds():
    assert theory.check(lambda t: 1 - 0.9 / t, 60, setting()).first_failure is None
    assert theory.check(lambda t: 1.0, 60, setting()) == (None, 1.0, 0.0)


# --------------------------------------------------------------------- the events of the lemmas


def failures_of_lemma_1(s, K, T, runs, rng):
    """Runs in which |μ_{t−1} − f| ≤ β_t σ_{t−1} fails somewhere on the domain for some t ≤ T."""
    f = in_ball(K, s.B, rng, runs)
    mean, C = np.zeros_like(f), np.tile(K, (runs, 1, 1))
    failed = np.zeros(runs, dtype=bool)
    for t in range(1, T + 1):
        sd = np.sqrt(np.maximum(np.einsum("rii->ri", C), 1e-15))
        failed |= np.any(np.abs(mean - f) > theory.beta(t, s) * sd, axis=1)
        # The most uncertain of a few random points: neither a fixed design nor a greedy one.
        few = rng.integers(len(K), size=(runs, 3))
        x = few[np.arange(runs), np.take_along_axis(sd, few, axis=1).argmax(axis=1)]
        noise = math.sqrt(s.noise_variance) * rng.standard_normal(runs)
        mean, C = observe(mean, C, x, f[np.arange(runs), x] + noise, s.noise_variance)
    return int(failed.sum())


@pytest.mark.parametrize(("B", "sigma2"), [(0.1, 1e-4), (1.0, 0.01), (3.0, 0.1)])
def test_lemma_1(B, sigma2):
    K, T, runs = se(grid(30)), 20, 1000
    s = Setting.from_kernel(K, T, B=B, noise_variance=sigma2, delta=0.2)
    failures = failures_of_lemma_1(s, K, T, runs, np.random.default_rng(2))
    assert failures <= binom.ppf(0.999, runs, s.delta / 4)


def test_lemma_1_is_false_as_printed_in_closed_form():
    """One point, one observation, f = B: μ − f is normal, so the probability is exact."""
    B, sigma = 1.0, 0.1
    s = Setting.from_kernel(np.ones((1, 1)), 1, B=B, noise_variance=sigma**2, repaired=False)
    centre = -B * sigma**2 / (1 + sigma**2)  # μ_1 − f = (σz − Bσ²)/(1 + σ²)
    width = float(theory.beta(2, s)) * sigma / math.sqrt(1 + sigma**2)
    scale = sigma / (1 + sigma**2)
    fails = norm.sf(width, centre, scale) + norm.cdf(-width, centre, scale)
    assert fails > 0.15 > 6 * s.delta / 4 - 1e-12


@pytest.mark.parametrize("M", [5, 100])
def test_the_tail_of_chi_squared_in_lemma_3_is_not_what_the_paper_says(M):
    claim = 3 * 0.1 / (2 * math.pi**2)  # t = 1, N = 1, δ = 0.1
    printed, repaired = (
        float(theory.draw_deviation(1, setting(M=M, t_n=(1,), d_n=(0.0,), repaired=repaired)))
        for repaired in (False, True)
    )
    assert chi2.sf(printed**2, M) > 1.3 * claim
    assert chi2.sf(repaired**2, M) < claim


# --------------------------------------------------------------------------- regret of plain FTS


def run_fts(s, K, Phi, f, g, schedule, T, rng):
    """Algorithm 1 on a discrete domain: regrets and posterior variances of the queries."""
    n, sigma = len(K), math.sqrt(s.noise_variance)
    mean, C = np.zeros((1, n)), K[None]
    regret, variance = np.empty(T), np.empty(T)
    betas = theory.beta_sequence(T, s)
    for t in range(1, T + 1):
        if rng.random() <= schedule(t):
            root = np.linalg.cholesky(C[0] + 1e-9 * np.eye(n))
            x = int((mean[0] + betas[t - 1] * root @ rng.standard_normal(n)).argmax())
        else:
            peer = rng.integers(s.N)
            seen = rng.integers(n, size=s.t_n[peer])
            y = g[peer][seen] + sigma * rng.standard_normal(len(seen))
            Sigma = Phi[seen].T @ Phi[seen] + s.noise_variance * np.eye(s.M)
            nu = np.linalg.solve(Sigma, Phi[seen].T @ y)
            deviation = np.linalg.solve(np.linalg.cholesky(Sigma).T, rng.standard_normal(s.M))
            x = int((Phi @ (nu + sigma * deviation)).argmax())
        regret[t - 1], variance[t - 1] = f.max() - f[x], C[0, x, x]
        y = f[x] + sigma * rng.standard_normal(1)
        mean, C = observe(mean, C, np.array([x]), y, s.noise_variance)
    return regret, variance


@pytest.mark.parametrize("hostile", [False, True], ids=["similar", "hostile"])
@pytest.mark.parametrize("repaired", [False, True], ids=["printed", "repaired"])
def test_regret_stays_under_the_bounds(hostile, repaired):
    X, T, N, rng = grid(100), 60, 10, np.random.default_rng(5)
    K, schedule = se(X), power(0.5)
    phi = fourier(50, rng)
    for _ in range(20):
        f = in_ball(K, 2.0, rng, 1)[0]
        g = np.tile(-f if hostile else f, (N, 1))
        s = Setting.from_kernel(
            K, T, B=2.0, noise_variance=0.05, M=50, epsilon=theory.epsilon(phi, X, K),
            t_n=(15,) * N, d_n=tuple(np.abs(f - g).max(axis=1).tolist()), repaired=repaired,
        )  # fmt: skip
        regret, variance = run_fts(s, K, phi(X), f, g, schedule, T, rng)
        steps = np.arange(1, T + 1)
        assert np.all(np.cumsum(variance) <= theory.sum_variance(steps, s))
        assert np.all(np.cumsum(regret) <= theory.robust_bound(schedule, T, s))
        assert np.all(np.cumsum(regret) <= theory.bound(schedule, T, s))
