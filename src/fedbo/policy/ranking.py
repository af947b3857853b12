"""How far models disagree with the order of an agent's own scores.

======  =====================================================================  =======
symbol  meaning                                                                shape
======  =====================================================================  =======
x_j     points the target observed, sorted by their scores y_j                 (n, D)
pair    (j, k) with y_j < y_k and x_j ≠ x_k; discordant if not f(x_j) < f(x_k)
F       values of K models at the different points                             (u, K)
f⁻ʲ     a draw of the target's own belief without observation j                (n,)
======  =====================================================================  =======

The ranking loss of RGPE runs over ordered pairs, so it is twice the number of discordant ones.
Pairs of equal scores, or of one and the same point, would add the same to the loss of every model,
so they are left out. A model that cannot tell two points apart does not rank them: discordant.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbo.model.kernel import Array

Counts = NDArray[np.int64]

_MOST = 200  # observations that are compared: more cost much and say little


class Ranking:
    """The order of scores y (t,) at points X (t, D); of many, an even spread is compared.

    ``rows`` are the observations that are compared, in ascending order of scores, ``points`` the
    different points among them, and ``pairs`` the number of pairs.

    >>> ranking = Ranking(np.array([[0.1], [0.2], [0.3]]), np.array([1.0, 3.0, 2.0]))
    >>> ranking.pairs, ranking.discordant(-10 * ranking.points).tolist()
    (3, [2])
    """

    def __init__(self, X: Array, y: Array) -> None:
        order = np.argsort(y, kind="stable")
        if len(order) > _MOST:
            order = order[np.linspace(0, len(order) - 1, _MOST).round().astype(np.intp)]
        self.rows = order
        scores = y[order]
        self.points, place = np.unique(X[order], axis=0, return_inverse=True)
        self._place = place.reshape(-1)
        self._above = np.searchsorted(scores, scores, side="right").tolist()
        self._ordered = (scores[:, None] < scores) & (self._place[:, None] != self._place)
        self.pairs = int(np.count_nonzero(self._ordered))
        higher = np.count_nonzero(scores[:, None] < scores)
        self._repeated = int(higher) - self.pairs

    def discordant(self, F: Array) -> Counts:
        """(K,) how many pairs each model ranks wrongly, by its values F (u, K) at ``points``."""
        F = F[self._place]
        counts = np.zeros(F.shape, dtype=np.uint8)
        for j, above in enumerate(self._above):
            counts[above:] += F[above:] <= F[j]
        total: Counts = counts.sum(axis=0, dtype=np.int64)
        return total - self._repeated  # a model has one value at one point

    def discordant_left_out(self, draws: Array) -> Counts:
        """(S,) ordered pairs that are wrong where f⁻ʲ ranks j, by draws (S, n, n) of f⁻ʲ(x_k)."""
        forgotten = np.diagonal(draws, axis1=1, axis2=2)[:, :, None]
        wrong = (draws <= forgotten) & self._ordered
        wrong |= (draws >= forgotten) & self._ordered.T
        total: Counts = np.count_nonzero(wrong, axis=(1, 2)).astype(np.int64)
        return total
