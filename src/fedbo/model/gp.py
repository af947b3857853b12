"""The exact Gaussian process of one agent (equation 1), and draws from it.

==========  ========================================================  ============
symbol      meaning                                                   shape
==========  ========================================================  ============
X, y        observed points of the cube and their standard scores     (t, D), (t,)
l           length scales (``length_scales``)                         (D,)
sigma02     σ₀², the signal variance                                  scalar
sigma2      σ², the noise variance                                    scalar
K           K_t, kernel matrix of X                                   (t, t)
L           lower Cholesky factor, K + σ²I = L Lᵀ                     (t, t)
alpha       (K + σ²I)⁻¹ y                                             (t,)
u           L⁻¹ y                                                     (t,)
V           L⁻¹ k(X, x) at n points x                                 (t, n)
mu, var     μ_t(x) and σ_t²(x, x), the posterior                      (n,)
f_t         a draw from GP(μ_t, β_t² σ_t²) (Algorithm 1, line 4)      function
f⁰          a draw from the prior GP(0, σ₀² k)                        function
v           (K + σ²I)⁻¹ (y − β (f⁰(X) + noise)): Matheron's update    (t,)
==========  ========================================================  ============

f_t is drawn by Matheron's rule: f_t(x) = β f⁰(x) + k(x, X) v. The prior draw f⁰ is a sum of cosines
with fresh random frequencies. It keeps its full variance far from the data; a draw of weights of
fixed features would not. On a short list of points the draw is exact.
"""

from __future__ import annotations

import msgspec
import numpy as np
from scipy.linalg.lapack import dpotrs

from fedbo.model.argmax import SampledFunction, Tabled
from fedbo.model.kernel import (
    Array,
    Rows,
    Twins,
    cholesky,
    kernel_named,
    semidefinite_factor,
    solve_lower,
    squared_distances,
)

_WAVES = 128  # cosines in a draw of the prior; each counts as two features
_CELLS = 2**17  # of a matrix (t, n): more of them would leave the cache
_SHORT = 500  # listed points up to which a draw is exact: beyond, the factor takes over 10 ms


class Hyper(msgspec.Struct, frozen=True, kw_only=True):
    """Hyper-parameters of a GP on standard scores.

    Args:
        length_scales: One for each dimension, in units of the cube.
        signal_variance: σ₀², in standard units.
        noise_variance: σ², in standard units.
        kernel: ``"se"`` or ``"matern52"``.
    """

    length_scales: tuple[float, ...]
    signal_variance: float = 1.0
    noise_variance: float = 1e-2
    kernel: str = "se"


class GP:
    """The posterior of a zero-mean GP with fixed hyper-parameters.

    Args:
        hyper: The hyper-parameters.
        X: Observed points, (t, D). Set their scores with `set_scores`.

    >>> gp = GP(Hyper(length_scales=(0.2,), noise_variance=1e-4), np.array([[0.5]]))
    >>> gp.set_scores(np.array([1.0]))
    >>> mu, var = gp.predict(np.array([[0.5], [5.0]]))
    >>> np.round(mu, 3).tolist(), np.round(var, 3).tolist()
    ([1.0, 0.0], [0.0, 1.0])
    """

    def __init__(self, hyper: Hyper, X: Array) -> None:
        self.hyper = hyper
        self.kernel = kernel_named(hyper.kernel)
        self.length_scales = np.asarray(hyper.length_scales, dtype=np.float64)
        self.X = np.asarray(X, dtype=np.float64).reshape(-1, len(self.length_scales))
        self.L = cholesky(self.covariance(self.X, self.X), hyper.noise_variance)
        self.y = self.alpha = np.zeros(len(self.X))
        self._memo: tuple[Distances, Twins] | None = None
        self._table: tuple[Array, Array] | None = None

    def __len__(self) -> int:
        return len(self.X)

    def covariance(self, X: Array, Z: Array) -> Array:
        """Return the prior covariance σ₀² k between the rows of X (n, D) and Z (m, D): (n, m)."""
        K = self.kernel.value(squared_distances(X, Z, self.length_scales))
        K *= self.hyper.signal_variance
        return K

    def add(self, X: Array) -> None:
        """Add observations at the rows of X (n, D). Each adds a row to L and costs O(t²)."""
        for x in X:
            t, noise = len(self.X), self.hyper.noise_variance
            row = solve_lower(self.L, self.covariance(self.X, x[None]))[:, 0]
            rest = self.hyper.signal_variance + noise - row @ row
            L = np.zeros((t + 1, t + 1), order="F")
            L[:t, :t] = self.L
            L[t, :t] = row
            L[t, t] = np.sqrt(np.maximum(rest, noise))
            self.L = L
            self.X = np.concatenate([self.X, x[None]])
        self._memo = None

    def set_scores(self, y: Array) -> None:
        """Set the standard scores y (t,) of all observations, in O(t²)."""
        if len(y) != len(self.X):
            raise ValueError(f"{len(y)} scores were given for {len(self.X)} observations")
        self.y = y
        self.alpha = self.solve(y)
        self._memo = None

    def solve(self, y: Array) -> Array:
        """Return (K + σ²I)⁻¹ y."""
        if not len(y):
            return y
        result, _ = dpotrs(self.L, y, lower=1)
        return np.asarray(result)

    def _parts(self) -> tuple[Distances, Twins]:
        """Return what predictions are computed from: distances to X, and L and u as twins."""
        if self._memo is None:
            u = solve_lower(self.L, self.y[:, None].copy())[:, 0]
            self._memo = Distances(self.X, self.length_scales), Twins(self.L, u)
        return self._memo

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Return μ_t and σ_t² (n,) at the rows of X, in their precision.

        In float32 a variance is off by about 1e-5: good enough to screen points.
        """
        if len(X) > 1 and len(X) * len(self.X) > _CELLS:
            halves = [self.predict(half) for half in np.array_split(X, 2)]
            mu, var = map(np.concatenate, zip(*halves, strict=True))
            return mu, var
        distances, factors = self._parts()
        L, u = factors.like(X)
        k = self.kernel.value(distances(X)[2])
        k *= self.hyper.signal_variance
        V = solve_lower(L, k)
        var = self.hyper.signal_variance - np.einsum("ij,ij->j", V, V)
        return u @ V, np.maximum(var, 0.0)

    def predict_with_gradient(self, X: Array) -> tuple[Array, Array, Array, Array]:
        """Return μ_t and σ_t² (n,) at the rows of X, and their gradients (n, D)."""
        distances, factors = self._parts()
        L, u = factors.like(X)
        k, slope = self.kernel.value_and_slope(distances(X)[2])
        slope *= self.hyper.signal_variance
        k *= self.hyper.signal_variance
        V = solve_lower(L, k)
        mu, var = u @ V, self.hyper.signal_variance - np.einsum("ij,ij->j", V, V)
        A = solve_lower(L, V, transposed=True)  # dσ²/dk = −2 (K + σ²I)⁻¹ k
        A *= slope
        A *= -2.0 * (var > 0.0)
        slope *= self.alpha[:, None]
        return mu, np.maximum(var, 0.0), self._chain(X, slope), self._chain(X, A)

    def _chain(self, X: Array, pull: Array) -> Array:
        """Return Σ_i pull_i d(r2_i)/dx (n, D); r2_i is the squared distance to observation i."""
        gradient: Array = pull.sum(axis=0)[:, None] * X - pull.T @ self.X
        return gradient * (2.0 / self.length_scales**2)

    def leave_one_out(self, rows: Rows) -> LeaveOneOut:
        """Return the posteriors that each leave out one of the observations in ``rows``."""
        inverse = self.solve(np.eye(len(self))[:, rows])[rows]
        return LeaveOneOut(inverse, self.alpha[rows], self.y[rows], self.hyper.noise_variance)

    def sample(
        self, rng: np.random.Generator, beta: float = 1.0, points: Array | None = None
    ) -> SampledFunction:
        """Draw f_t.

        Args:
            rng: Source of randomness.
            beta: β, the factor on the draw's deviation from the mean.
            points: The points (n, D) of a discrete domain, including all observations. Up to 500
                of them, the draw is that of `sample_exactly`.
        """
        if points is not None and len(points) <= _SHORT:
            return self.sample_exactly(rng, beta, points)
        prior = Waves(self.hyper, rng)
        return Draw(self, prior, beta, self._update(prior(self.X), rng, beta))

    def _update(self, prior_at_X: Array, rng: np.random.Generator, beta: float) -> Array:
        """Return Matheron's v, given f⁰(X)."""
        noise = np.sqrt(self.hyper.noise_variance) * rng.standard_normal(len(self.X))
        return self.solve(self.y - beta * (prior_at_X + noise))

    def sample_exactly(self, rng: np.random.Generator, beta: float, points: Array) -> Tabled:
        """Draw f_t at listed points through a factor of their covariance, in O(n³) for a new GP."""
        if self._table is None or self._table[0] is not points:
            self._table = points, semidefinite_factor(self.covariance(points, points))
        F = self._table[1]
        prior = F @ rng.standard_normal(F.shape[1])
        v = self._update(prior[rows_of(self.X, points)], rng, beta)
        values = beta * prior + self.covariance(points, self.X) @ v
        return Tabled(points, values, self.length_scales)


class LeaveOneOut:
    """The beliefs f⁻ʲ without observation j, for n observations, in closed form.

    =======  ==============================================================  ======
    symbol   meaning                                                         shape
    =======  ==============================================================  ======
    P        block of (K + σ²I)⁻¹ for the n observations                     (n, n)
    f        the objective under the whole belief, N(mu, Sigma) there        (n,)
    mu       y − σ² alpha                                                    (n,)
    Sigma    K − K (K + σ²I)⁻¹ K = σ²I − σ⁴P                                 (n, n)
    T        its column j gives Cov f⁻ʲ = Sigma + T_j T_jᵀ                   (n, n)
    =======  ==============================================================  ======

    Leaving out an observation is a rank-one change. With T_j = (e_j − σ²P e_j) / √P_jj and a normal
    ε independent of f, f⁻ʲ = f + T_j (ε − alpha_j / √P_jj). At x_j itself this gives the well-known
    mean y_j − alpha_j / P_jj and variance 1/P_jj − σ² (Rasmussen and Williams, section 5.4.2).
    """

    def __init__(self, P: Array, alpha: Array, y: Array, sigma2: float) -> None:
        self.P, self.alpha, self.y, self.sigma2 = P, alpha, y, sigma2

    def draws(self, rng: np.random.Generator, samples: int) -> Array:
        """Return joint draws (samples, n, n): entry [s, j, k] is f⁻ʲ(x_k) in draw s."""
        n, sigma2 = len(self.y), self.sigma2
        shrunk = np.eye(n) - sigma2 * self.P
        factor = semidefinite_factor(sigma2 * shrunk)
        root = np.sqrt(np.diagonal(self.P))
        T = shrunk / root
        z = rng.standard_normal((samples, factor.shape[1]))
        f = (self.y - sigma2 * self.alpha) + z @ factor.T
        shift = rng.standard_normal((samples, n)) - self.alpha / root
        draws: Array = shift[:, :, None] * np.ascontiguousarray(T.T)
        draws += f[:, None, :]
        return draws


class Waves:
    """A draw of the prior: f⁰(x) = σ₀ Σ r_i cos(s_i x + b_i) / √W, with W fresh s_i from p(s).

    With r_i² exponential and b_i uniform, each wave is the sum of a sine and a cosine with normal
    coefficients. So f⁰ is Gaussian given s, and the mean of its covariance over s is k.
    """

    def __init__(self, hyper: Hyper, rng: np.random.Generator, waves: int = _WAVES) -> None:
        normals = rng.standard_normal((waves, len(hyper.length_scales)))
        base = kernel_named(hyper.kernel).frequencies(normals, rng.random(waves))
        s = base / np.asarray(hyper.length_scales)
        b = 2.0 * np.pi * rng.random(waves)
        r2 = 2.0 * rng.standard_exponential(waves)
        self._twins = Twins(s, b, np.sqrt(hyper.signal_variance / waves * r2))

    def parts(self, X: Array) -> tuple[Array, Array, Array]:
        """Return angles (n, W), frequencies and amplitudes, in the precision of X."""
        s, b, r = self._twins.like(X)
        angles = X @ s.T
        angles += b
        return angles, s, r

    def __call__(self, X: Array) -> Array:
        angles, _, r = self.parts(X)
        return np.cos(angles, out=angles) @ r


class Distances:
    """Squared distances to fixed points, in the precision of the points they are asked for.

    Args:
        points: The fixed points, (m, D).
        length_scales: What distances are divided by, (D,).
    """

    def __init__(self, points: Array, length_scales: Array) -> None:
        U = points / length_scales
        self._twins = Twins(length_scales, U, (U * U).sum(axis=1))

    def __call__(self, X: Array) -> tuple[Array, Array, Array]:
        """Return the rows of X (n, D) and the fixed points in length scales, and r2 (m, n)."""
        scales, U, U2 = self._twins.like(X)
        Z: Array = X / scales
        r2 = U @ Z.T
        r2 *= -2.0
        r2 += (Z * Z).sum(axis=1)
        r2 += U2[:, None]
        return Z, U, np.maximum(r2, 0.0, out=r2)


class Draw:
    """f_t by Matheron's rule: β f⁰(x) + k(x, X) v."""

    def __init__(self, gp: GP, prior: Waves, beta: float, v: Array) -> None:
        self.kernel, self.length_scales = gp.kernel, gp.length_scales
        self.prior, self.beta = prior, float(beta)
        self._distances = Distances(gp.X, gp.length_scales)
        self.v = gp.hyper.signal_variance * v
        self._twins = Twins(self.v)

    def __call__(self, X: Array) -> Array:
        [v] = self._twins.like(X)
        values = np.empty(len(X), dtype=X.dtype)
        block = _CELLS // max(len(v), _WAVES // 2)
        for i in range(0, len(X), block):
            rows = X[i : i + block]
            _, _, r2 = self._distances(rows)
            values[i : i + block] = self.beta * self.prior(rows) + v @ self.kernel.value(r2)
        return values

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        angles, s, r = self.prior.parts(X)
        Z, U, r2 = self._distances(X)
        [v] = self._twins.like(X)
        k, slope = self.kernel.value_and_slope(r2)
        values = self.beta * (np.cos(angles) @ r) + v @ k
        gradients = -self.beta * ((np.sin(angles) * r) @ s)
        slope *= v[:, None]  # dk/dz = 2 slope (z − u_i), z = x / l
        pull = slope.sum(axis=0)[:, None] * Z - slope.T @ U
        gradients += pull * (2.0 / self.length_scales.astype(X.dtype))
        return values, gradients


def rows_of(X: Array, points: Array) -> Rows:
    """Return the row of ``points`` that equals each row of X; every row of X must be one.

    A row is looked up by its key, a sum that hardly any two rows share, in O(n log n).
    """
    keys = _keys(points)
    order = np.argsort(keys)
    places = np.searchsorted(keys, _keys(X), sorter=order)
    rows = order[np.minimum(places, len(points) - 1)]
    for i in np.flatnonzero((points[rows] != X).any(axis=1)):
        equal = np.flatnonzero((points == X[i]).all(axis=1))
        if not len(equal):
            raise ValueError("an observation is not one of the points of the discrete domain")
        rows[i] = equal[0]
    return rows


def _keys(X: Array) -> Array:
    keys = np.zeros(len(X))
    for weight, x in enumerate(X.T, start=2):  # by columns, so that equal rows have equal keys
        keys += np.sqrt(weight) * x
    return keys
