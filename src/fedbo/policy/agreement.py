"""How well peers' functions agree with the order of the target's own scores: P_N, learned.

======  =======================================================================  =========
symbol  meaning                                                                  shape
======  =======================================================================  =========
y       scores that the target observed                                          (t,)
F       values of K peers' functions at its points                               (t, K)
τ       Kendall's τ of each peer with the scores: 1 if all pairs have the same   (K,)
        order, −1 if all have the other one; pairs of equal scores do not count
z       1.5 √(t − 1) τ: how many deviations of chance τ is, about                (K,)
w       weights of the peers: w_n ∝ exp(z_n)                                     (K,)
======  =======================================================================  =========

The order of scores is what counts: they have another scale than a peer's, and a long tail.
By chance z has a deviation of about 1, be the scores few or many: of 50 peers that know nothing the
luckiest has about an eighth of the weight.
"""

from __future__ import annotations

import numpy as np

from fedbo.model.kernel import Array

_SHARPNESS = 1.5  # by chance τ has a deviation of about 1 / (1.5 √(t − 1))
_MOST = 100  # scores that are compared: more cost much and say little
_BLOCK = 50_000  # pairs of all peers at a time: they stay in the cache


def agreement(y: Array, F: Array) -> Array:
    """w (K,) from scores y (t,) and the values F (t, K) of the peers' functions there.

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
