"""How well peers' functions agree with the order of the target's own scores: P_N, learned.

======  =======================================================================  =========
symbol  meaning                                                                  shape
======  =======================================================================  =========
x_i     points that the target observed, in the order of their scores' arrival   (t, D)
F       values of K peers' functions there                                       (t, K)
A       A_in = Σ_{j<i} s, s = 1 if peer n orders x_i and x_j as their scores     (t, K)
        do, −1 if the other way round, 0 for a tie
tau     Kendall's τ of peer n with the first i scores                            (t, K)
w       weights of the peers after i scores: w_n ∝ exp(κ (i − 1) τ_in)           (t, K)
u       how much peers claim to know of score i before it is told: the mean of   (t − 1,)
        Σ_n w_n |d|, d = F_in − F_jn within ±1, over j < i, with w from then, 0
        where y_i = y_j
c       how much of it came true: the same of ± Σ_n w_n d, + where y_i > y_j,    (t − 1,)
        from −u to u
γ       trust in the peers, all together: from 0 to 1                            scalar
======  =======================================================================  =========

The order of scores is what counts: they have another scale than a peer's, and a long tail.
With few scores exp(κ (i − 1) τ) is flat, so that no peer is believed, or dropped, by chance.

With enough peers one will agree with any scores by luck. So trust is not earned by how well weights
fit the scores that they were learned from, but by how well they foretold each new one. A peer that
agrees by luck, or an inbox of noise, is found out at the next score. Points that peers find almost
alike count little either way: of several good ones nobody can tell which is the best.
"""

from __future__ import annotations

import math

import numpy as np

from fedbo.model.kernel import Array

_SHARPNESS = 0.25  # κ
_MOST = 100  # scores that are compared: more cost much and say little
_FIRST = 1.0  # log odds of trust before any score
_STEP = 2.5  # log odds for a score that was foreseen wholly
_CHANCE = 0.35  # part of u that has to come true: peers are to be of use, not only not wrong
_HIGHEST = 4.0  # log odds: however good peers were, five bad surprises end it
START = 1.0 / (1.0 + math.exp(-_FIRST))  # γ₀


class Agreement:
    """Weights of K peers, and trust in them, from scores y (t,) and their values F (t, K) there.

    >>> y = np.array([0.0, 1.0, 2.0, 3.0])
    >>> like, unlike = y, -y
    >>> agreement = Agreement(y, np.stack([like, unlike], axis=1))
    >>> agreement.weights.round(2).tolist()
    [0.82, 0.18]
    >>> agreement.trust < Agreement(y, np.stack([like, like], axis=1)).trust
    True
    """

    def __init__(self, y: Array, F: Array) -> None:
        if len(y) > _MOST:
            kept = np.linspace(0, len(y) - 1, _MOST).round().astype(np.intp)
            y, F = y[kept], F[kept]
        t, K = F.shape
        order = np.sign(y[:, None] - y) * np.tri(t, k=-1)
        A, true, claimed = np.zeros((3, t, K))
        for i in range(1, t):  # (t, t, K) at once would not stay in the cache
            d = F[i] - F[:i]
            np.minimum(np.maximum(d, -1.0, out=d), 1.0, out=d)
            A[i] = order[i, :i] @ np.sign(d)
            true[i] = order[i, :i] @ d
            claimed[i] = np.abs(order[i, :i]) @ np.abs(d, out=d)
        pairs = np.maximum(np.abs(order).sum(axis=1).cumsum(), 1.0)
        tau = A.cumsum(axis=0) / pairs[:, None]
        log_w = _SHARPNESS * np.arange(t)[:, None] * tau
        w = np.exp(log_w - log_w.max(axis=1, keepdims=True)) if t else np.ones((1, K))
        w /= w.sum(axis=1, keepdims=True)
        self.weights: Array = w[-1]
        earlier_scores = np.arange(1, max(t, 1))
        self.foreseen: Array = np.einsum("ik,ik->i", w[:-1], true[1:]) / earlier_scores
        self.claimed: Array = np.einsum("ik,ik->i", w[:-1], claimed[1:]) / earlier_scores

    @property
    def trust(self) -> float:
        """γ: the odds grow with each score that was foreseen, and shrink with each that was not."""
        odds = _FIRST
        for c, u in zip(self.foreseen.tolist(), self.claimed.tolist(), strict=True):
            odds = min(odds + _STEP * (c - _CHANCE * u), _HIGHEST)
        return float(1.0 / (1.0 + np.exp(-odds)))
