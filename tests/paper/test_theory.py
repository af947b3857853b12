"""The theory against closed forms, brute force, and the events in the lemmas.

Monte-Carlo tests are seeded and one-sided: where a lemma says that an event fails with probability
at most q, n independent repeats may show no more failures than the 99.9 % quantile of
Binomial(n, q).
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


def most_failures(n, q):
    return binom.ppf(0.999, n, q)


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


def test_gain_of_independent_points_is_exact():
    n, T, sigma2 = 7, 40, 0.3
    often = [np.bincount(np.arange(t) % n, minlength=n) for t in range(T + 1)]
    exact = [0.5 * np.log1p(k / sigma2).sum() for k in often]
    np.testing.assert_allclose(theory.gamma_lower(np.eye(n), T, sigma2), exact)


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


def test_functions_take_arrays_of_steps():
    s, t = setting(), np.array([[1, 2, 3], [10, 20, 60]])
    for name in ("beta", "beta_prime", "c", "draw_deviation", "Delta_tilde", "Delta", "mean_error"):
        function = getattr(theory, name)
        each = [[function(int(k), s) for k in row] for row in t]
        np.testing.assert_allclose(function(t, s), each)
    each = [[theory.psi(int(k), power(0.5), s) for k in row] for row in t]
    np.testing.assert_allclose(theory.psi(t, power(0.5), s), each)


def test_weights_of_peers_count():
    only_first = setting(P_N=(1.0, 0.0, 0.0))
    expected = 2 * 2**-0.5 * theory.Delta(2, only_first)[0]
    assert theory.psi(2, power(0.5), only_first) == pytest.approx(expected)
    assert theory.psi(2, power(0.5), setting(t_n=(), d_n=())) == 0.0


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


def test_bounds_grow_more_slowly_than_their_horizon():
    T, sigma2 = 200_000, 0.1
    gamma = tuple((10 * 0.5 * np.log1p(np.arange(T + 1) / 10 / sigma2)).tolist())  # 10 lone points
    s = Setting(B=1.0, noise_variance=sigma2, domain_size=10, gamma=gamma, t_n=(9,), d_n=(2.0,))
    for bound in (theory.bound, theory.robust_bound):
        rate = bound(power(0.5), T, s) / np.arange(1, T + 1)
        assert rate[-1] < 0.2 * rate[T // 100]  # √T would give 0.1


@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_robust_bound_is_smaller(repaired, exponent):
    s = setting(repaired=repaired)
    assert np.all(
        theory.robust_bound(power(exponent), 60, s)[4:]
        < 0.2 * theory.bound(power(exponent), 60, s)[4:]
    )


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


# ------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(B=0.0), "B is 0.0"),
        (dict(delta=1.0), "delta is 1.0"),
        (dict(epsilon=-1.0), "epsilon is -1.0"),
        (dict(d_n=(1.0,)), r"\(3, 1, 3\) peers"),
        (dict(P_N=(0.5, 0.5, 0.5)), "add up to 1"),
        (dict(P_N=(1.5, -0.5, 0.0)), "add up to 1"),
        (dict(t_n=(-1, 2, 3)), "t_n is"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        setting(**changes)


def test_other_wrong_input_is_refused():
    s = setting()
    for t in (0, 1.5, [-1, 2]):
        with pytest.raises(ValueError, match="whole numbers from 1"):
            theory.beta(t, s)
    with pytest.raises(ValueError, match="gamma ends at γ_60"):
        theory.beta(62, s)
    with pytest.raises(ValueError, match=r"p_5 = 2\.5"):
        theory.bound(lambda t: t / 2, 5, s)
    for K in (np.ones(3), 2 * np.eye(3), np.triu(np.ones((3, 3))), np.full((2, 2), np.nan)):
        with pytest.raises(ValueError, match="symmetric kernel matrix"):
            theory.gamma_lower(K, 2, 0.1)
    with pytest.raises(ValueError, match="never decrease"):
        Setting(B=1.0, noise_variance=0.1, domain_size=3, gamma=(0.0, 2.0, 1.0))


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


@pytest.mark.parametrize(
    ("B", "sigma2", "repaired"),
    [(3.0, 0.1, False), (3.0, 1.0, False), (0.1, 1e-4, True), (1.0, 0.01, True), (3.0, 0.1, True)],
)
def test_lemma_1(B, sigma2, repaired):
    K, T, runs = se(grid(30)), 20, 1000
    s = Setting.from_kernel(K, T, B=B, noise_variance=sigma2, repaired=repaired, delta=0.2)
    failures = failures_of_lemma_1(s, K, T, runs, np.random.default_rng(2))
    assert failures <= most_failures(runs, s.delta / 4)


@pytest.mark.parametrize(("B", "sigma2"), [(0.1, 1e-4), (1.0, 0.01), (1.0, 0.1)])
def test_lemma_1_is_false_as_printed_when_the_noise_is_small(B, sigma2):
    K, T, runs = se(grid(30)), 20, 1000
    s = Setting.from_kernel(K, T, B=B, noise_variance=sigma2, repaired=False, delta=0.2)
    failures = failures_of_lemma_1(s, K, T, runs, np.random.default_rng(2))
    assert failures > most_failures(runs, s.delta / 4)


def test_lemma_1_is_false_as_printed_in_closed_form():
    """One point, one observation, f = B: μ − f is normal, so the probability is exact."""
    B, sigma = 1.0, 0.1
    s = Setting.from_kernel(np.ones((1, 1)), 1, B=B, noise_variance=sigma**2, repaired=False)
    centre = -B * sigma**2 / (1 + sigma**2)  # μ_1 − f = (σz − Bσ²)/(1 + σ²)
    width = float(theory.beta(2, s)) * sigma / math.sqrt(1 + sigma**2)
    scale = sigma / (1 + sigma**2)
    fails = norm.sf(width, centre, scale) + norm.cdf(-width, centre, scale)
    assert fails > 0.15 > 6 * s.delta / 4 - 1e-12


@pytest.mark.parametrize("t", [2, 3, 6])
def test_lemma_2(t):
    K, rng, draws = se(grid(30)), np.random.default_rng(3), 4000
    s = Setting.from_kernel(K, t, B=1.0, noise_variance=0.1)
    mean, C = np.zeros((1, 30)), K[None]
    for _ in range(t - 1):
        mean, C = observe(mean, C, rng.integers(30, size=1), rng.standard_normal(1), 0.1)
    root = np.linalg.cholesky(C[0] + 1e-10 * np.eye(30))
    beta, sd = float(theory.beta(t, s)), np.sqrt(C[0].diagonal())
    deviation = np.abs(beta * root @ rng.standard_normal((30, draws)))
    width = beta * math.sqrt(2 * math.log(30 * t**2)) * sd
    failures = np.any(deviation > width[:, None] + 1e-4, axis=0).sum()
    assert failures <= most_failures(draws, 1 / t**2)


def peers(s, K, Phi, steps, rng):
    """Peers with t_n observations: g (N, n), μ, μ̂ (N, n) and ĝ (N, steps, n), fresh every step."""
    g = in_ball(K, s.B, rng, s.N)
    mu, mu_hat, g_hat = [], [], []
    for g_n, t_n in zip(g, s.t_n, strict=True):
        x = rng.integers(len(K), size=t_n)
        y = g_n[x] + math.sqrt(s.noise_variance) * rng.standard_normal(t_n)
        noise = s.noise_variance * np.eye(t_n)
        mu.append(K[:, x] @ np.linalg.solve(K[np.ix_(x, x)] + noise, y))
        Sigma = Phi[x].T @ Phi[x] + s.noise_variance * np.eye(s.M)
        nu = np.linalg.solve(Sigma, Phi[x].T @ y)
        z = rng.standard_normal((s.M, steps))
        omega = nu[:, None] + math.sqrt(s.noise_variance) * np.linalg.solve(
            np.linalg.cholesky(Sigma).T, z
        )
        mu_hat.append(Phi @ nu)
        g_hat.append((Phi @ omega).T)
    return g, np.array(mu), np.array(mu_hat), np.array(g_hat)


@pytest.mark.parametrize(("M", "sigma2"), [(3, 0.1), (20, 0.1), (20, 1e-4)])
@pytest.mark.parametrize("repaired", [False, True])
def test_lemmas_3_and_4(M, sigma2, repaired):
    X, rng, runs, steps = grid(40), np.random.default_rng(4), 1000, 6
    K, t = se(X), np.arange(1, steps + 1)
    phi = fourier(M, rng)
    s = Setting.from_kernel(
        K, 1, B=1.5, noise_variance=sigma2, M=M, epsilon=theory.epsilon(phi, X, K), delta=0.4,
        t_n=(3, 15, 30), d_n=(0.0, 0.0, 0.0), repaired=repaired,
    )  # fmt: skip
    draw, mean = theory.draw_deviation(t, s), theory.mean_error(t, s).min(axis=0)
    whole = theory.Delta_tilde(t, s).T
    failed = np.zeros(3)
    for _ in range(runs):
        g, mu, mu_hat, g_hat = peers(s, K, phi(X), steps, rng)
        failed += (
            np.any(np.abs(g_hat - mu_hat[:, None]).max(axis=2) > draw),
            np.any(np.abs(mu_hat - mu).max(axis=1) > mean),
            np.any(np.abs(g_hat - g[:, None]).max(axis=2) > whole),
        )
    claims = np.array([s.delta / 4, s.delta / 8, s.delta / 2])
    assert np.all(failed <= most_failures(runs, claims))


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
