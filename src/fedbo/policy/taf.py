"""Transfer acquisition function (Wistuba et al. 2018), with peers known by their beliefs.

=========  ========================================================================  =======
symbol     meaning                                                                   shape
=========  ========================================================================  =======
d_n        part of the pairs of the target's observations that peer n's mean          (N,)
           φᵀν_n ranks otherwise than their scores, in [0, 1]
rho        ``rho``: the distance from which on a peer is not listened to              scalar
w_n        ¾ (1 − (d_n / ρ)²), Epanechnikov's kernel; 0 for d_n ≥ ρ                   (N,)
w          ``own_weight``: the target's, ¾, the kernel at distance 0                  scalar
EI         expected improvement of the target over its best score                     (n,)
EI_n       expected improvement under peer n's belief over its own incumbent          (n,)
=========  ========================================================================  =======

The acquisition is (w EI + Σ w_n EI_n) / (w + Σ w_n), handled as its logarithm.

Where the public code of the federated version is wrong, this is not: there the incumbents are
shifted by one against the peers; distances are scaled so that all of them tend to 0, and weights to
uniform, as observations grow (ρ is meant for a part of pairs in [0, 1]); and the improvement of a
peer is drawn at random at every evaluation, where its expectation is known.

The variances of all peers at all points are one product, ‖φ‖² − ‖R_nφ‖² (`fedbo.beliefs`): each
peer has as many rows there as it has something to say, fewer than its observations where these lie
within a length scale of one another.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from fedbo.message import Kind
from fedbo.message.beliefs import Single
from fedbo.model.features import Features
from fedbo.model.function import SampledFunction
from fedbo.model.kernel import Array
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
from fedbo.policy.ranking import Ranking

_NOTHING = -40.0  # e to this is lost in a sum of float64
_CACHED = 2**18  # numbers R_nφ of peers at points that are held at a time


class TAF(Policy, frozen=True, tag="taf"):
    """Transfer acquisition function; needs a federation that hands out beliefs and incumbents.

    ``rho`` is the part of wrongly ranked pairs from which on a peer is not listened to, and
    ``own_weight`` the weight of the target. Without peers it is expected improvement on the own GP.

    >>> TAF()
    TAF(rho=0.5, own_weight=0.75)
    """

    rho: float = 0.5
    own_weight: float = 0.75

    kinds: ClassVar[tuple[Kind, ...]] = ("belief+incumbent",)

    def __post_init__(self) -> None:
        for name, value in (("rho", self.rho), ("own_weight", self.own_weight)):
            if not 0.0 < value < np.inf:
                raise ValueError(f"{name} is {value!r}, expected a finite number above 0")

    def query(self, target: Target) -> Query:
        if not len(target.X) and not len(target.inbox):  # nothing to improve on
            return target.query(target.own_draw())
        peers = self.weights(target)
        shares = peers / (self.own_weight + peers.sum())
        trust = target.named(np.arange(len(peers)), shares)
        return target.query(self.acquisition(target, peers), Origin(trust=trust), APART)

    def weights(self, target: Target) -> Array:
        """w_n of each row of the inbox."""
        inbox, ranking = target.beliefs, Ranking(target.X, target.y)
        distances = np.zeros(len(inbox))
        if len(inbox) and ranking.pairs:
            means = target.phi(ranking.points) @ inbox.nu.T.astype(np.float64)
            distances = ranking.discordant(means) / ranking.pairs
        return epanechnikov(distances / self.rho)

    def acquisition(self, target: Target, weights: Array) -> SampledFunction:
        """The logarithm of the acquisition with these weights of peers."""
        best = float(target.y.max()) if len(target.y) else 0.0
        own = ExpectedImprovement(target.belief.marginal(), best)
        rows = np.flatnonzero(weights)
        if not len(rows):
            return own
        inbox = target.beliefs
        peers = Peers(target.phi, inbox.nu[rows], inbox.R[rows])
        return TransferImprovement(
            own, self.own_weight, peers, inbox.incumbents[rows], weights[rows]
        )


def epanechnikov(u: Array) -> Array:
    """¾ (1 − u²) where u < 1, else 0.

    >>> epanechnikov(np.array([0.0, 0.5, 1.0, 2.0])).tolist()
    [0.75, 0.5625, 0.0, 0.0]
    """
    return 0.75 * np.maximum(1.0 - u * u, 0.0)


class Peers:
    """Means and variances of m peers' functions φᵀω at n points: (n, m), in their precision."""

    def __init__(self, features: Features, nu: Single, R: Single) -> None:
        self.features = features
        self.m, self.rank, M = R.shape
        self._single = cast("Array", nu), cast("Array", R.reshape(-1, M))

    @cached_property
    def _double(self) -> tuple[Array, Array]:
        nu, R = self._single
        return nu.astype(np.float64), R.astype(np.float64)

    def _arrays(self, like: Array) -> tuple[Array, Array]:
        return self._single if like.dtype == np.float32 else self._double

    def moments(self, Phi: Array) -> tuple[Array, Array]:
        """Means φᵀν_n and variances ‖φ‖² − ‖R_nφ‖² at points with features Phi (n, M)."""
        nu, R = self._arrays(Phi)
        n, variance = len(Phi), self.features.signal_variance
        taken = np.empty((n, self.m), dtype=Phi.dtype)
        together = max(1, _CACHED // max(1, n * self.rank))
        for i in range(0, self.m, together):
            R_phi = Phi @ R[i * self.rank : (i + together) * self.rank].T
            R_phi = R_phi.reshape(n, -1, self.rank)
            np.einsum("nmr,nmr->nm", R_phi, R_phi, out=taken[:, i : i + together])
        return Phi @ nu.T, variance - taken

    def moments_and_products(self, Phi: Array) -> tuple[Array, Array, Array]:
        """The same at few points, and R_nφ (n, m, r), which their gradients need."""
        nu, R = self._arrays(Phi)
        R_phi = (Phi @ R.T).reshape(len(Phi), self.m, self.rank)
        taken = np.einsum("nmr,nmr->nm", R_phi, R_phi)
        return Phi @ nu.T, self.features.signal_variance - taken, R_phi

    def gradient(self, R_phi: Array, by_mu: Array, by_var: Array) -> Array:
        """dg/dφ (n, M) of a g with these derivatives (n, m) by the means and variances.

        ‖φ‖ is constant, so that only ‖R_nφ‖² changes a variance. Overwrites R_phi.
        """
        nu, R = self._arrays(R_phi)
        R_phi *= -2.0 * by_var[:, :, None]
        gradient: Array = by_mu @ nu + R_phi.reshape(len(R_phi), -1) @ R
        return gradient


class TransferImprovement:
    """log [(w EI + Σ w_n EI_n) / (w + Σ w_n)], as a function on the cube."""

    screened = SCREENED

    def __init__(
        self, own: ExpectedImprovement, weight: float, peers: Peers, bests: Array, weights: Array
    ) -> None:
        self.own = own
        self.peers = peers
        self.bests = bests
        self.length_scales = np.minimum(own.length_scales, peers.features.length_scales)
        total = weight + weights.sum()
        self._log_own = np.log(weight / total)
        self._log_peers = np.log(weights / total)

    def __call__(self, X: Array) -> Array:
        return in_blocks(self._values, X)

    def _values(self, X: Array) -> Array:
        mu, var = self.peers.moments(self.peers.features(X))
        parts = log_ei(mu, deviation(var), self.bests) + self._log_peers.astype(X.dtype)
        return _log_sum(self.own(X) + self._log_own, parts)[0]

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        tangent = self.peers.features.tangent(X)
        mu, var, R_phi = self.peers.moments_and_products(tangent.Phi)
        s = deviation(var)
        parts, by_mu, by_s = log_ei_and_slopes(mu, s, self.bests)
        parts += self._log_peers.astype(X.dtype)
        own, own_gradient = self.own.value_and_gradient(X)
        value, own_share, shares = _log_sum(own + self._log_own, parts)
        by_var = shares * by_s * (var > LEAST_VARIANCE) / (2.0 * s)
        slopes = self.peers.gradient(R_phi, shares * by_mu, by_var)
        return value, tangent.gradient(slopes) + own_share[:, None] * own_gradient


def _log_sum(own: Array, parts: Array) -> tuple[Array, Array, Array]:
    """log(e^own + Σ e^parts) of own (n,) and parts (n, m), and the share of each in the sum."""
    top = np.maximum(own, parts.max(axis=1))
    gaps = parts - top[:, None].astype(parts.dtype)
    shares = np.exp(np.maximum(gaps, _NOTHING))
    shares *= gaps > _NOTHING  # a share of 1e-40 changes nothing and makes products crawl
    own_share = np.exp(own - top)
    total = own_share + shares.sum(axis=1)
    return top + np.log(total), own_share / total, shares / total[:, None].astype(parts.dtype)
