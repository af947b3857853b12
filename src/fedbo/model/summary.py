"""A summary of a belief: what an agent knows, and roughly where it has been.

======  =====================================================================  ======
symbol  meaning                                                                shape
======  =====================================================================  ======
z       coordinates of the weights ω along the leading directions: Bᵀω         (k,)
G       I − cov(z), if all trials were at the centres of their cells           (k, k)
g, Q    eigenvalues and eigenvectors of G: 0 in directions that the trials     (k,)
        say nothing about, 1 in directions that they determine
rho     size of the noise, in standard deviations of the belief                scalar
v       Bᵀ(ν + ρ (ω − ν)), where ω is a draw: the mean of z, with noise        (k,)
m, C    the summary: mean and covariance of z, given v                         (k,)
======  =====================================================================  ======

The exact mean and covariance of a belief are no summary that an agent could hand out: the
covariance depends on nothing but the points of its trials, and a peer can solve for them. So the
covariance is that of trials at the centres of public cells, and the mean has noise.

Along an eigenvector with eigenvalue g, the mean of z has the prior N(0, g), and the noise in v the
variance ρ² (1 − g). So the best guess of the mean, and of z itself, is g / (g + ρ² (1 − g)) times
v, and the message leaves z the variance 1 − g² / (g + ρ² (1 − g)).
"""

from __future__ import annotations

import numpy as np

from fedbo.model.kernel import Array
from fedbo.model.linear import Posterior

#: ρ. With ρ = 1, a draw, three peers with ten trials each are of much less use.
NOISE = 0.5


def summarise(
    belief: Posterior, coarse: Posterior, B: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return m (k,) and C (k, k).

    Args:
        belief: What the agent believes.
        coarse: The same, if its trials were at the centres of their cells.
        B: The leading directions, (M, k).
        rng: Draws the noise.
    """
    v = B.T @ (belief.nu + NOISE * (belief.draw(rng) - belief.nu))
    identity = np.eye(B.shape[1])
    g, Q = np.linalg.eigh(identity - coarse.covariance(B))
    g = g.clip(0.0, 1.0)
    s = g / np.maximum(g + NOISE**2 * (1.0 - g), np.finfo(float).tiny)
    return Q @ (s * (Q.T @ v)), identity - (Q * (g * s)) @ Q.T
