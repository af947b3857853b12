"""Tips, then the pool: peers are asked first what to try, and then what to expect. The default.

The first trials are tips of peers, see `fedbo.policy.tips`. After them, the messages of all peers
together are a prior of the target's own function, and the next query is where the expected
improvement of this `Pool` is largest. Two things guard against useless peers. First, p_t → 1, the
chance that query t is the agent's own Thompson sampling. Second, while Q, how well the peers
predicted the scores, is below 0.3, it queries as if it were alone.

Alone (`EI`), expected improvement finds good points faster than Thompson sampling early on. On its
own it can stay where a wrong fit of the hyper-parameters leads it, so a slowly growing share of the
queries are draws, which look everywhere in the end (docs/lab/baseline.md).

=======  ======================================================================  =============
symbol   meaning                                                                 shape
=======  ======================================================================  =============
ψ, m, w  coordinates of a point, means and shares of the peers: see `Peers`
z        coordinates of a function ψᵀz; N(0, I) if nothing is known              (k,)
I − C    what peer n knows: 0 in directions that its trials say nothing about,   (k, k)
         1 in directions that they determine; RᵀR in `Peers`
nu, S    mean and covariance of the target's z, given all messages               (k,), (k, k)
T        how much the z of peers differ from each other                          (k, k)
k        covariance of the agent's own fitted GP                                 function
L, u     L Lᵀ is a covariance of all points tried, u = L⁻¹ (y − mean)            (t, t), (t,)
Q        trust in the peers: the probability that the pool is right, not the     scalar
         agent's own GP
=======  ======================================================================  =============

**The prior.** At first, the z of every peer, and of the target, is N(μ, I) around a common μ ~ N(0,
I). Given the messages, μ has the precision P = I + K Σ w_n (I − C_n) and the mean ν = P⁻¹ K Σ w_n
m_n. A peer counts only in the directions that it knows about. Where nobody has been, ν is 0:
nothing is claimed. One step of expectation maximisation, with ν taken for μ, then replaces the
spread I by what peers differ by, Σ w_n (e_n e_nᵀ + C_n) with e_n = m_n − (I − C_n) ν. This counts
as 1 / Σ w_n² peers, and one more peer has the spread I; T is their average. The target's z is then
N(ν, P⁻¹ + T). The scale of the peers' scores may differ from that of the target's, so b² ν νᵀ is
added to the covariance.

**The belief.** f(x) = ψ(x)ᵀz + δ(x) + constant with δ ~ GP(0, r k), so that the target resembles
its peers and has a part of its own. Given scores, this is a GP. A pending trial counts as if it had
the score that the pool expects.

**The trust.** The evidence of a model is the product of the densities with which it predicts each
score from the previous ones. Q compares the evidence of the pool with that of the agent's own GP.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec.structs import force_setattr
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dtrtrs

from fedbo.message.inbox import Single
from fedbo.model.argmax import Search
from fedbo.model.kernel import Array, Mask, Twins, cholesky, kernel_named, squared_distances
from fedbo.policy.base import Gradual, Policy, Schedule, schedule_from
from fedbo.policy.improvement import Improvement, OwnImprovement, improvement_and_slopes
from fedbo.policy.peers import Peers
from fedbo.policy.target import Origin, Query, Target
from fedbo.policy.tips import first_trial

_LAST = 200  # scores: with more, the target needs no peers, and a pool would be slow
_TRUSTED = 0.3  # Q from which the pool is followed
_SCREENED = 512  # 32 times as many found 5 % more in 4 of 100 queries (D = 4) and in 7 (D = 6)
_OPEN = 100  # latest pending or failed trials that count; more would make a query slow
_OFF = 0.5  # b
_CONSTANT = 4.0  # prior variance of the constant, in standard units
_OWN_PART = 0.3  # r
_OWN = 1 / 3  # prior probability of the agent's own GP


class EI(Policy, frozen=True, tag="ei"):
    """Expected improvement of the agent's own GP, for an agent that works alone.

    It ignores all messages.

    Args:
        schedule: p_t, the probability that a query is Thompson sampling. Default:
            1 − (1 + t/32)^−½.

    >>> EI(schedule=0.1).schedule
    Steps(values=(0.1,))
    """

    schedule: Schedule = Gradual(32)

    def __post_init__(self) -> None:
        force_setattr(self, "schedule", schedule_from(self.schedule))

    def query(self, target: Target) -> Query:
        return query_alone(target, target.rng.random() < self.schedule(target.t))


def query_alone(target: Target, is_draw: bool) -> Query:
    """Choose the next query without peers: where a draw is largest, or else EI.

    Without a score, a draw is used in any case.
    """
    if is_draw or not len(target.X):
        return target.query_draw(target.own_draw())
    belief = target.belief.marginal()
    best = float(belief.predict(target.X[target.contenders])[0].max())
    return target.query_acquisition(OwnImprovement(belief, best), or_next_best=True)


class TipsThenPool(EI, frozen=True, tag="tips-then-pool"):
    """Tries the tips of peers, then follows the expected improvement of their pool. The default.

    Without messages, and beyond 200 scores, it is `EI`. It weighs peers by itself and does not use
    `chance`.

    Args:
        schedule: p_t, the probability of an own draw. Default: 1 − (1 + t/32)^−½.

    >>> TipsThenPool(schedule=0.9).schedule
    Steps(values=(0.9,))
    """

    begins: ClassVar[bool] = True

    def query(self, target: Target) -> Query:
        listens = bool(target.inbox.informed) and len(target.X) <= _LAST
        held = target.federation, target.inbox
        peers = Peers(*held, target.shared(target.X), target.y) if listens else None
        first = first_trial(target, peers)
        if first is not None:
            return first
        is_draw = target.rng.random() < self.schedule(target.t)
        if peers is None or is_draw:
            return query_alone(target, is_draw)
        return _query_pool(target, peers)


def _query_pool(target: Target, peers: Peers) -> Query:
    pool = Pool(target, peers)
    trust = target.named(peers.rows, pool.trust * pool.shares)
    if pool.trust < _TRUSTED:
        return Query(query_alone(target, is_draw=False).x, Origin(trust=trust))
    query = target.query_acquisition(pool, Origin("pool", trust=trust), or_next_best=True)
    praise = pool.praise(query.x)
    if query.origin.source == "own" or not praise.any():
        return Query(query.x, Origin(trust=trust))
    credit = target.named(peers.rows, praise / praise.sum())
    return Query(query.x, Origin("pool", credit=credit, trust=trust))


class Pool(Improvement):
    """The logarithm of the expected improvement with the peers' prior, a function on the cube.

    Its ``shares`` (K,) are w and its ``trust`` is Q.
    """

    def __init__(self, target: Target, peers: Peers) -> None:
        self.search = Search(screened=min(32 * 2**target.space.dimensions, _SCREENED))
        self._basis = target.basis
        self.shares, self._m = peers.w, peers.m
        best = target.X[np.argsort(-target.merit)[:1]]
        self._at_best = peers.values(target.shared(best)).sum(axis=0)  # 0 before the first score
        self._nu, self._S = prior(peers.m, peers.R, self.shares)

        self._hyper = target.belief.hyper
        self._kernel = kernel_named(self._hyper.kernel)
        self._own_scales = np.asarray(self._hyper.length_scales)
        self.length_scales = np.minimum(target.phi.length_scales, self._own_scales)
        self._visited = np.concatenate([target.X, target.open_points[-_OPEN:]])
        self._fit(target.y, target.contenders)
        B = self._basis.vectors
        self._twins = Twins(B, self._basis.mean @ B, self._nu, self._S, self._S_Psi)

    def _fit(self, y: Array, contenders: Mask) -> None:
        t, noise = len(y), self._hyper.noise_variance
        Psi, own = self._basis.coordinates(self._visited), self._own(self._visited)
        self._S_Psi = self._S @ Psi.T  # (k, t)
        mean, K = Psi @ self._nu, Psi @ self._S_Psi + _OWN_PART * own + _CONSTANT
        self._L = cholesky(K, noise)
        u = np.zeros(len(K))  # 0 for pending trials: their scores are as expected
        u[:t] = _solved(self._L[:t, :t], y - mean[:t])
        self._alpha = _solved(self._L, u, transposed=True)
        #: The largest score that is expected at a point tried.
        expected = mean + K @ self._alpha
        expected[:t][~contenders] = -np.inf
        self.best = float(expected.max()) if len(K) else 0.0

        alone = cholesky(own[:t, :t] + _CONSTANT, noise)
        odds = _log_evidence(self._L[:t, :t], u[:t]) - _log_evidence(alone, _solved(alone, y))
        odds += np.log(1.0 / _OWN - 1.0)
        self.trust = float(1.0 / (1.0 + np.exp(-np.clip(odds, -500.0, 500.0))))

    def _own(self, X: Array) -> Array:
        """Return k (n, t) between the rows of X and the points tried."""
        r2 = squared_distances(X, self._visited, self._own_scales)
        return self._hyper.signal_variance * self._kernel.value(r2)

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Return the mean and variance (n,) at the rows of X."""
        B, offset, nu, S, S_Psi = self._twins.like(X)
        Psi = self._basis.features(X) @ B - offset
        spread = np.einsum("ij,ij->i", Psi @ S, Psi)
        # in float64, since variances are small differences of large numbers
        mean, spread, shared = (x.astype(np.float64) for x in (Psi @ nu, spread, Psi @ S_Psi))
        mu, var, _ = self._moments(mean, spread, shared, self._own(X.astype(np.float64)))
        return mu, var

    def _moments(
        self, mean: Array, spread: Array, shared: Array, own: Array
    ) -> tuple[Array, Array, Array]:
        """Return mean and variance (n,) and L⁻¹k, from ψᵀν, ψᵀSψ, ψᵀSΨᵀ and the own k."""
        k = shared + _OWN_PART * own + _CONSTANT
        V = _solved(self._L, k.T)
        prior = spread + (_OWN_PART * self._hyper.signal_variance + _CONSTANT)
        return mean + k @ self._alpha, prior - np.einsum("ij,ij->j", V, V), V

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        B, offset, nu, S, S_Psi = self._twins.double
        tangent = self._basis.features.tangent(X)
        Psi = tangent.Phi @ B - offset
        S_psi = Psi @ S
        r2 = squared_distances(X, self._visited, self._own_scales)
        own, slope = self._kernel.value_and_slope(r2)
        own *= self._hyper.signal_variance
        spread = np.einsum("ij,ij->i", S_psi, Psi)
        mu, var, V = self._moments(Psi @ nu, spread, Psi @ S_Psi, own)
        value, by_mu, by_var = improvement_and_slopes(mu, var, self.best)
        by_k = by_mu * self._alpha - 2.0 * by_var * _solved(self._L, V, transposed=True).T
        by_psi = by_mu * nu + by_k @ S_Psi.T + 2.0 * by_var * S_psi
        slope *= by_k
        slope *= 2.0 * _OWN_PART * self._hyper.signal_variance
        moved: Array = slope.sum(axis=1)[:, None] * X - slope @ self._visited
        return value, tangent.gradient(by_psi @ B.T) + moved / self._own_scales**2

    def praise(self, x: Array) -> Array:
        """Return each peer's predicted gain of x over the best trial, times its share, (K,)."""
        at_x = self._m @ self._basis.coordinates(x[None])[0]
        return np.asarray(self.shares * np.maximum(at_x - self._at_best, 0.0))


def prior(m: Array, R: Single, shares: Array) -> tuple[Array, Array]:
    """Return ν and S, from what `Peers` says and the shares w (K,)."""
    K, k = m.shape
    scaled = (R * np.sqrt(shares)[:, None, None].astype(np.float32)).reshape(-1, k)
    knowledge: Array = (scaled.T @ scaled).astype(np.float64)  # Σ w_n (I − C_n)
    L = np.linalg.cholesky(np.eye(k) + K * knowledge), True  # of P
    nu = cho_solve(L, K * (shares @ m))
    expected = np.einsum("nri,nr->ni", R, R @ nu.astype(np.float32))
    E = m - expected  # where z_n is expected, minus ν, (K, k)
    spread = (E.T * shares) @ E + np.eye(k) - knowledge
    count = 1.0 / float(shares @ shares)
    T = (count * spread + np.eye(k)) / (count + 1.0)
    return nu, cho_solve(L, np.eye(k)) + T + _OFF**2 * np.outer(nu, nu)


def _log_evidence(L: Array, u: Array) -> float:
    """Return the log density of scores, up to a constant."""
    return -0.5 * float(u @ u) - float(np.log(np.diag(L)).sum())


def _solved(L: Array, B: Array, transposed: bool = False) -> Array:
    """Return L⁻¹B, or L⁻ᵀB, for a lower triangular L."""
    return np.asarray(dtrtrs(L, B, lower=1, trans=int(transposed))[0]) if len(B) else B
