"""The ranking-weighted GP ensemble (Feurer et al. 2018), for peers that send beliefs.

=========  ========================================================================  ========
symbol     meaning                                                                   shape
=========  ========================================================================  ========
S          ``samples``: number of draws of each model                                scalar
L_n        ranking loss of peer n in each draw: number of ordered pairs of the       (N, S)
           target's observations that are in the wrong order
L          the same for the target, with leave-one-out draws                         (S,)
w, w_n     shares: the fraction of draws in which a model has the lowest loss        scalar, (N,)
mu, var    μ = w μ_t + Σ w_n φᵀν_n and σ² = w² σ_t² + Σ w_n² φᵀC_nφ, the ensemble    (n,)
nu, A      Σ w_n ν_n and Σ w_n² C_n: all peers together                              (M,), (M, M)
best       the ensemble's largest mean at an observed point                          scalar
=========  ========================================================================  ========

As in the authors' publication, and unlike the public code of the federated version, the target's
loss compares *joint* draws f⁻ʲ(x_j) and f⁻ʲ(x_k) of the belief that leaves out observation j, and
the expected improvement is over the ensemble's best prediction at an observed point. In a tie
between the target and peers, the target wins. Peers that tie divide the draw equally.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedbo.message import Kind
from fedbo.message.inbox import BeliefInbox
from fedbo.model.argmax import SampledFunction
from fedbo.model.features import Features
from fedbo.model.kernel import Array, Twins
from fedbo.model.surrogate import Marginal
from fedbo.policy.base import Policy
from fedbo.policy.improvement import ExpectedImprovement, Improvement, improvement_and_slopes
from fedbo.policy.peers import Counts, Ranking
from fedbo.policy.target import Origin, Query, Target

_MOST_SAMPLES = 1_000
_DRAWS = 2048  # peers' draws ranked at a time: (n, 2048) stays in the cache


class RGPE(Policy, frozen=True, tag="rgpe"):
    """The ranking-weighted GP ensemble; it needs a federation with ``kind="belief"``.

    Without peers it maximises the expected improvement of the agent's own GP.

    Args:
        samples: Number of draws of each model that decide its share, 1 to 1,000 (default 100).
        dilution: Drop a peer if its median loss exceeds this percentile (default 95) of the
            target's losses, so that many poor peers win no draws by chance. None drops no peer.

    >>> RGPE()
    RGPE(samples=100, dilution=95.0)
    """

    samples: int = 100
    dilution: float | None = 95.0

    kinds: ClassVar[tuple[Kind, ...]] = ("belief",)

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= _MOST_SAMPLES:
            raise ValueError(f"samples is {self.samples!r}, expected 1 to {_MOST_SAMPLES:,}")
        if self.dilution is not None and not 0.0 <= self.dilution <= 100.0:
            raise ValueError(
                f"dilution is {self.dilution!r}, expected a percentile from 0 to 100, or None"
            )

    def query(self, target: Target) -> Query:
        if not len(target.X):  # there is nothing to rank or to improve on
            return target.query_draw(target.own_draw())
        own, peers = self.shares(target)
        trust = target.named(np.arange(len(peers)), peers)
        return target.query_acquisition(self.acquisition(target, own, peers), Origin(trust=trust))

    def shares(self, target: Target) -> tuple[float, Array]:
        """Return the share of the target's own belief, and of each row of its inbox (N,)."""
        inbox, ranking = target.beliefs, Ranking(target.X, target.y)
        if not len(inbox) or not ranking.pairs:
            return 1.0, np.zeros(len(inbox))
        left_out = target.belief.leave_one_out(ranking.rows).draws(target.rng, self.samples)
        own = ranking.discordant_left_out(left_out)
        peers = 2 * _discordant(ranking, target.phi(ranking.points), inbox, self.samples)
        return ranking_shares(own, peers, self.dilution)

    def acquisition(self, target: Target, own: float, peers: Array) -> SampledFunction:
        """Return log EI of the ensemble with these shares, over its best prediction so far."""
        belief = target.belief.marginal()
        rows, X = np.flatnonzero(peers), target.X[target.contenders]
        if not len(rows):
            return ExpectedImprovement(belief, best=float(belief.predict(X)[0].max()))
        shares, inbox = peers[rows], target.beliefs
        nu = shares @ inbox.nu[rows]
        R = (shares[:, None, None] * inbox.R[rows]).reshape(-1, inbox.M)
        A = (shares @ shares) * np.eye(inbox.M) - R.T @ R
        return EnsembleImprovement(belief, own, target.phi, nu, A, X)


def ranking_shares(own: Counts, peers: Counts, dilution: float | None) -> tuple[float, Array]:
    """Return the shares w and w_n (N,).

    >>> ranking_shares(np.array([2, 2]), np.array([[0, 4], [0, 4], [6, 6]]), None)
    (0.5, array([0.25, 0.25, 0.  ]))
    """
    kept = np.arange(len(peers))
    if dilution is not None:
        kept = kept[np.median(peers, axis=1) <= np.percentile(own, dilution)]
    shares = np.zeros(len(peers))
    if not len(kept):
        return 1.0, shares
    losses = peers[kept]
    lowest = losses.min(axis=0)
    lost = lowest < own
    winners = (losses == lowest) & lost
    shares[kept] = (winners / np.maximum(winners.sum(axis=0), 1)).mean(axis=1)
    return float(1.0 - lost.mean()), shares


def _discordant(ranking: Ranking, Phi: Array, inbox: BeliefInbox, samples: int) -> Counts:
    """Return the number of discordant pairs (N, S) of each draw of each peer."""
    draws = inbox.draws(samples)
    counts = np.empty(draws.shape[:2], dtype=np.int64)
    together = max(1, _DRAWS // samples)
    for i in range(0, len(draws), together):
        # in float64, since float32 would order close pairs by rounding errors
        omegas = draws[i : i + together].reshape(-1, inbox.M).astype(np.float64)
        wrong = ranking.discordant(Phi @ omegas.T)
        counts[i : i + together] = wrong.reshape(-1, samples)
    return counts


class EnsembleImprovement(Improvement):
    """log EI of the ensemble over its largest mean at an observed point X (t, D); share is w."""

    def __init__(
        self, own: Marginal, share: float, features: Features, nu: Array, A: Array, X: Array
    ) -> None:
        self.own, self.share, self.features = own, share, features
        self.length_scales = np.minimum(features.length_scales, own.length_scales)
        self._peers = Twins(nu, A)
        self.best = float(self.predict(X)[0].max())

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Return the mean and variance (n,) of the ensemble; its own part always in float64."""
        nu, A = self._peers.like(X)
        Phi = self.features(X)
        own_mu, own_var = self.own.predict(X.astype(np.float64))
        mu: Array = Phi @ nu + self.share * own_mu
        return mu, np.einsum("ij,ij->i", Phi @ A, Phi) + self.share**2 * own_var

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        w, (nu, A) = self.share, self._peers.like(X)
        tangent = self.features.tangent(X)
        A_phi = tangent.Phi @ A
        prediction = self.own.predict_with_gradient(X.astype(np.float64))
        own_mu, own_var, mu_gradient, var_gradient = prediction
        mu = tangent.Phi @ nu + w * own_mu
        var = np.einsum("ij,ij->i", A_phi, tangent.Phi) + w**2 * own_var
        value, by_mu, by_var = improvement_and_slopes(mu, var, self.best)
        gradient = tangent.gradient((by_mu * nu + 2.0 * by_var * A_phi).astype(X.dtype))
        return value, gradient + w * by_mu * mu_gradient + w**2 * by_var * var_gradient
