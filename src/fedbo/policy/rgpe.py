"""Ranking-weighted GP ensemble (Feurer et al. 2018), with peers known by their beliefs.

=========  ========================================================================  ========
symbol     meaning                                                                   shape
=========  ========================================================================  ========
S          ``samples``: draws of each model                                          scalar
L_n        ranking loss of peer n in each draw: wrongly ordered pairs of the         (N, S)
           target's observations, over ordered pairs
L          the same for the target, by draws that leave out the one they rank        (S,)
w, w_n     weights: in which part of the draws a model's loss is the lowest          scalar, (N,)
mu, var    μ = w μ_t + Σ w_n φᵀν_n and σ² = w² σ_t² + Σ w_n² φᵀC_nφ, the ensemble    (n,)
nu, A      Σ w_n ν_n and Σ w_n² C_n: all peers in one vector and one matrix          (M,), (M, M)
best       the ensemble's largest mean at an observed point                          scalar
=========  ========================================================================  ========

What is done as its authors say, and the public code of the federated version does not:

* the target's loss compares f⁻ʲ(x_j) with f⁻ʲ(x_k), *joint* draws of the belief that never saw
  observation j (the authors' form; draws that are independent of one another would count its own
  noise against the target), by the closed form of `fedbo.model.leave_one_out`, not by refitting;
* expected improvement is over the best of the ensemble's own predictions at observed points, as in
  the noisy expected improvement they use: the ensemble need not agree with any score it was told;
* a query costs no more with more peers but for their weights.

A tie with the target goes to the target; peers that tie share, which is what breaking ties at
random gives on average, and does not favour whoever came first.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedbo.message import Kind
from fedbo.message.beliefs import BeliefInbox
from fedbo.model.features import Features
from fedbo.model.function import SampledFunction
from fedbo.model.kernel import Array, single
from fedbo.model.surrogate import Marginal
from fedbo.policy.base import APART, Policy, Query, Target
from fedbo.policy.improvement import (
    LEAST_VARIANCE,
    SCREENED,
    ExpectedImprovement,
    deviation,
    in_blocks,
    log_ei,
    log_ei_and_slopes,
)
from fedbo.policy.origin import Origin
from fedbo.policy.ranking import Counts, Ranking

_DRAWS = 2048  # of peers, ranked at a time: (n, 2048) stays in the cache


class RGPE(Policy, frozen=True, tag="rgpe"):
    """Ranking-weighted GP ensemble; needs a federation that hands out beliefs.

    ``samples`` draws of each model decide its weight. Against many poor peers that win draws by
    chance, a peer is dropped whose median loss exceeds this percentile of the target's:
    ``dilution``, None to drop none. Without peers it is expected improvement on the own GP.

    >>> RGPE()
    RGPE(samples=100, dilution=95.0)
    """

    samples: int = 100
    dilution: float | None = 95.0

    kinds: ClassVar[tuple[Kind, ...]] = ("belief", "belief+incumbent")

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"samples is {self.samples!r}, expected 1 or more")
        if self.dilution is not None and not 0.0 <= self.dilution <= 100.0:
            raise ValueError(
                f"dilution is {self.dilution!r}, expected a percentile from 0 to 100, or None"
            )

    def query(self, target: Target) -> Query:
        if not len(target.X):  # nothing to rank, and nothing to improve on
            return target.query(target.own_draw())
        own, peers = self.weights(target)
        trust = target.named(np.arange(len(peers)), peers)
        return target.query(self.acquisition(target, own, peers), Origin(trust=trust), APART)

    def weights(self, target: Target) -> tuple[float, Array]:
        """The weight of the target's own belief, and of each row of its inbox."""
        inbox, ranking = target.beliefs, Ranking(target.X, target.y)
        if not len(inbox) or not ranking.pairs:
            return 1.0, np.zeros(len(inbox))
        left_out = target.belief.leave_one_out(ranking.rows).draws(target.rng, self.samples)
        own = ranking.discordant_left_out(left_out)
        Phi = target.phi(ranking.points)
        peers = 2 * _discordant(ranking, Phi, inbox, self.samples)
        return ranking_weights(own, peers, self.dilution)

    def acquisition(self, target: Target, own: float, peers: Array) -> SampledFunction:
        """log EI of the ensemble with these weights, over its best prediction so far."""
        belief = target.belief.marginal()
        rows = np.flatnonzero(peers)
        if not len(rows):
            best = float(belief.predict(target.X)[0].max()) if len(target.X) else 0.0
            return ExpectedImprovement(belief, best)
        weights, inbox = peers[rows], target.beliefs
        nu = weights @ inbox.nu[rows]
        R = (weights[:, None, None] * inbox.R[rows]).reshape(-1, inbox.M)
        A = (weights @ weights) * np.eye(inbox.M) - R.T @ R
        return EnsembleImprovement(belief, own, target.phi, nu, A, target.X)


def ranking_weights(own: Counts, peers: Counts, dilution: float | None) -> tuple[float, Array]:
    """w and w_n from the losses of the target (S,) and of the peers (N, S).

    >>> ranking_weights(np.array([2, 2]), np.array([[0, 4], [0, 4], [6, 6]]), None)
    (0.5, array([0.25, 0.25, 0.  ]))
    """
    kept = np.arange(len(peers))
    if dilution is not None:
        kept = kept[np.median(peers, axis=1) <= np.percentile(own, dilution)]
    weights = np.zeros(len(peers))
    if not len(kept):
        return 1.0, weights
    losses = peers[kept]
    lowest = losses.min(axis=0)
    lost = lowest < own
    winners = (losses == lowest) & lost
    weights[kept] = (winners / np.maximum(winners.sum(axis=0), 1)).mean(axis=1)
    return float(1.0 - lost.mean()), weights


def _discordant(ranking: Ranking, Phi: Array, inbox: BeliefInbox, samples: int) -> Counts:
    """(N, S) pairs that each draw of each peer ranks wrongly; Φ (u, M) at the ranking's points.

    In float64: float32 would decide close pairs by rounding.
    """
    draws = inbox.draws(samples)
    counts = np.empty(draws.shape[:2], dtype=np.int64)
    together = max(1, _DRAWS // samples)
    for i in range(0, len(draws), together):
        omegas = draws[i : i + together].reshape(-1, inbox.M).astype(np.float64)
        wrong = ranking.discordant(Phi @ omegas.T)
        counts[i : i + together] = wrong.reshape(-1, samples)
    return counts


class EnsembleImprovement:
    """log EI of the ensemble over its largest mean at the points X (t, D) that were observed.

    A function on the cube, made of the own belief and all peers in one.
    Peers are evaluated in the precision of the points, the own belief always in float64 (see
    `ExpectedImprovement`).
    """

    screened = SCREENED

    def __init__(
        self, own: Marginal, weight: float, features: Features, nu: Array, A: Array, X: Array
    ) -> None:
        self.own = own
        self.weight = weight
        self.features = features
        self.length_scales = features.length_scales
        if weight > 0.0:
            self.length_scales = np.minimum(features.length_scales, own.length_scales)
        self._double = nu, A
        self._single = single(nu), single(A)
        self.best = float(self.moments(X)[0].max())

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of the ensemble at the rows of X."""
        nu, A = self._peers(X)
        Phi = self.features(X)
        mu = (Phi @ nu).astype(np.float64)
        var = np.einsum("ij,ij->i", Phi @ A, Phi).astype(np.float64)
        if self.weight > 0.0:
            own_mu, own_var = self.own.predict(X.astype(np.float64))
            mu += self.weight * own_mu
            var += self.weight**2 * own_var
        return mu, var

    def __call__(self, X: Array) -> Array:
        return in_blocks(self._values, X)

    def _values(self, X: Array) -> Array:
        mu, var = self.moments(X)
        return log_ei(mu, deviation(var), self.best)

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        w, (nu, A) = self.weight, self._peers(X)
        tangent = self.features.tangent(X)
        A_phi = tangent.Phi @ A
        mu = (tangent.Phi @ nu).astype(np.float64)
        var = np.einsum("ij,ij->i", A_phi, tangent.Phi).astype(np.float64)
        if w > 0.0:
            own_mu, own_var, mu_gradient, var_gradient = self.own.predict_with_gradient(
                X.astype(np.float64)
            )
            mu += w * own_mu
            var += w**2 * own_var
        s = deviation(var)
        value, by_mu, by_s = log_ei_and_slopes(mu, s, self.best)
        by_mu, by_var = by_mu[:, None], (by_s * (var > LEAST_VARIANCE) / (2.0 * s))[:, None]
        gradient = tangent.gradient((by_mu * nu + 2.0 * by_var * A_phi).astype(X.dtype))
        if w > 0.0:
            gradient = gradient + w * by_mu * mu_gradient + w**2 * by_var * var_gradient
        return value, gradient

    def _peers(self, X: Array) -> tuple[Array, Array]:
        return self._single if X.dtype == np.float32 else self._double
