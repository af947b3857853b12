"""Shares of the peers, by how well their functions order the target's own scores.

======  =======================================================================  =========
symbol  meaning                                                                  shape
======  =======================================================================  =========
y       scores of the target                                                     (t,)
F       values of K peers' functions at its points                               (t, K)
τ       Kendall's τ of each peer with the scores: 1 if all pairs have the same   (K,)
        order, −1 if all have the opposite order; equal scores are ignored
z       1.5 √(t − 1) τ, which has a standard deviation of about 1 by chance      (K,)
w       shares of the peers: w_n ∝ exp(z_n)                                      (K,)
======  =======================================================================  =========

Only the order of the scores counts, because their scale differs from a peer's and they have a long
tail. The luckiest of 50 uninformative peers gets a share of about 1/8, however many scores there
are.
"""

from __future__ import annotations

import numpy as np

from fedbo.model.kernel import Array

_SHARPNESS = 1.5  # the standard deviation of τ by chance is about 1 / (1.5 √(t − 1))
_MOST = 100  # scores compared at most: more would cost much and add little
_BLOCK = 50_000  # pairs of all peers compared at a time: they stay in the cache


def agreement(y: Array, F: Array) -> Array:
    """Return the shares w (K,), which add up to 1.

    Args:
        y: Scores of the target, (t,).
        F: Values of the peers' functions at the same points, (t, K).

    >>> y = np.array([0.0, 1.0, 2.0, 3.0])
    >>> agreement(y, np.stack([y, -y], axis=1)).round(2).tolist()
    [0.99, 0.01]
    """
    if len(y) > _MOST:
        kept = np.linspace(0, len(y) - 1, _MOST).round().astype(np.intp)
        y, F = y[kept], F[kept]
    t, K = F.shape
    agree, pairs = np.zeros(K), 0.0
    rows = max(1, _BLOCK // max(t * K, 1))
    for i in range(0, t, rows):
        new, old = slice(i, i + rows), slice(i + rows)
        order = np.sign(y[new, None] - y[old]) * np.tri(len(y[new]), len(y[old]), i - 1)
        agree += order.ravel() @ np.sign(F[new, None] - F[old]).reshape(-1, K)
        pairs += np.abs(order).sum()
    log_w = _SHARPNESS * np.sqrt(max(t - 1, 0)) * agree / max(pairs, 1.0)
    w: Array = np.exp(log_w - log_w.max())
    w /= w.sum()
    return w
