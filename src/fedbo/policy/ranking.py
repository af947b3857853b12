"""How many pairs of an agent's own scores a model orders wrongly.

======  =====================================================================  =======
symbol  meaning                                                                shape
======  =====================================================================  =======
x_j     points the target observed, sorted by their scores y_j                 (n, D)
pair    (j, k) with y_j < y_k and x_j ≠ x_k; discordant if not f(x_j) < f(x_k)
F       values of K models at the distinct points                              (u, K)
f⁻ʲ     a draw of the target's own belief that leaves out observation j        (n,)
======  =====================================================================  =======

The ranking loss of RGPE runs over ordered pairs, so it is twice the number of discordant pairs.
Pairs of equal scores, and pairs of the same point, are left out because they would add the same to
the loss of every model. If a model gives two points the same value, the pair is discordant.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbo.model.kernel import Array

Counts = NDArray[np.int64]

_MOST = 200  # observations compared at most: more would cost much and add little


class Ranking:
    """The order of scores at points.

    Args:
        X: Points, (t, D).
        y: Their scores, (t,). If there are many, an even selection of ranks is compared.

    >>> ranking = Ranking(np.array([[0.1], [0.2], [0.3]]), np.array([1.0, 3.0, 2.0]))
    >>> ranking.pairs, ranking.discordant(-10 * ranking.points).tolist()
    (3, [2])
    """

    def __init__(self, X: Array, y: Array) -> None:
        order = np.argsort(y, kind="stable")
        if len(order) > _MOST:
            order = order[np.linspace(0, len(order) - 1, _MOST).round().astype(np.intp)]
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
