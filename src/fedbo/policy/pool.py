"""A belief about the target's objective whose prior is learnt from its peers' messages.

=======  ======================================================================  =========
symbol   meaning                                                                 shape
=======  ======================================================================  =========
omegas   ω_n of each peer, so scaled that g_n = φᵀω_n has a standard deviation   (K, M)
         of 1 over the cube, or less if it is nothing but a spike
w        P_N, learned: how well peer n orders the target's scores                (K,)
φ        features less their mean over the cube: a function's zero says nothing  (M,)
nu       Σ w_n ω_n, so that φᵀν is what peers say on average                     (M,)
S        Σ w_n (ω_n − ν)(ω_n − ν)ᵀ + b² ν νᵀ: where they differ, and how far     (M, M)
         their average may be off
a, r     of a model: how much of what peers say is so, and how much there is     scalars
         beside it
k        the covariance of the agent's own fitted GP                             function
L, u     L Lᵀ is a model's covariance of all points tried, u = L⁻¹ (y − mean)    (t, t), (t,)
q        probability of each model, given the scores                             (J,)
Q        that of all models with a > 0: the trust in the peers                   scalar
=======  ======================================================================  =========

Each model says f(x) = a φ(x)ᵀω + δ(x) + constant, with ω ~ N(ν, S) and δ ~ GP(0, r k): the target's
function is one more like those of the peers, but for what is its own. One model, a = 0 and r = 1,
does not listen to them at all. Given scores each is a GP, its evidence the product of how well it
foretold each score from those before. That flatters the peers a little, for w is learnt from the
same scores: by 1 to 2 nats on average, with peers that know nothing. Such peers lose their
influence after some scores, and what is left is the agent's own belief; those that foretell the
contrary lose it at once, and may later be taken upside down.

`Pool` is the expected improvement over these models. What is being tried counts as if it had come
out as each model expects.
"""

from __future__ import annotations

import msgspec
import numpy as np
from scipy.linalg.lapack import dtrtrs

from fedbo.model.factor import cholesky
from fedbo.model.features import Features
from fedbo.model.kernel import Array, kernel_named, single, squared_distances
from fedbo.policy.agreement import agreement
from fedbo.policy.base import Target
from fedbo.policy.improvement import LEAST_VARIANCE, deviation, in_blocks, log_ei, log_ei_and_slopes

_MOST = 1024  # peers that are compared; of more, an even spread
_SCREENED = 512  # 32 times as many found 5 % more in 4 and 7 of 100 queries of D = 4 and 6
_FLAT = 1e-6  # standard deviation over the cube: a function that says nothing
_LOUD = 3.0  # ‖ω‖ over √M standard deviations, at most; of honest messages 0.4 to 1.6 were seen
_OPEN = 100  # trials that are being tried, or failed, the latest: more would make a query slow
_OFF = 0.5  # b
_CONSTANT = 4.0  # prior variance of the constant, in standard units
_MODELS = ((0.5, 0.1), (0.5, 0.5), (1.0, 0.1), (1.0, 0.5))  # a, r
_OWN = 1 / 3  # probability of the own model before any score; the others share the rest
_FAINT = 0.1  # of the most probable model: others below it are left out


class Model(msgspec.Struct, frozen=True):
    """One of the models, given the scores.

    ``alpha`` (t,) and ``L`` (t, t) are those of its GP at all points that were tried or are being
    tried, ``best`` is the largest score that it expects there.
    """

    a: float
    r: float
    log_evidence: float
    best: float
    alpha: Array
    L: Array


class Pool:
    """log of the expected improvement, a function on the cube, and what it is made of.

    ``rows`` (K,) are the peers' rows of the inbox, ``weights`` theirs, ``models`` those that count,
    ``q`` (J,) how probable they are, ``trust`` is Q.
    """

    def __init__(self, target: Target) -> None:
        self.features = target.phi
        self.screened = min(32 * 2**target.space.dimensions, _SCREENED)
        N = len(target.inbox)
        self.rows = np.arange(N) if N <= _MOST else np.linspace(0, N - 1, _MOST).astype(np.intp)
        self._omegas = _of_one_size(target.inbox.omega[self.rows].astype(np.float64), self.features)
        F = self.features(target.X) @ self._omegas.T
        self.weights = agreement(target.y, F)
        self._at_best = F[np.argmax(target.y)] if len(F) else np.zeros(len(self._omegas))

        self._nu = self.weights @ self._omegas
        E = (self._omegas - self._nu) * np.sqrt(self.weights)[:, None]
        self._S = E.T @ E + _OFF**2 * np.outer(self._nu, self._nu)
        self._hyper = target.belief.hyper
        self._kernel = kernel_named(self._hyper.kernel)
        self._own_scales = np.asarray(self._hyper.length_scales)
        self.length_scales = np.minimum(self.features.length_scales, self._own_scales)
        self._visited = np.concatenate([target.X, target.open_points[-_OPEN:]])
        self._fit(target.y)
        self._double = self.features.mean, self._nu, self._S, self._S_Phi
        self._single = tuple(map(single, self._double))

    def _fit(self, y: Array) -> None:
        Phi = self.features(self._visited) - self.features.mean
        self._S_Phi = self._S @ Phi.T  # (M, t)
        mean, shared, own = Phi @ self._nu, Phi @ self._S_Phi, self._own(self._visited)
        candidates = [self._model(0.0, 1.0, y, 0.0 * mean, own)]
        candidates += [self._model(a, r, y, a * mean, a * a * shared + r * own) for a, r in _MODELS]
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
        u = np.zeros(len(K))  # 0 where scores are open: they come out as expected
        u[:t] = _solved(L[:t, :t], y - mean[:t])
        alpha = _solved(L, u, transposed=True)
        log_evidence = -0.5 * float(u @ u) - float(np.log(np.diag(L)[:t]).sum())
        return Model(a, r, log_evidence, float((mean + K @ alpha).max()), alpha, L)

    def _own(self, X: Array) -> Array:
        """(n, t) covariance of the own GP between the rows of X and the points tried."""
        r2 = squared_distances(X, self._visited, self._own_scales)
        return self._hyper.signal_variance * self._kernel.value(r2)

    # Expected improvement

    def __call__(self, X: Array) -> Array:
        return in_blocks(self._values, X)

    def _values(self, X: Array) -> Array:
        return _log_mean(self._improvements(X), self.q)[0]

    def _improvements(self, X: Array) -> Array:
        """(J, n) log of the expected improvement of each model.

        Only the features have the precision of X: variances are small differences of large numbers.
        """
        mean, nu, S, S_Phi = self._single if X.dtype == np.float32 else self._double
        Phi = self.features(X) - mean
        spread = np.einsum("ij,ij->i", Phi @ S, Phi)
        said, spread, shared, X = (
            part.astype(np.float64) for part in (Phi @ nu, spread, Phi @ S_Phi, X)
        )
        own = self._own(X)
        values = []
        for model in self.models:
            mu, var, _ = self._predict(model, said, spread, shared, own)
            values.append(log_ei(mu, deviation(var), model.best))
        return np.array(values)

    def _predict(
        self, model: Model, said: Array, spread: Array, shared: Array, own: Array
    ) -> tuple[Array, Array, Array]:
        """Mean, variance (n,) and L⁻¹k (t, n) of a model, from what all models are made of."""
        k = model.a**2 * shared + (model.r * own + _CONSTANT)
        V = _solved(model.L, k.T)
        prior = model.a**2 * spread + (model.r * self._hyper.signal_variance + _CONSTANT)
        var = prior - np.einsum("ij,ij->j", V, V)
        return model.a * said + k @ model.alpha, var, V

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        mean, nu, S, S_Phi = self._double
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
            values.append(value)
            # d log EI / dk at each point tried, and by what is not in k
            pulls.append(
                (by_mu[:, None] * model.alpha - 2.0 * by_var[:, None] * beta.T, by_mu, by_var)
            )
        value, parts = _log_mean(np.array(values), self.q)
        by_own, by_shared = np.zeros_like(own), np.zeros_like(own)
        by_said, by_spread = np.zeros((2, len(X)))
        for model, part, (by_k, by_mu, by_var) in zip(self.models, parts, pulls, strict=True):
            by_k *= part[:, None]
            by_own += model.r * by_k
            by_shared += model.a**2 * by_k
            by_said += model.a * part * by_mu
            by_spread += model.a**2 * part * by_var
        by_phi = by_said[:, None] * nu + by_shared @ S_Phi.T + 2.0 * by_spread[:, None] * S_phi
        slope *= by_own
        slope *= 2.0 * self._hyper.signal_variance
        moved: Array = slope.sum(axis=1)[:, None] * X - slope @ self._visited
        return value, tangent.gradient(by_phi) + moved / self._own_scales**2

    # Whose query it is

    def part(self, x: Array) -> float:
        """The part of the expected improvement at x that is of models which listen to peers."""
        listens = np.array([model.a > 0.0 for model in self.models])
        if listens.all() or not listens.any():
            return float(listens[0])
        return float(_log_mean(self._improvements(x[None]), self.q)[1][listens, 0].sum())

    def praise(self, x: Array) -> Array:
        """(K,) how much better than at the best trial each peer says that it is at x, weighed."""
        at_x = self._omegas @ self.features(x[None])[0]
        praise: Array = self.weights * np.maximum(at_x - self._at_best, 0.0)
        return praise


def _of_one_size(omegas: Array, features: Features) -> Array:
    """The weights (K, M) of the same functions, with a standard deviation of 1 over the cube.

    Large weights can make a function that is almost 0 but for a spike. No score would refute it,
    and its peak would be all that counts; so weights have a largest size as well.
    """
    norm = np.sqrt(np.einsum("ij,ij->i", omegas, omegas))
    size = np.maximum(features.deviation(omegas), norm / (_LOUD * np.sqrt(features.M)))
    scaled: Array = omegas / np.maximum(size, _FLAT)[:, None]
    return scaled


def _log_mean(values: Array, q: Array) -> tuple[Array, Array]:
    """log Σ_j q_j exp(values_j) (n,), and the part (J, n) that each j has in the sum."""
    terms = values + np.log(q)[:, None]
    most = terms.max(axis=0)
    parts = np.exp(terms - most)
    total = parts.sum(axis=0)
    return most + np.log(total), parts / total


def _solved(L: Array, B: Array, transposed: bool = False) -> Array:
    """L⁻¹B, or L⁻ᵀB, for a lower triangular L."""
    return np.asarray(dtrtrs(L, B, lower=1, trans=int(transposed))[0]) if len(B) else B
