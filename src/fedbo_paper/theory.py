"""The quantities of Theorem 1, the regret bound behind it, and the condition on p_t.

==============  ==========================================================  ====================
symbol          meaning                                                     paper
==============  ==========================================================  ====================
B               bound on the RKHS norms of f and of every g_n               section 2
sigma²          noise variance of the observations and of the GP            equation 1
delta           the bound holds with probability at least 1 − δ             Theorem 1
K               (n, n) kernel matrix of the domain, k(x, x) ≤ 1             section 2
gamma_t         largest information gain of t observations, γ_0 = 0         Theorem 1
beta_t, c_t     widths of the confidence bands; for peers beta'_t           Theorem 1, Lemma 4
epsilon         largest error of φ(x)ᵀφ(x') against k(x, x')                section 2
d_n, t_n, P_N   max |f − g_n|, observations and probability of peer n       sections 2, 3
Delta~, Delta   bounds on |ĝ_n − g_n| and on |ĝ_n − f_t|                    Lemmas 4, 5
psi_t           2 (1 − p_t) Σ_n P_N[n] Δ_{n,t}                              Theorem 1
p, P_t          1 / (4 e √π); p_t (p − 1/t²)                                Lemmas 6, 7
==============  ==========================================================  ====================

t counts from 1, up to ``Setting.horizon`` + 1 where γ is needed, and may be an array. A result for
each peer has shape (*t.shape, N). A schedule returns p_t in (0, 1] for a step t. The paper's proof
does not support its ``beta`` and ``draw_deviation``; they are corrected here, unless
``Setting.repaired`` is False. docs/lab/theory.md explains why, and proves what is not in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
Schedule = Callable[[int], float]

#: Lemma 6: a draw f_t(x) exceeds f(x) with probability Φ(−1) ≈ 0.16 or more, and Φ(−1) ≥ p.
p = 1.0 / (4.0 * math.e * math.sqrt(math.pi))

#: The first step with P_t > 0, and with 1/(p − 1/t²) ≤ 5/p, which Lemma 8 uses.
FIRST = 5


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of Theorem 1.

    Args:
        B: Bound on the RKHS norms.
        noise_variance: σ².
        domain_size: Number of points of the domain, |X|.
        gamma: γ_0, …, γ_T. Its length determines the horizon T.
        delta: The bound holds with probability at least 1 − δ (default 0.1).
        M: Number of features (default 100).
        epsilon: Largest error of the features (default 0).
        t_n: Number of observations of each peer.
        d_n: Largest difference between f and each peer's function.
        P_N: Probability of each peer (default None: uniform).
        repaired: Use the corrected β_t and Lemma 3 (default); False uses the printed ones.

    >>> peers = {"t_n": (10,), "d_n": (0.5,)}
    >>> setting = Setting.from_kernel(np.eye(20), 50, B=1.0, noise_variance=0.1, **peers)
    >>> setting.domain_size, setting.horizon, setting.N
    (20, 50, 1)
    """

    B: float
    noise_variance: float
    domain_size: int
    gamma: tuple[float, ...]
    delta: float = 0.1
    M: int = 100
    epsilon: float = 0.0
    t_n: tuple[int, ...] = ()
    d_n: tuple[float, ...] = ()
    P_N: tuple[float, ...] | None = None
    repaired: bool = True

    def __post_init__(self) -> None:
        growing = self.gamma[:1] == (0,) and bool(np.all(np.diff(self.gamma) >= 0))
        _require(growing, "gamma must hold γ_0 = 0, γ_1, γ_2, … and never decrease")
        sizes = (self.N, len(self.d_n), len(self.probabilities))
        _require(len(set(sizes)) == 1, f"t_n, d_n and P_N name {sizes} peers; they must agree")

    @classmethod
    def from_kernel(cls, K: ArrayLike, T: int, *, noise_variance: float, **constants: Any) -> Self:
        """Return the setting on a discrete domain, with γ_t from ``gamma_upper``.

        Args:
            K: Kernel matrix of the domain, (n, n).
            T: Horizon.
            noise_variance: σ².
            constants: Other arguments of `Setting`.
        """
        gamma = gamma_upper(K, max(T, *constants.get("t_n", ()), 0), noise_variance)
        constants |= {"noise_variance": noise_variance, "domain_size": len(np.asarray(K))}
        return cls(gamma=tuple(gamma.tolist()), **constants)

    @property
    def N(self) -> int:
        return len(self.t_n)

    @property
    def horizon(self) -> int:
        return len(self.gamma) - 1

    @property
    def probabilities(self) -> Array:
        return np.full(self.N, 1.0 / max(self.N, 1)) if self.P_N is None else np.asarray(self.P_N)


def gamma_lower(K: ArrayLike, T: int, noise_variance: float) -> Array:
    """Return lower bounds on γ_0, …, γ_T: the information gain of the greedy choice of points.

    The gain of observations A is ½ log det(I + σ⁻² K_A). The greedy choice is the point with the
    largest posterior variance. A point may be chosen twice, because FTS may query it twice.

    >>> np.round(gamma_lower(np.eye(2), 3, 1.0) / np.log(2), 3).tolist()  # ½, ½, ½ log2(3/2)
    [0.0, 0.5, 1.0, 1.292]
    """
    K = _kernel_matrix(K)
    variance = K.diagonal().copy()
    columns = np.zeros((len(K), T))  # posterior covariance after t steps: K − columns columnsᵀ
    gain = np.zeros(T + 1)
    for t in range(T):
        best = int(variance.argmax())
        gain[t + 1] = 0.5 * math.log1p(variance[best] / noise_variance)
        column = K[:, best] - columns[:, :t] @ columns[best, :t]
        columns[:, t] = column / math.sqrt(variance[best] + noise_variance)
        variance = np.maximum(variance - columns[:, t] ** 2, 0.0)
    return np.cumsum(gain)


def gamma_upper(K: ArrayLike, T: int, noise_variance: float) -> Array:
    """Return upper bounds on γ_0, …, γ_T: ``gamma_lower`` / (1 − 1/e), by submodularity."""
    return gamma_lower(K, T, noise_variance) / (1.0 - 1.0 / math.e)


def epsilon(phi: Callable[[Array], Array], X: Array, K: ArrayLike) -> float:
    """Return sup |k(x, x') − φ(x)ᵀφ(x')| over the rows of X (n, D) with kernel matrix K (n, n).

    >>> epsilon(lambda X: np.ones((len(X), 1)), np.zeros((2, 1)), [[1, 0.75], [0.75, 1]])
    0.25
    """
    Phi = phi(X)
    return float(np.abs(_kernel_matrix(K) - Phi @ Phi.T).max())


def beta(t: ArrayLike, setting: Setting) -> Array:
    """Return β_t = B + σ √(2(γ_{t−1} + 1 + log(4/δ))), without the factor σ if repaired.

    >>> printed = Setting.from_kernel(np.eye(20), 50, B=1.0, noise_variance=0.1, repaired=False)
    >>> np.round(beta([1, 2, 50], printed), 2).tolist()
    [1.97, 2.15, 4.34]
    """
    return _width(t, setting, 4.0)


def beta_prime(t: ArrayLike, setting: Setting) -> Array:
    """Return β'_t, the width for peers: β_t with log(8N/δ) instead of log(4/δ) (Lemma 4)."""
    return _width(t, setting, 8.0 * max(setting.N, 1))


def beta_sequence(T: int, setting: Setting) -> tuple[float, ...]:
    """Return (β_1, …, β_T), an argument for policies such as `fedbo.TS`."""
    return tuple(beta(np.arange(1, T + 1), setting).tolist())


def c(t: ArrayLike, setting: Setting) -> Array:
    """Return c_t = β_t (1 + √(2 log(|X| t²)))."""
    log = math.log(setting.domain_size) + 2.0 * np.log(_steps(t))
    return beta(t, setting) * (1.0 + np.sqrt(2.0 * log))


def draw_deviation(t: ArrayLike, setting: Setting) -> Array:
    """Return Lemma 3's bound on |ĝ_n − μ̂_n|: √(2u + M) as printed, √(2u) + √M if repaired."""
    u = _log_odds(t, setting, 2.0)  # log(2π²t²N/(3δ))
    return np.sqrt(2 * u) + setting.M**0.5 if setting.repaired else np.sqrt(2 * u + setting.M)


def mean_error(t: ArrayLike, setting: Setting) -> Array:
    """Return Lemma 4's bound on |μ̂_n − μ_n|, ε (t_n+1)²/σ² (B + √(2 log(4π²t²N/(3δ))))."""
    y = setting.B + np.sqrt(2.0 * _log_odds(t, setting, 4.0))
    growth = (np.asarray(setting.t_n, dtype=np.float64) + 1.0) ** 2 / setting.noise_variance
    return y[..., None] * (setting.epsilon * growth)


def Delta_tilde(t: ArrayLike, setting: Setting) -> Array:  # noqa: N802 (the paper's letter)
    """Return Δ~_{n,t} of Lemma 4, the bound on |ĝ_n(x) − g_n(x)|."""
    width = beta_prime(np.asarray(setting.t_n, dtype=int) + 1, setting)
    return mean_error(t, setting) + width + draw_deviation(t, setting)[..., None]


def Delta(t: ArrayLike, setting: Setting) -> Array:  # noqa: N802 (the paper's letter)
    """Return Δ_{n,t} = Δ~_{n,t} + d_n + c_t, the bound on |ĝ_n(x) − f_t(x)|."""
    return Delta_tilde(t, setting) + np.array(setting.d_n, np.float64) + c(t, setting)[..., None]


def psi(t: ArrayLike, schedule: Schedule, setting: Setting) -> Array:
    """Return ψ_t = 2 (1 − p_t) Σ_n P_N[n] Δ_{n,t}, the cost of peers at step t; 0 without peers."""
    return 2.0 * (1.0 - _probabilities(t, schedule)) * (Delta(t, setting) @ setting.probabilities)


def P(t: ArrayLike, schedule: Schedule) -> Array:  # noqa: N802 (the paper's letter)
    """Return P_t = p_t (p − 1/t²) of Lemma 7; for t ≤ 4 it is negative and has no meaning."""
    return _probabilities(t, schedule) * (p - 1.0 / _steps(t) ** 2.0)


def sum_variance(T: ArrayLike, setting: Setting) -> Array:
    """Return the bound 2γ_T / log(1 + σ⁻²) on Σ_{t≤T} σ²_{t−1}(x_t), for any queries x_t.

    It holds because s log(1 + σ⁻²) ≤ log(1 + s/σ²) for s = σ²_{t−1}(x_t) ≤ 1, and ½ Σ log(1 + s/σ²)
    is the information gain of x_1, …, x_T."""
    return 2.0 * _gamma(_steps(T), setting) / math.log1p(1.0 / setting.noise_variance)


def bound(schedule: Schedule, T: int, setting: Setting) -> Array:
    """Return the bound behind Theorem 1 on R_1, …, R_T, before it is simplified to O(), (T,).

    With a = 1 + 10/(p p_1) and sums over t from 5,
    R_T ≤ 8B + a c_T √((T − 4) ``sum_variance``) + Σψ_t + Σ2B/t²
    + √(2 log(4/δ) Σ[c_t (a + 4B/p) + ψ_t]²).
    Each of the first four steps counts 2B, because |f| ≤ B; Lemma 8 does not apply where P_t < 0.
    Each entry holds with probability 1 − δ, but not all entries at once.

    >>> setting = Setting.from_kernel(np.eye(20), 50, B=1.0, noise_variance=0.1)
    >>> bound(lambda t: 1.0, 50, setting)[:4].tolist()
    [2.0, 4.0, 6.0, 8.0]
    """
    first, t = 2.0 * setting.B * np.arange(1, min(T + 1, FIRST)), np.arange(FIRST, T + 1)
    a = 1.0 + 10.0 / (p * _probabilities(1, schedule))
    c_t, psi_t = c(t, setting), psi(t, schedule, setting)
    expected = np.cumsum(psi_t + 2.0 * setting.B / _steps(t) ** 2.0)
    expected += a * c_t * np.sqrt((t - FIRST + 1) * sum_variance(t, setting))
    # 4B c_t/p replaces 2B + 2B/t², which requires c_t ≥ p: true unless B and σ are tiny.
    step = a * c_t + 4.0 * setting.B * np.maximum(c_t / p, 1.0) + psi_t
    chance = np.sqrt(2.0 * math.log(4.0 / setting.delta) * np.cumsum(step**2))
    return np.concatenate([first, 2.0 * setting.B * (FIRST - 1) + expected + chance])


def robust_bound(schedule: Schedule, T: int, setting: Setting) -> Array:
    """Return a smaller bound on R_1, …, R_T that depends on the peers only through p_t, (T,).

    2B(1 − p_t) replaces ψ_t, because a peer's query costs at most 2B, and Φ(−1) replaces p. The
    proof is for ``repaired`` settings."""
    first, t = 2.0 * setting.B * np.arange(1, min(T + 1, FIRST)), np.arange(FIRST, T + 1)
    a_t = c(t, setting) * (1.0 + 2.0 / (float(ndtr(-1.0)) - 1.0 / _steps(t) ** 2.0))
    peers = 2.0 * setting.B * (1.0 - _probabilities(t, schedule))
    expected = np.cumsum(peers + 2.0 * setting.B / _steps(t) ** 2.0)
    expected += np.sqrt(np.cumsum(a_t**2) * sum_variance(t, setting))
    spread = np.cumsum((2.0 * setting.B + a_t) ** 2)
    chance = np.sqrt(0.5 * math.log(4.0 / setting.delta) * spread)
    return np.concatenate([first, 2.0 * setting.B * (FIRST - 1) + expected + chance])


class Check(NamedTuple):
    """Whether (1 − p_t) c_t ≤ (1 − p_1) c_1 holds for t = 2, …, T."""

    first_failure: int | None
    excess: float
    decay: float


def check(schedule: Schedule, T: int, setting: Setting) -> Check:
    """Check whether p_t satisfies the conditions of Theorem 1.

    >>> setting = Setting.from_kernel(np.eye(20), 50, B=1.0, noise_variance=0.1)
    >>> check(lambda t: 1 - max(t, 2) ** -0.5, 50, setting).first_failure
    2
    """
    t = np.arange(1, T + 1)
    away = 1.0 - _probabilities(t, schedule)
    sides = away * c(t, setting)
    failures = t[sides > sides[0] * (1.0 + 1e-12)]
    excess = sides.max() / sides[0] if sides[0] else (math.inf if len(failures) else 1.0)
    middle = (T + 1) // 2
    gap, last = away[middle - 1], away[-1]
    decay = math.log(gap / last) / math.log(T / middle) if gap > last > 0 else 0.0
    return Check(int(failures[0]) if len(failures) else None, float(excess), decay)


def _width(t: ArrayLike, setting: Setting, odds: float) -> Array:
    factor = 1.0 if setting.repaired else math.sqrt(setting.noise_variance)
    gain = _gamma(_steps(t) - 1, setting)
    return setting.B + factor * np.sqrt(2.0 * (gain + 1.0 + math.log(odds / setting.delta)))


def _log_odds(t: ArrayLike, setting: Setting, factor: float) -> Array:
    odds = factor * math.pi**2 * max(setting.N, 1) / (3.0 * setting.delta)
    return math.log(odds) + 2.0 * np.log(_steps(t))


def _gamma(index: NDArray[np.int64], setting: Setting) -> Array:
    last = index.max(initial=0)
    _require(last <= setting.horizon, f"gamma ends at γ_{setting.horizon}; γ_{last} is needed")
    return np.asarray(setting.gamma)[index]


def _steps(t: ArrayLike) -> NDArray[np.int64]:
    steps = np.asarray(t)
    whole = not steps.size or (steps.dtype.kind in "iu" and steps.min() >= 1)
    _require(whole, f"t is {t!r}; it must be whole numbers from 1 on")
    return steps.astype(np.int64)


def _probabilities(t: ArrayLike, schedule: Schedule) -> Array:
    steps = _steps(t)
    values = np.array([float(schedule(int(s))) for s in steps.flat])
    for s, value in zip(steps.flat, values, strict=True):
        _require(0 < value <= 1, f"the schedule gives p_{s} = {value}; p_t must lie in (0, 1]")
    return values.reshape(steps.shape)


def _kernel_matrix(K: ArrayLike) -> Array:
    K = np.asarray(K, dtype=np.float64)
    proper = np.allclose(K, K.T) and K.diagonal().max() <= 1 + 1e-9
    _require(proper, f"K {K.shape} must be a symmetric kernel matrix (n, n) with k(x, x) <= 1")
    return K


def _require(holds: object, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)
