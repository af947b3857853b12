"""What peers say, whatever kind of message they sent, and how much each of them counts.

======  ========================================================================  ==========
symbol  meaning                                                                   shape
======  ========================================================================  ==========
ψ       coordinates of a point in the basis of the federation, see `Basis`        (k,)
z_n     coordinates of the function of peer n, which is ψᵀz_n                     (k,)
m, R    mean of z_n, and what peer n knows: its covariance is I − R_nᵀ R_n        (K, k)
g_n     mean function of peer n, ψᵀm_n                                            function
x_n     its tip; if its message has none, where g_n is highest                    (K, D)
r_n(x)  regret of peer n at x: (max g_n − g_n(x)) / (max g_n − min g_n), but 0    (n, K)
        at x_n
τ_n     Kendall's τ of g_n with the target's t scores: 1 if all pairs have the    (K,)
        same order, −1 if none has
w_n     share of peer n, ∝ exp(1.5 √(t − 1) τ_n): the exponent has a standard     (K,)
        deviation of about 1 by chance
======  ========================================================================  ==========

A *compact* message says m, R and the tip. A *belief* is projected onto the directions of the basis.
Of *weights*, only one draw is known. Its sender has learnt s = t λ / (t λ + σ²) of a direction with
eigenvalue λ from t trials, so the best guess of its mean is s z, with covariance 1 − s².

Only the order of scores counts in w_n, because their scale differs from a peer's, and they have a
long tail. The luckiest of 50 uninformative peers gets a share of about 1/8, whatever t is.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedbo.federation.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message.inbox import BeliefInbox, Inbox, Single
from fedbo.model.kernel import Array, Mask, squared_distances

Counts = NDArray[np.int64]

_MOST = 1024  # peers compared at most; of more peers, an even selection
_MOST_SCORES = 200  # observations compared at most: more would cost much and add little
_LOUD = 2.0  # largest standard deviation over the space of a peer's function; honest ones have 1
_HIGH = 2.0  # how far it may rise above its mean; nine in ten honest ones rise by less
_FLAT = 1e-9  # a function that varies by less has no best point
_ROUNDING = 1e-10  # squared distance of points that are the same


class Peers:
    """The peers whose messages say something, at most 1,024 of them.

    Their ``rows`` (K,) are those of the inbox.

    Args:
        federation: What the target and its peers agree on.
        inbox: The messages that the target holds.
        X: Points of the target's scores, (t, D).
        y: These scores, (t,).
    """

    def __init__(self, federation: Federation, inbox: Inbox, X: Array, y: Array) -> None:
        basis = Shared.of(federation).basis
        informed = np.flatnonzero(inbox.t_n)
        even = np.linspace(0, len(informed) - 1, min(len(informed), _MOST)).astype(np.intp)
        self.rows = rows = informed[even]
        self._X, self._y, self._basis, self._named = X, y, basis, inbox.tips[rows]
        if not isinstance(inbox, BeliefInbox):
            learnt = inbox.t_n[rows, None] * basis.lam
            s = learnt / (learnt + federation.noise_variance)
            m = s * (inbox.omega[rows] @ basis.vectors)
            R = s.astype(np.float32)[:, :, None] * np.eye(len(basis), dtype=np.float32)
        else:
            m, R = inbox.nu[rows].astype(np.float64), inbox.R[rows]
            if not federation.is_compact:
                m, R = m @ basis.vectors, R @ basis.vectors.astype(np.float32)
        # no message counts for the size of its numbers, nor for how highly it praises a point
        excess = np.maximum(basis.size(m) / _LOUD, basis.height(m) / _HIGH)
        self.m: Array = m / np.maximum(excess, 1.0)[:, None]
        self.R: Single = R

    def values(self, X: Array) -> Array:
        """Return g_n at the rows of X (n, D), (n, K)."""
        return np.asarray(self._basis.coordinates(X) @ self.m.T)

    def shares(self, X: Array, y: Array) -> Array:
        """Return w (K,), which add up to 1, given the target's scores y (t,) at the rows of X."""
        ranking = Ranking(X, y)
        wrong = ranking.discordant(self.values(ranking.points)) / max(ranking.pairs, 1)
        log_w = -3.0 * np.sqrt(max(len(ranking.rows) - 1, 0)) * wrong  # τ is 1 − 2 wrong
        w: Array = np.exp(log_w - log_w.max())
        return np.asarray(w / w.sum())

    @cached_property
    def w(self) -> Array:
        """The shares (K,) by the target's scores so far."""
        return self.shares(self._X, self._y)

    @cached_property
    def tips(self) -> Array:
        """x_n (K, D); a row of NaN if a peer recommends nothing."""
        highest = self._basis.points[self._over_space.argmax(axis=0)]
        own = np.where(np.ptp(self._over_space, axis=0)[:, None] > _FLAT, highest, np.nan)
        return np.where(np.isnan(self._named), own, self._named)

    def regret(self, X: Array) -> Array:
        """Return r_n at the rows of X (n, D), (n, K)."""
        span = np.ptp(self._over_space, axis=0)
        lost = (self._over_space.max(axis=0) - self.values(X)) / np.maximum(span, _FLAT)
        r = np.where(span > _FLAT, lost.clip(0.0, 1.0), 1.0)
        return np.where(is_same(X, self.tips), 0.0, r)

    @cached_property
    def _over_space(self) -> Array:
        """g_n at points all over the space, (s, K)."""
        return np.asarray(self._basis.psi @ self.m.T)


def is_same(X: Array, Z: Array) -> Mask:
    """Say which rows of X (n, D) and Z (m, D) are the same point, but for rounding, (n, m)."""
    return np.asarray(squared_distances(X, Z, np.ones(X.shape[1])) < _ROUNDING)


class Ranking:
    """The order of scores at points, and how many pairs of them a model orders wrongly.

    =======  ===================================================================  =======
    symbol   meaning                                                              shape
    =======  ===================================================================  =======
    x_j      points the target observed, sorted by their scores y_j               (n, D)
    pair     (j, k) with y_j < y_k and x_j ≠ x_k; discordant if not f(x_j) < f(x_k)
    F        values of K models at the distinct points                            (u, K)
    f⁻ʲ      a draw of the target's own belief that leaves out observation j      (n,)
    =======  ===================================================================  =======

    The ranking loss of RGPE runs over ordered pairs, so it is twice the number of discordant pairs.
    Pairs of equal scores, and pairs of the same point, are left out because they would add the same
    to the loss of every model. If a model gives two points the same value, the pair is discordant.

    Args:
        X: Points, (t, D).
        y: Their scores, (t,). If there are many, an even selection of ranks is compared.

    >>> ranking = Ranking(np.array([[0.1], [0.2], [0.3]]), np.array([1.0, 3.0, 2.0]))
    >>> ranking.pairs, ranking.discordant(-10 * ranking.points).tolist()
    (3, [2])
    """

    def __init__(self, X: Array, y: Array) -> None:
        order = np.argsort(y, kind="stable")
        if len(order) > _MOST_SCORES:
            order = order[np.linspace(0, len(order) - 1, _MOST_SCORES).round().astype(np.intp)]
        self.rows = order  # the observations that are compared, by ascending score
        scores = y[order]
        # the distinct points among them, (u, D)
        self.points, place = np.unique(X[order], axis=0, return_inverse=True)
        self._place = place.reshape(-1)
        self._above = np.searchsorted(scores, scores, side="right").tolist()
        self._ordered = (scores[:, None] < scores) & (self._place[:, None] != self._place)
        self.pairs = int(np.count_nonzero(self._ordered))
        self._repeated = int(np.count_nonzero(scores[:, None] < scores)) - self.pairs

    def discordant(self, F: Array) -> Counts:
        """Return the number of discordant pairs of each model, (K,); F is (u, K) at ``points``."""
        F = F[self._place]
        counts = np.zeros(F.shape, dtype=np.uint8)
        for j, above in enumerate(self._above):
            counts[above:] += F[above:] <= F[j]
        total: Counts = counts.sum(axis=0, dtype=np.int64)
        return total - self._repeated  # pairs of the same point were counted as well

    def discordant_left_out(self, draws: Array) -> Counts:
        """Count ordered pairs (j, k) that f⁻ʲ gets wrong, (S,); draws (S, n, n) are f⁻ʲ(x_k)."""
        left_out = np.diagonal(draws, axis1=1, axis2=2)[:, :, None]
        wrong = (draws <= left_out) & self._ordered
        wrong |= (draws >= left_out) & self._ordered.T
        total: Counts = np.count_nonzero(wrong, axis=(1, 2)).astype(np.int64)
        return total
