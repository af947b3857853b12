"""A belief about the target's objective with a prior learnt from its peers' messages.

=======  ======================================================================  =============
symbol   meaning                                                                 shape
=======  ======================================================================  =============
omegas   ω_n of each peer, scaled so that g_n = φᵀω_n has a standard deviation   (K, M)
         of 1 over the cube (less if g_n is a single spike)
w        shares of the peers: how well peer n orders the target's scores         (K,)
φ        features minus their mean over the cube, so that a constant in a        (M,)
         peer's function has no effect
nu       Σ w_n ω_n; φᵀν is the peers' average function                           (M,)
S        Σ w_n (ω_n − ν)(ω_n − ν)ᵀ + b² ν νᵀ: how much the peers differ, and     (M, M)
         how wrong their average may be
a, r     of a model: the factor on the peers' prior, and on the variance of      scalars
         the target's own part
k        covariance of the agent's own fitted GP                                 function
L, u     L Lᵀ is a model's covariance of all points tried, u = L⁻¹ (y − mean)    (t, t), (t,)
q        posterior probability of each model                                     (J,)
Q        posterior probability of all models with a > 0: trust in the peers      scalar
=======  ======================================================================  =============

Each model assumes f(x) = a φ(x)ᵀω + δ(x) + constant, with ω ~ N(ν, S) and δ ~ GP(0, r k): the
target's function resembles those of the peers, plus a part of its own. One model, with a = 0 and r
= 1, ignores the peers. Given scores, each model is a GP. A pending trial counts as if it had the
score that the model expects.

The evidence of a model is the product of the densities with which it predicts each score from the
previous ones. It favours the peers slightly, because w is learnt from the same scores: by 1 to 2
nats on average for uninformative peers, who lose their influence after a few scores. Peers that
predict the opposite lose it at once; their sign may be flipped later.
"""

from __future__ import annotations

import msgspec
import numpy as np
from scipy.linalg.lapack import dtrtrs

from fedbo.model.features import Features
from fedbo.model.function import Twins
from fedbo.model.kernel import Array, cholesky, kernel_named, squared_distances
from fedbo.policy.agreement import agreement
from fedbo.policy.improvement import (
    LEAST_VARIANCE,
    Improvement,
    deviation,
    log_ei,
    log_ei_and_slopes,
)
from fedbo.policy.target import Target

_MOST = 1024  # peers compared at most; of more peers, an even selection
_SCREENED = 512  # 32 times as many found 5 % more in 4 of 100 queries (D = 4) and in 7 (D = 6)
_FLAT = 1e-6  # standard deviation over the cube below which a function counts as constant
_LOUD = 3.0  # largest ‖ω‖ / √M in standard deviations; honest messages had 0.4 to 1.6
_OPEN = 100  # latest pending or failed trials that count; more would make a query slow
_OFF = 0.5  # b
_CONSTANT = 4.0  # prior variance of the constant, in standard units
_MODELS = ((0.5, 0.1), (0.5, 0.5), (1.0, 0.1), (1.0, 0.5))  # a, r
_OWN = 1 / 3  # prior probability of the own model; the others share the rest equally
_FAINT = 0.1  # models below this fraction of the largest q are dropped


class Model(msgspec.Struct, frozen=True):
    """One of the models, given the scores; t points were tried, pending ones included."""

    a: float
    r: float
    log_evidence: float  # up to a constant
    best: float  # largest score that the model expects at the points tried
    alpha: Array  # L⁻ᵀu, (t,)
    L: Array  # (t, t)


class Pool(Improvement):
    """The logarithm of the expected improvement over all models, a function on the cube.

    Its ``rows`` (K,) are the rows of the inbox that it uses, ``shares`` is w and ``trust`` is Q.

    Args:
        target: The agent that asks, with weights in its inbox.
    """

    def __init__(self, target: Target) -> None:
        self.features = target.phi
        self.screened = min(32 * 2**target.space.dimensions, _SCREENED)
        N = len(target.inbox)
        self.rows = np.arange(N) if N <= _MOST else np.linspace(0, N - 1, _MOST).astype(np.intp)
        self._omegas = _rescaled(target.inbox.omega[self.rows].astype(np.float64), self.features)
        F = self.features(target.X) @ self._omegas.T
        self.shares = agreement(target.y, F)
        self._at_best = F[np.argmax(target.y)] if len(F) else np.zeros(len(self._omegas))

        self._nu = self.shares @ self._omegas
        E = (self._omegas - self._nu) * np.sqrt(self.shares)[:, None]
        self._S = E.T @ E + _OFF**2 * np.outer(self._nu, self._nu)
        self._hyper = target.belief.hyper
        self._kernel = kernel_named(self._hyper.kernel)
        self._own_scales = np.asarray(self._hyper.length_scales)
        self.length_scales = np.minimum(self.features.length_scales, self._own_scales)
        self._visited = np.concatenate([target.X, target.open_points[-_OPEN:]])
        self._fit(target.y)
        self._twins = Twins(self.features.mean, self._nu, self._S, self._S_Phi)

    def _fit(self, y: Array) -> None:
        Phi = self.features(self._visited) - self.features.mean
        self._S_Phi = self._S @ Phi.T  # (M, t)
        mean, shared, own = Phi @ self._nu, Phi @ self._S_Phi, self._own(self._visited)
        candidates = [
            self._model(a, r, y, a * mean, a * a * shared + r * own)
            for a, r in ((0.0, 1.0), *_MODELS)
        ]
        log_q = np.array([model.log_evidence for model in candidates])
        log_q[0] += np.log(len(_MODELS) * _OWN / (1.0 - _OWN))
        q = np.exp(log_q - log_q.max())
        q /= q.sum()
        self.trust = float(q[1:].sum())
        counted = np.flatnonzero(q >= _FAINT * q.max())
        self.models = [candidates[j] for j in counted]
        self.q = q[counted] / q[counted].sum()

    def _model(self, a: float, r: float, y: Array, mean: Array, K: Array) -> Model:
        if not len(K):
            return Model(a, r, 0.0, 0.0, np.empty(0), K)
        t, K = len(y), K + _CONSTANT
        L = cholesky(K, self._hyper.noise_variance)
        u = np.zeros(len(K))  # 0 for pending trials: their scores are as expected
        u[:t] = _solved(L[:t, :t], y - mean[:t])
        alpha = _solved(L, u, transposed=True)
        log_evidence = -0.5 * float(u @ u) - float(np.log(np.diag(L)[:t]).sum())
        return Model(a, r, log_evidence, float((mean + K @ alpha).max()), alpha, L)

    def _own(self, X: Array) -> Array:
        """Return k (n, t) between the rows of X and the points tried."""
        r2 = squared_distances(X, self._visited, self._own_scales)
        return self._hyper.signal_variance * self._kernel.value(r2)

    def _values(self, X: Array) -> Array:
        return _log_mean(self._improvements(X), self.q)[0]

    def _improvements(self, X: Array) -> Array:
        """Return log EI of each model, (J, n); only the features have the precision of X."""
        mean, nu, S, S_Phi = self._twins.like(X)
        Phi = self.features(X) - mean
        spread = np.einsum("ij,ij->i", Phi @ S, Phi)
        # in float64, since variances are small differences of large numbers
        parts = [part.astype(np.float64) for part in (Phi @ nu, spread, Phi @ S_Phi)]
        parts.append(self._own(X.astype(np.float64)))
        values = []
        for model in self.models:
            mu, var, _ = self._predict(model, *parts)
            values.append(log_ei(mu, deviation(var), model.best))
        return np.array(values)

    def _predict(
        self, model: Model, said: Array, spread: Array, shared: Array, own: Array
    ) -> tuple[Array, Array, Array]:
        """Return a model's mean and variance (n,) and L⁻¹k, from φᵀν, φᵀSφ, φᵀSΦᵀ and the own k."""
        k = model.a**2 * shared + (model.r * own + _CONSTANT)
        V = _solved(model.L, k.T)
        prior = model.a**2 * spread + (model.r * self._hyper.signal_variance + _CONSTANT)
        var = prior - np.einsum("ij,ij->j", V, V)
        return model.a * said + k @ model.alpha, var, V

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        mean, nu, S, S_Phi = self._twins.double
        tangent = self.features.tangent(X)
        Phi = tangent.Phi - mean
        S_phi = Phi @ S
        r2 = squared_distances(X, self._visited, self._own_scales)
        own, slope = self._kernel.value_and_slope(r2)
        own *= self._hyper.signal_variance
        said, shared = Phi @ nu, Phi @ S_Phi
        spread = np.einsum("ij,ij->i", S_phi, Phi)
        values, pulls = [], []
        for model in self.models:
            mu, var, V = self._predict(model, said, spread, shared, own)
            s = deviation(var)
            value, by_mu, by_s = log_ei_and_slopes(mu, s, model.best)
            by_var = by_s * (var > LEAST_VARIANCE) / (2.0 * s)
            beta = _solved(model.L, V, transposed=True)
            by_k = by_mu[:, None] * model.alpha - 2.0 * by_var[:, None] * beta.T
            values.append(value)
            pulls.append((by_k, by_mu, by_var))  # derivatives of log EI
        value, shares = _log_mean(np.array(values), self.q)
        by_own, by_shared = np.zeros_like(own), np.zeros_like(own)
        by_said, by_spread = np.zeros((2, len(X)))
        for model, share, (by_k, by_mu, by_var) in zip(self.models, shares, pulls, strict=True):
            by_k *= share[:, None]
            by_own += model.r * by_k
            by_shared += model.a**2 * by_k
            by_said += model.a * share * by_mu
            by_spread += model.a**2 * share * by_var
        by_phi = by_said[:, None] * nu + by_shared @ S_Phi.T + 2.0 * by_spread[:, None] * S_phi
        slope *= by_own
        slope *= 2.0 * self._hyper.signal_variance
        moved: Array = slope.sum(axis=1)[:, None] * X - slope @ self._visited
        return value, tangent.gradient(by_phi) + moved / self._own_scales**2

    def peer_share(self, x: Array) -> float:
        """Return the share of the expected improvement at x that comes from models with a > 0."""
        listens = np.array([model.a > 0.0 for model in self.models])
        return float(_log_mean(self._improvements(x[None]), self.q)[1][listens, 0].sum())

    def praise(self, x: Array) -> Array:
        """Return each peer's predicted gain of x over the best trial, times its share, (K,)."""
        at_x = self._omegas @ self.features(x[None])[0]
        praise: Array = self.shares * np.maximum(at_x - self._at_best, 0.0)
        return praise


def _rescaled(omegas: Array, features: Features) -> Array:
    """Scale the functions of ω (K, M) to a standard deviation of 1 over the cube.

    A large ω can make a function that is almost 0 except for a spike. No score would refute such a
    function, and its peak would decide the query. So the size of ω is limited as well.
    """
    norm = np.sqrt(np.einsum("ij,ij->i", omegas, omegas))
    size = np.maximum(features.deviation(omegas), norm / (_LOUD * np.sqrt(features.M)))
    scaled: Array = omegas / np.maximum(size, _FLAT)[:, None]
    return scaled


def _log_mean(values: Array, q: Array) -> tuple[Array, Array]:
    """Return log Σ_j q_j exp(values_j) (n,), and the share (J, n) of each j in the sum."""
    terms = values + np.log(q)[:, None]
    most = terms.max(axis=0)
    shares = np.exp(terms - most)
    total = shares.sum(axis=0)
    return most + np.log(total), shares / total


def _solved(L: Array, B: Array, transposed: bool = False) -> Array:
    """Return L⁻¹B, or L⁻ᵀB, for a lower triangular L."""
    return np.asarray(dtrtrs(L, B, lower=1, trans=int(transposed))[0]) if len(B) else B
