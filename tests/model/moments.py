"""A test of the mean and covariance of draws that detects errors of 5 per cent.

======  ====================================================================  ======
symbol  meaning                                                               shape
======  ====================================================================  ======
W       whitened draws L⁻¹(draw − mean), covariance = L Lᵀ; N(0, I) if right  (n, p)
z       how many of its own standard errors a moment of W is off              scalar
======  ====================================================================  ======

`worst_z` looks at every first and second moment of W: p means, p variances, p(p−1)/2 products, and
the sum of squares. Standard errors are the sample's own, so that draws need not be normal. Of the
z of right draws, a hundred at most, one above `LIMIT` has a probability of less than 0.001. With n
draws, a variance that is off by 5 % shows as z = 0.05 √(n/2), more than 6 from n = 30,000 on; a
mean or a product as z = 0.05 √n, a whole covariance as z = 0.05 √(np/2).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from fedbo import Federation
from fedbo.federation.shared import Shared

LIMIT = 4.5

LIES = ("mean", "scale", "one direction", "correlation")


def worst_z(draws, mean, covariance):
    """The largest |z| of ``draws`` (n, p) against a mean and a covariance."""
    L = np.linalg.cholesky(covariance)
    W = solve_triangular(L, (draws - mean).T, lower=True).T
    first, second = np.tril_indices(W.shape[1], -1)
    terms = np.hstack([W, W**2 - 1, W[:, first] * W[:, second], (W**2 - 1).sum(axis=1)[:, None]])
    z = terms.mean(axis=0) / (terms.std(axis=0) / np.sqrt(len(W)))
    return np.abs(z).max()


def told_wrong(lie, mean, covariance):
    """Return a mean and a covariance with an error of 5 %, of the kind that ``lie`` names."""
    L = np.linalg.cholesky(covariance)
    core = np.eye(len(mean))
    if lie == "mean":
        mean = mean + 0.05 * L[:, 0]
    elif lie == "scale":
        core *= 1.05
    elif lie == "one direction":
        core[-1, -1] = 1.05
    else:
        core[0, 1] = core[1, 0] = 0.05
    return mean, L @ core @ L.T


def known_of(federation: Federation, counts: np.ndarray) -> np.ndarray:
    """G: what trials tell about a function, by their counts in cells."""
    V = Shared.of(federation).factor_of(counts)
    return V.T @ V
