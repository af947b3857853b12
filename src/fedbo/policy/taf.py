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

The public code of the federated version gives each peer its neighbour's incumbent, has distances
that all tend to 0 with more observations, and draws a peer's improvement at random.
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
        best = float(target.merit.max()) if len(target.y) else 0.0
        own = ExpectedImprovement(target.belief.marginal(), best)
        rows = np.flatnonzero(shares)
        if not len(rows):
            return own
        inbox, share = target.beliefs, self.own_share
        peers = inbox.nu[rows], inbox.R[rows], inbox.incumbents[rows], shares[rows]
        return TransferImprovement(own, share, target.phi, *peers)


class TransferImprovement(Improvement):
    """log [(w EI + Σ w_n EI_n) / (w + Σ w_n)] of m peers with nu (m, M), R (m, r, M), w_n (m,).

    Their means are φᵀν_n, and their variances ‖φ‖² − ‖R_nφ‖².
    """

    def __init__(
        self,
        own: ExpectedImprovement,
        share: float,
        features: Features,
        nu: Single,
        R: Single,
        bests: Array,
        shares: Array,
    ) -> None:
        self.own, self.features, self.bests = own, features, bests
        self.length_scales = np.minimum(own.length_scales, features.length_scales)
        total = share + shares.sum()
        self._log_own, self._log_peers = np.log(share / total), np.log(shares / total)
        self._m, self._rank, M = R.shape
        self._twins = Twins(cast("Array", nu), cast("Array", R.reshape(-1, M)))

    def moments(self, Phi: Array) -> tuple[Array, Array]:
        """Return the means and variances (n, m) at points with features Phi (n, M)."""
        nu, R = self._twins.like(Phi)
        n, r = len(Phi), self._rank
        known = np.empty((n, self._m), dtype=Phi.dtype)
        together = max(1, _CACHED // max(1, n * r))
        for i in range(0, self._m, together):
            R_phi = Phi @ R[i * r : (i + together) * r].T
            R_phi = R_phi.reshape(n, min(together, self._m - i), r)  # a rank may be 0
            np.einsum("nmr,nmr->nm", R_phi, R_phi, out=known[:, i : i + together])
        return Phi @ nu.T, self.features.signal_variance - known

    def _values(self, X: Array) -> Array:
        mu, var = self.moments(self.features(X))
        parts = log_ei(mu, deviation(var), self.bests) + self._log_peers.astype(X.dtype)
        return _log_sum(self.own(X) + self._log_own, parts)[0]

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        tangent = self.features.tangent(X)
        nu, R = self._twins.like(tangent.Phi)
        R_phi = (tangent.Phi @ R.T).reshape(len(X), self._m, self._rank)
        var = self.features.signal_variance - np.einsum("nmr,nmr->nm", R_phi, R_phi)
        s = deviation(var)
        parts, by_mu, by_s = log_ei_and_slopes(tangent.Phi @ nu.T, s, self.bests)
        parts += self._log_peers.astype(X.dtype)
        own, own_gradient = self.own.value_and_gradient(X)
        value, own_share, shares = _log_sum(own + self._log_own, parts)
        by_var = shares * by_s * (var > LEAST_VARIANCE) / (2.0 * s)
        by_phi = (shares * by_mu) @ nu
        R_phi *= -2.0 * by_var[:, :, None]
        by_phi += R_phi.reshape(len(X), len(R)) @ R
        return value, tangent.gradient(by_phi) + own_share[:, None] * own_gradient


def _log_sum(own: Array, parts: Array) -> tuple[Array, Array, Array]:
    """Return log(e^own + Σ e^parts) for own (n,) and parts (n, m), and each one's share in it."""
    top = np.maximum(own, parts.max(axis=1))
    gaps = parts - top[:, None].astype(parts.dtype)
    shares = np.exp(np.maximum(gaps, _NOTHING))
    shares *= gaps > _NOTHING  # tiny shares change nothing, but make products slow
    own_share = np.exp(own - top)
    total = own_share + shares.sum(axis=1)
    return top + np.log(total), own_share / total, shares / total[:, None].astype(parts.dtype)
