"""Bayesian linear regression over the features φ: the posterior of ω (equations 2 and 3).

=======  ==============================================  ===========
symbol   meaning                                         shape
=======  ==============================================  ===========
Phi      Φ(X_t), features of the observations            (t, M)
sigma2   σ², the noise variance                          scalar
Sigma    Σ_t = ΦᵀΦ + σ²I                                 (M, M)
nu       ν_t = Σ_t⁻¹ Φᵀ y_t                              (M,)
L        lower Cholesky factor, Σ_t = L Lᵀ               (M, M)
omega    a draw of ω ~ N(ν_t, σ² Σ_t⁻¹)                  (M,)
=======  ==============================================  ===========
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotrs

from fedbo.model.features import FeatureFunction, Features
from fedbo.model.gp import LeaveOneOut
from fedbo.model.kernel import Array, Rows


class Posterior:
    """ω ~ N(ν, σ²Σ⁻¹), and the distribution of the function φ(x)ᵀω."""

    def __init__(self, features: Features, nu: Array, L: Array, sigma2: float) -> None:
        self.features, self.nu, self.L, self.sigma2 = features, nu, L, sigma2
        self.length_scales = features.length_scales

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Return μ̂ = φ(x)ᵀν and σ̂² = σ² φ(x)ᵀ Σ⁻¹ φ(x) at the rows of X, (n,) each."""
        Phi = self.features(X)
        V = solve_triangular(self.L, Phi.T, lower=True, check_finite=False)
        return Phi @ self.nu, self.sigma2 * np.einsum("ij,ij->j", V, V)

    def predict_with_gradient(self, X: Array) -> tuple[Array, Array, Array, Array]:
        """Return μ̂ and σ̂² (n,) at the rows of X, and their gradients (n, D)."""
        tangent = self.features.tangent(X)
        V = solve_triangular(self.L, tangent.Phi.T, lower=True, check_finite=False)
        A = solve_triangular(self.L, V, lower=True, trans="T", check_finite=False).T
        mu_gradient = tangent.gradient(np.broadcast_to(self.nu, tangent.Phi.shape))
        var_gradient = tangent.gradient((2.0 * self.sigma2) * A)
        var = self.sigma2 * np.einsum("ij,ij->j", V, V)
        return tangent.Phi @ self.nu, var, mu_gradient, var_gradient

    def covariance(self) -> Array:
        """Return σ²Σ⁻¹, the covariance (M, M) of ω."""
        A = solve_triangular(self.L, np.eye(len(self.nu)), lower=True, check_finite=False)
        return self.sigma2 * (A.T @ A)

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw ω = ν + σ L⁻ᵀ z with z ~ N(0, I)."""
        z = rng.standard_normal(len(self.nu))
        deviation = solve_triangular(self.L, z, lower=True, trans="T", check_finite=False)
        omega: Array = self.nu + np.sqrt(self.sigma2) * deviation
        return omega

    def sample(self, rng: np.random.Generator, beta: float = 1.0) -> FeatureFunction:
        """Draw a function; its deviation from the mean is multiplied by β."""
        return self.features.function(self.nu + beta * (self.draw(rng) - self.nu))


class Regression:
    """Observed points. `posterior` takes their scores: a new one changes all standard scores.

    >>> phi = Features(1, 30, seed=1)
    >>> regression = Regression(phi, sigma2=0.1)
    >>> regression.add(np.array([[0.2], [0.7]]))
    >>> posterior = regression.posterior(np.array([1.0, -1.0]))
    >>> posterior.nu.shape, posterior.draw(np.random.default_rng(0)).shape
    ((30,), (30,))
    """

    def __init__(self, features: Features, sigma2: float) -> None:
        self.features, self.sigma2 = features, sigma2
        self.Phi = np.empty((0, features.M))
        self._gram = np.zeros((features.M, features.M))

    def __len__(self) -> int:
        return len(self.Phi)

    def add(self, X: Array) -> None:
        """Add observations at the rows of X (n, D)."""
        Phi = self.features(X)
        self._gram += Phi.T @ Phi
        self.Phi = np.concatenate([self.Phi, Phi])

    @property
    def Sigma(self) -> Array:
        return self._gram + self.sigma2 * np.eye(self.features.M)

    def posterior(self, y: Array) -> Posterior:
        """Return the posterior of ω for standard scores y (t,)."""
        L, info = dpotrf(self.Sigma, lower=1, clean=1, overwrite_a=1)
        if info:
            raise np.linalg.LinAlgError(
                f"Σ is not positive definite in double precision: the noise variance is "
                f"{self.sigma2}, too small for {len(self)} observations; use a larger one"
            )
        nu, _ = dpotrs(L, self.Phi.T @ y, lower=1)
        return Posterior(self.features, nu, L, self.sigma2)

    def leave_one_out(self, y: Array, rows: Rows) -> LeaveOneOut:
        """Return the posteriors that each leave out one of the observations in ``rows``."""
        posterior = self.posterior(y)
        V = solve_triangular(posterior.L, self.Phi[rows].T, lower=True, check_finite=False)
        inverse = (np.eye(len(rows)) - V.T @ V) / self.sigma2  # of ΦΦᵀ + σ²I, by Woodbury
        alpha = (y[rows] - self.Phi[rows] @ posterior.nu) / self.sigma2
        return LeaveOneOut(inverse, alpha, y[rows], self.sigma2)
