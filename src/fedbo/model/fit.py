"""Hyper-parameters of a GP from its marginal likelihood.

========  ===========================================================  =======
symbol    meaning                                                      shape
========  ===========================================================  =======
theta     logarithms of (l_1 … l_D or one l, σ₀², σ²)                  (p,)
A         K + σ²I                                                      (t, t)
lml       log p(y | X, θ) = −½ yᵀA⁻¹y − ½ log|A| − (t/2) log 2π        scalar
W         ααᵀ − A⁻¹, so that d lml / dθ_j = ½ tr(W dA/dθ_j)            (t, t)
========  ===========================================================  =======

A symmetric matrix is stored as its lower triangle, in a row of t(t+1)/2 numbers.
"""

from __future__ import annotations

import msgspec
import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from fedbo.model.argmax import ascend
from fedbo.model.gp import Hyper
from fedbo.model.kernel import Array, Rows, kernel_named

_SCREENED = 5  # random points drawn for each one that is used as a start
_MOST_FITTED = 300  # observations used at most: more would cost much and add little
_WORTHWHILE = 0.05  # log likelihood: a smaller gain does not justify new hyper-parameters
_IMPOSSIBLE = -1e25
_ANYWHERE = 1.2  # spread of the length scales that a search without priors starts from


class LogNormal(msgspec.Struct, frozen=True):
    """A log-normal prior."""

    median: float
    spread: float


class Priors(msgspec.Struct, frozen=True, kw_only=True):
    """The priors of a GP's hyper-parameters, in standard units.

    With a wider prior of the length scales, a few scores can make a dimension seem irrelevant, and
    expected improvement stays on a plateau (docs/lab/baseline.md).
    """

    length_scale: LogNormal = LogNormal(0.3, 0.6)  # the median is multiplied by √D
    signal_variance: LogNormal = LogNormal(1.0, 0.7)
    noise_variance: LogNormal = LogNormal(1e-3, 2.0)


class Likelihood:
    """The log marginal likelihood of data as a function of θ, with its gradient.

    Args:
        X: Observed points, (t, D).
        y: Their standard scores, (t,).
        kernel: ``"se"`` or ``"matern52"``.
        ard: Whether each dimension has its own length scale.
    """

    def __init__(self, X: Array, y: Array, kernel: str, *, ard: bool = True) -> None:
        self.t, self.D = X.shape
        self.y, self.ard = y, ard
        self.kernel = kernel_named(kernel)
        self._i, self._j = i, j = np.tril_indices(self.t)
        columns = np.ascontiguousarray(X.T)
        gaps = columns.take(i, axis=1)
        gaps -= columns.take(j, axis=1)
        gaps *= gaps
        self.gaps2 = gaps if ard else gaps.sum(axis=0)[None]
        self._flat = i + self.t * j  # places in a matrix that is stored by columns
        diagonal = i == j
        self._diagonal = np.flatnonzero(diagonal)
        self._count = np.where(diagonal, 0.5, 1.0)  # ½ tr of a product, over the lower triangle

    def pack(self, hyper: Hyper) -> Array:
        scales = hyper.length_scales if self.ard else hyper.length_scales[:1]
        return np.log([*scales, hyper.signal_variance, hyper.noise_variance])

    def unpack(self, theta: Array) -> Hyper:
        *scales, signal, noise = np.exp(theta).tolist()
        return Hyper(
            length_scales=tuple(scales) if self.ard else tuple(scales) * self.D,
            signal_variance=signal,
            noise_variance=noise,
            kernel=self.kernel.name,
        )

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Return lml and its gradient with respect to θ."""
        inverse2 = np.exp(-2.0 * theta[:-2])
        signal, noise = np.exp(theta[-2:])
        k, slope = self.kernel.value_and_slope(inverse2 @ self.gaps2)
        k *= signal
        A = np.zeros(self.t * self.t)
        A[self._flat] = k
        A[:: self.t + 1] += noise
        L, info = dpotrf(A.reshape(self.t, self.t).T, lower=1, clean=0, overwrite_a=1)
        if info:
            return _IMPOSSIBLE, np.zeros(len(theta))
        alpha, _ = dpotrs(L, self.y, lower=1)
        log_det = 2.0 * np.log(np.diagonal(L)).sum()
        value = -0.5 * (self.y @ alpha + log_det + self.t * np.log(2.0 * np.pi))
        # tr(A⁻¹ dA) needs all entries of A⁻¹; LAPACK computes them from the factor
        A_inverse, _ = dpotri(L, lower=1)
        W = alpha[self._i] * alpha[self._j]
        W -= A_inverse.T.ravel()[self._flat]
        W *= self._count
        gradient = np.empty(len(theta))
        slope *= W
        gradient[:-2] = -2.0 * signal * inverse2 * (self.gaps2 @ slope)
        gradient[-2] = W @ k
        gradient[-1] = noise * W[self._diagonal].sum()
        return float(value), gradient


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Fits hyper-parameters by maximum posterior density.

    A full search climbs from several starts: the most likely of some random points, and either the
    previous fit or the medians of the priors.

    Args:
        kernel: ``"se"`` or ``"matern52"`` (default).
        ard: Whether each dimension has its own length scale (default True).
        priors: The priors, or None for maximum likelihood.
        noise_floor: Smallest noise variance, in standard units (default 1e-5).
        starts: Number of starts of a full search (default 4).

    >>> X = np.linspace(0, 1, 9)[:, None]
    >>> hyper = Fit()(X, np.sin(6 * X[:, 0]), np.random.default_rng(0))
    >>> 0.1 < hyper.length_scales[0] < 2
    True
    """

    kernel: str = "matern52"
    ard: bool = True
    priors: Priors | None = Priors()
    noise_floor: float = 1e-5
    starts: int = 4

    def __post_init__(self) -> None:
        kernel_named(self.kernel)
        if not 0.0 < self.noise_floor <= 1.0:
            raise ValueError(f"noise_floor is {self.noise_floor!r}, expected more than 0, up to 1")
        if self.starts < 1:
            raise ValueError(f"starts is {self.starts!r}, expected 1 or more")

    def __call__(
        self, X: Array, y: Array, rng: np.random.Generator, warm: Hyper | None = None
    ) -> Hyper:
        """Make a full search.

        Args:
            X: Observed points, (t, D).
            y: Their standard scores, (t,).
            rng: Source of the random starts.
            warm: The previous fit, if there is one.
        """
        if len(X) > _MOST_FITTED:
            rows = rng.choice(len(X), _MOST_FITTED, replace=False)
            X, y = X[rows], y[rows]
        problem = _Problem(self, X, y)
        first = problem.centre if warm is None else problem.data.pack(warm)
        theta, _ = problem.climb([first, *problem.likely(rng)], first=0.2, gain=1e-2)
        return problem.data.unpack(theta)

    def again(self, X: Array, y: Array, hyper: Hyper) -> Hyper:
        """Make a local search; return the object ``hyper`` itself if the gain would be small."""
        problem = _Problem(self, X[-_MOST_FITTED:], y[-_MOST_FITTED:])
        start = problem.data.pack(hyper)
        theta, gained = problem.climb([start], first=0.1, gain=_WORTHWHILE)
        return problem.data.unpack(theta) if gained > _WORTHWHILE else hyper

    def default(self, dimensions: int) -> Hyper:
        """Return the hyper-parameters before any data: the medians of the priors."""
        problem = _Problem(self, np.zeros((1, dimensions)), np.zeros(1))
        return problem.data.unpack(problem.centre)


class _Problem:
    """The log posterior density of θ for one set of data, inside its box."""

    def __init__(self, fit: Fit, X: Array, y: Array) -> None:
        self.fit = fit
        self.data = Likelihood(X, y, fit.kernel, ard=fit.ard)
        n = self.data.D if fit.ard else 1
        priors = fit.priors or Priors(length_scale=LogNormal(0.3, _ANYWHERE))
        scale, signal, noise = priors.length_scale, priors.signal_variance, priors.noise_variance
        typical = scale.median * np.sqrt(self.data.D)
        self.centre = np.log([typical] * n + [signal.median, noise.median])
        self.spread = np.array([scale.spread] * n + [signal.spread, noise.spread])
        lowest, highest = [5e-3] * n + [1e-4, fit.noise_floor], [50.0] * n + [1e4, 10.0]
        self.box = np.log(lowest), np.log(highest)

    def __call__(self, thetas: Array) -> tuple[Array, Array]:
        values, gradients = map(np.array, zip(*map(self.data, thetas), strict=True))
        if self.fit.priors is None:
            return values, gradients
        z = (thetas - self.centre) / self.spread
        return values - 0.5 * (z * z).sum(axis=1), gradients - z / self.spread

    def likely(self, rng: np.random.Generator) -> list[Array]:
        n = self.fit.starts - 1
        if n < 1:
            return []
        draws = rng.standard_normal((_SCREENED * n, len(self.centre)))
        draws = np.clip(self.centre + self.spread * draws, *self.box)
        return list(draws[np.argsort(-self(draws)[0])[:n]])

    def climb(self, starts: list[Array], first: float, gain: float) -> tuple[Array, float]:
        """Return the best θ reached from ``starts``, and its gain over the first start."""
        densities: list[float] = []

        def density(thetas: Array, _: Rows) -> tuple[Array, Array]:
            values, gradients = self(thetas)
            densities.append(float(values[0]))
            return values, gradients

        X, unit = np.clip(np.array(starts), *self.box), np.ones(len(self.centre))
        thetas, values = ascend(
            density, X, *self.box, scale=unit, turns=40, gain=gain, first=first, restarts=1, hope=10
        )
        best = int(np.argmax(values))
        return thetas[best], float(values[best]) - densities[0]
