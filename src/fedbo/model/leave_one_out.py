"""Leave-one-out beliefs in closed form, without refitting.

=======  =====================================================================  =========
symbol   meaning                                                                shape
=======  =====================================================================  =========
j, k     observations                                                           1 … n
f        the objective under the whole belief, N(mu, Sigma) at the observations (n,)
f⁻ʲ      the objective under the belief that leaves out observation j           (n,)
P        block of (K + σ²I)⁻¹ for the n observations                            (n, n)
alpha    (K + σ²I)⁻¹ y                                                          (n,)
mu       y − σ² alpha                                                           (n,)
Sigma    K − K (K + σ²I)⁻¹ K = σ²I − σ⁴P                                        (n, n)
T        its column j gives Cov f⁻ʲ = Sigma + T_j T_jᵀ                          (n, n)
=======  =====================================================================  =========

Leaving out an observation is a rank-one change. With T_j = (e_j − σ²P e_j) / √P_jj and a normal
ε independent of f, f⁻ʲ = f + T_j (ε − alpha_j / √P_jj). At x_j itself this gives the well-known
mean y_j − alpha_j / P_jj and variance 1/P_jj − σ² (Rasmussen and Williams, section 5.4.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbo.model.kernel import Array, semidefinite_factor

Rows = NDArray[np.intp]


class LeaveOneOut:
    """The beliefs f⁻ʲ for all j.

    Args:
        P: Block of (K + σ²I)⁻¹, (n, n).
        alpha: (K + σ²I)⁻¹ y at the n observations, (n,).
        y: Their standard scores, (n,).
        sigma2: σ², the noise variance.

    >>> P, y = np.linalg.inv([[1.1, 0.5], [0.5, 1.1]]), np.array([1.0, -1.0])
    >>> LeaveOneOut(P, P @ y, y, 0.1).draws(np.random.default_rng(0), 10).shape
    (10, 2, 2)
    """

    def __init__(self, P: Array, alpha: Array, y: Array, sigma2: float) -> None:
        self.P, self.alpha, self.y, self.sigma2 = P, alpha, y, sigma2

    def moments(self) -> tuple[Array, Array]:
        """Return the mean and variance (n,) of f⁻ʲ(x_j), at the point that was left out."""
        diagonal = np.diagonal(self.P)
        return self.y - self.alpha / diagonal, np.maximum(1.0 / diagonal - self.sigma2, 0.0)

    def draws(self, rng: np.random.Generator, samples: int) -> Array:
        """Return joint draws (samples, n, n): entry [s, j, k] is f⁻ʲ(x_k) in draw s."""
        n, sigma2 = len(self.y), self.sigma2
        shrunk = np.eye(n) - sigma2 * self.P
        factor = semidefinite_factor(sigma2 * shrunk)
        root = np.sqrt(np.diagonal(self.P))
        T = shrunk / root
        z = rng.standard_normal((samples, factor.shape[1]))
        f = (self.y - sigma2 * self.alpha) + z @ factor.T
        shift = rng.standard_normal((samples, n)) - self.alpha / root
        draws: Array = shift[:, :, None] * np.ascontiguousarray(T.T)
        draws += f[:, None, :]
        return draws
