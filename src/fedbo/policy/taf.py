"""The transfer acquisition function (Wistuba et al. 2018), for peers that send beliefs.

=========  ========================================================================  =======
symbol     meaning                                                                   shape
=========  ========================================================================  =======
d_n        fraction of the pairs of the target's observations that peer n's mean     (N,)
           φᵀν_n orders wrongly
rho        ``rho``: a peer with d_n ≥ ρ is ignored                                   scalar
w_n        shares of the peers: ¾ (1 − (d_n / ρ)²), Epanechnikov's kernel; 0 for     (N,)
           d_n ≥ ρ
w          ``own_share``: the target's share; by default ¾, the kernel at d = 0      scalar
EI         expected improvement of the target over its best score                    (n,)
EI_n       expected improvement under peer n's belief over its own incumbent         (n,)
R_n        factor of peer n's belief, see `fedbo.message.inbox`                    (r, M)
=========  ========================================================================  =======

The acquisition function is (w EI + Σ w_n EI_n) / (w + Σ w_n); the code computes its logarithm.

This corrects three errors in the public code of the federated version. It gives each peer its
neighbour's incumbent. Its distances all tend to 0 with more observations, although ρ is meant for a
fraction of pairs. And it draws a peer's improvement at random in each evaluation, although the
expectation is known.
"""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np

from fedbo.message import Kind
from fedbo.message.inbox import Single
from fedbo.model.argmax import SampledFunction
from fedbo.model.features import Features
from fedbo.model.kernel import Array, Twins
from fedbo.policy.base import Policy
from fedbo.policy.improvement import (
    LEAST_VARIANCE,
    ExpectedImprovement,
    Improvement,
    deviation,
    log_ei,
    log_ei_and_slopes,
)
from fedbo.policy.peers import Ranking
from fedbo.policy.target import Origin, Query, Target

_NOTHING = -40.0  # exp of this vanishes in a float64 sum
_CACHED = 2**18  # entries of R_nφ computed at a time


class TAF(Policy, frozen=True, tag="taf"):
    """The transfer acquisition function; it needs a federation with ``kind="belief"``.

    Without peers it maximises the expected improvement of the agent's own GP.

    Args:
        rho: A peer that orders this fraction of pairs wrongly, or more, is ignored (default 0.5).
        own_share: Share of the target before normalisation (default 0.75).

    >>> TAF()
    TAF(rho=0.5, own_share=0.75)
    """

    rho: float = 0.5
    own_share: float = 0.75

    kinds: ClassVar[tuple[Kind, ...]] = ("belief",)

    def __post_init__(self) -> None:
        for name, value in (("rho", self.rho), ("own_share", self.own_share)):
            if not 0.0 < value < np.inf:
                raise ValueError(f"{name} is {value!r}, expected a finite number above 0")

    def query(self, target: Target) -> Query:
        if not len(target.X) and not len(target.inbox):  # there is nothing to improve on
            return target.query_draw(target.own_draw())
        peers = self.shares(target)
        trust = target.named(np.arange(len(peers)), peers / (self.own_share + peers.sum()))
        return target.query_acquisition(self.acquisition(target, peers), Origin(trust=trust))

    def shares(self, target: Target) -> Array:
        """Return w_n for each row of the inbox, (N,)."""
        inbox, ranking = target.beliefs, Ranking(target.X, target.y)
        distances = np.zeros(len(inbox))
        if len(inbox) and ranking.pairs:
            means = target.phi(ranking.points) @ inbox.nu.T.astype(np.float64)
            distances = ranking.discordant(means) / ranking.pairs
        return 0.75 * np.maximum(1.0 - (distances / self.rho) ** 2, 0.0)

    def acquisition(self, target: Target, shares: Array) -> SampledFunction:
        """Return the logarithm of the acquisition function with these shares of the peers."""
        best = float(target.y.max()) if len(target.y) else 0.0
        own = ExpectedImprovement(target.belief.marginal(), best)
        rows = np.flatnonzero(shares)
        if not len(rows):
            return own
        peers = Peers(target.phi, target.beliefs.nu[rows], target.beliefs.R[rows])
        bests = target.beliefs.incumbents[rows]
        return TransferImprovement(own, self.own_share, peers, bests, shares[rows])


class Peers:
    """The means φᵀν_n and variances ‖φ‖² − ‖R_nφ‖² of m peers, with nu (m, M) and R (m, r, M)."""

    def __init__(self, features: Features, nu: Single, R: Single) -> None:
        self.features = features
        self.m, self.rank, M = R.shape
        self._twins = Twins(cast("Array", nu), cast("Array", R.reshape(-1, M)))

    def moments(self, Phi: Array) -> tuple[Array, Array]:
        """Return the means and variances (n, m) at points with features Phi (n, M)."""
        nu, R = self._twins.like(Phi)
        n = len(Phi)
        taken = np.empty((n, self.m), dtype=Phi.dtype)
        together = max(1, _CACHED // max(1, n * self.rank))
        for i in range(0, self.m, together):
            R_phi = Phi @ R[i * self.rank : (i + together) * self.rank].T
            R_phi = R_phi.reshape(n, min(together, self.m - i), self.rank)  # a rank may be 0
            np.einsum("nmr,nmr->nm", R_phi, R_phi, out=taken[:, i : i + together])
        return Phi @ nu.T, self.features.signal_variance - taken

    def moments_and_products(self, Phi: Array) -> tuple[Array, Array, Array]:
        """Return `moments` for a few points, and R_nφ (n, m, r), which `gradient` needs."""
        nu, R = self._twins.like(Phi)
        R_phi = (Phi @ R.T).reshape(len(Phi), self.m, self.rank)
        taken = np.einsum("nmr,nmr->nm", R_phi, R_phi)
        return Phi @ nu.T, self.features.signal_variance - taken, R_phi

    def gradient(self, R_phi: Array, by_mu: Array, by_var: Array) -> Array:
        """Return dg/dφ (n, M) from dg/d mean and dg/d variance (n, m); R_phi is overwritten."""
        nu, R = self._twins.like(R_phi)
        R_phi *= -2.0 * by_var[:, :, None]
        gradient: Array = by_mu @ nu + R_phi.reshape(len(R_phi), len(R)) @ R
        return gradient


class TransferImprovement(Improvement):
    """log [(w EI + Σ w_n EI_n) / (w + Σ w_n)]; share is w, bests are the m peers' incumbents."""

    def __init__(
        self, own: ExpectedImprovement, share: float, peers: Peers, bests: Array, shares: Array
    ) -> None:
        self.own, self.peers, self.bests = own, peers, bests
        self.length_scales = np.minimum(own.length_scales, peers.features.length_scales)
        total = share + shares.sum()
        self._log_own = np.log(share / total)
        self._log_peers = np.log(shares / total)

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
    """Return log(e^own + Σ e^parts) for own (n,) and parts (n, m), and each one's share in it."""
    top = np.maximum(own, parts.max(axis=1))
    gaps = parts - top[:, None].astype(parts.dtype)
    shares = np.exp(np.maximum(gaps, _NOTHING))
    shares *= gaps > _NOTHING  # tiny shares change nothing, but make products slow
    own_share = np.exp(own - top)
    total = own_share + shares.sum(axis=1)
    return top + np.log(total), own_share / total, shares / total[:, None].astype(parts.dtype)
