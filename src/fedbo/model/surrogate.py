"""An agent's belief about its own objective, kept up to date as scores come in.

Up to ``exact_limit`` observations it is an exact GP; beyond, Bayesian linear regression over
features of the GP's kernel, whose cost grows linearly. Between refits of the hyper-parameters both
grow by one observation at a time, so that a belief that was written down and read again (`state`)
is the same to the last bit.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from fedbo.model.features import Features
from fedbo.model.fit import Fit
from fedbo.model.function import SampledFunction
from fedbo.model.gp import GP, Hyper
from fedbo.model.kernel import Array
from fedbo.model.leave_one_out import LeaveOneOut, Rows
from fedbo.model.linear import Regression

_FEATURES = 500  # beyond the exact limit
_FAR = 30.0  # median deviations below the median: a score that is lower may be an accident
_RARE = 0.05  # of the scores: as many may be accidents


class Marginal(Protocol):
    """Mean and variance of a belief at points, in standard units, with their gradients."""

    @property
    def length_scales(self) -> Array:
        """How far one has to move in each dimension to see something new, (D,)."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n,) at the rows of X."""

    def predict_with_gradient(self, X: Array) -> tuple[Array, Array, Array, Array]:
        """The same, and their gradients (n, D)."""


class SurrogateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent models its own objective.

    ``refit_every`` new observations the hyper-parameters are fitted again (beyond 200 observations
    every hundredth part of them); a whole search is made whenever observations have grown by a
    quarter, a local one otherwise. With ``draw_features`` f_t is drawn from that many fresh random
    features, as the paper's experiments did, and not by Matheron's rule.
    """

    fit: Fit = Fit()
    refit_every: int = 1
    exact_limit: int = 1000
    draw_features: int | None = None

    def __post_init__(self) -> None:
        for name in ("refit_every", "exact_limit", "draw_features"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value!r}, expected 1 or more")


class SurrogateState(msgspec.Struct, frozen=True, kw_only=True):
    """What cannot be derived from the observations."""

    hyper: Hyper | None = None
    built: int = 0  # observations when hyper was last changed and all was factorised
    fitted: int = 0  # observations at the last fit
    searched: int = 0  # observations at the last whole search
    seed: int = 0  # of the features beyond the exact limit


class Surrogate:
    """The belief about an objective on the cube of ``dimensions``.

    >>> belief = Surrogate(SurrogateSettings(), 1)
    >>> X, rng = np.array([[0.1], [0.5], [0.9]]), np.random.default_rng(0)
    >>> belief.update(X, np.array([-1.0, 1.0, 0.0]), rng)
    >>> mu, var = belief.predict(X)
    >>> int(np.argmax(mu))
    1
    """

    def __init__(
        self,
        settings: SurrogateSettings,
        dimensions: int,
        state: SurrogateState | None = None,
    ) -> None:
        self.settings = settings
        self.dimensions = dimensions
        self.state = state or SurrogateState()
        self._model: GP | Regression | None = None
        self._X = np.empty((0, dimensions))
        self._y = np.empty(0)

    @property
    def hyper(self) -> Hyper:
        """The hyper-parameters in use."""
        return self.state.hyper or self.settings.fit.default(self.dimensions)

    def update(self, X: Array, y: Array, rng: np.random.Generator) -> None:
        """Learn all observations X (t, D) with standard scores y (t,); earlier ones come first."""
        t = len(X)
        if t and t - self.state.fitted >= self._patience(t):
            self._fit(X, y, rng)
        if self._model is None:
            self._model = self._build(X[: self.state.built])
        for x in X[len(self._model) :]:
            self._model.add(x[None])
        self._X, self._y = X, y
        if isinstance(self._model, GP):
            self._model.set_scores(y)

    def sample(
        self, rng: np.random.Generator, beta: float = 1.0, points: Array | None = None
    ) -> SampledFunction:
        """f_t, a draw from the belief, exact and joint at ``points`` if these are given."""
        if self.settings.draw_features is not None:
            seed = int(rng.integers(2**63))
            regression = self._regression(self._X, self.settings.draw_features, seed)
            return regression.posterior(self._y).sample(rng, beta)
        if isinstance(self._model, Regression):
            return self._model.posterior(self._y).sample(rng, beta)
        return self._exact().sample(rng, beta, points)

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of the objective, in standard units, at the rows of X."""
        return self.marginal().predict(X)

    def marginal(self) -> Marginal:
        """Mean and variance as functions that can be evaluated often; fixed as they stand now."""
        if isinstance(self._model, Regression):
            return self._model.posterior(self._y)
        return self._exact()

    def leave_one_out(self, rows: Rows) -> LeaveOneOut:
        """The belief without one of the observations in ``rows``, for each of them."""
        if isinstance(self._model, Regression):
            return self._model.leave_one_out(self._y, rows)
        return self._exact().leave_one_out(rows)

    def _is_exact(self, t: int) -> bool:
        return t <= self.settings.exact_limit

    def _patience(self, t: int) -> int:
        return max(self.settings.refit_every, t // 100)

    def _fit(self, X: Array, y: Array, rng: np.random.Generator) -> None:
        t, last, fit = len(X), self.state, self.settings.fit
        if last.hyper is not None and t < 1.25 * last.searched:
            hyper, searched = fit.again(X, y, last.hyper), last.searched
        else:
            hyper, searched = fit(X, y, rng, last.hyper), t
        if hyper is last.hyper and self._is_exact(last.built) == self._is_exact(t):
            self.state = msgspec.structs.replace(last, fitted=t, searched=searched)
            return  # nothing to build anew
        seed = 0 if self._is_exact(t) else int(rng.integers(2**63))
        self.state = SurrogateState(hyper=hyper, built=t, fitted=t, searched=searched, seed=seed)
        self._model = None

    def _build(self, X: Array) -> GP | Regression:
        if self._is_exact(len(X)):
            return GP(self.hyper, X)
        return self._regression(X, _FEATURES, self.state.seed)

    def _exact(self) -> GP:
        return self._model if isinstance(self._model, GP) else GP(self.hyper, self._X)

    def _regression(self, X: Array, M: int, seed: int) -> Regression:
        features = Features(
            self.dimensions,
            M,
            kernel=self.hyper.kernel,
            length_scales=self.hyper.length_scales,
            seed=seed,
            signal_variance=self.hyper.signal_variance,
        )
        regression = Regression(features, self.hyper.noise_variance)
        regression.add(X)
        return regression


def standardised(y: Array) -> Array:
    """Scores with mean 0 and standard deviation 1, low ones compressed; all 0 if all are the same.

    Where scores are bad, how bad they are says little about where they are good; but one that is
    very bad would leave all others almost alike. So z below the mean becomes −log(1 − z). The order
    of scores stays, and neither their unit nor their zero matters.

    >>> standardised(np.array([1.0, 3.0])).round(12).tolist(), standardised(np.ones(1)).tolist()
    ([-1.0, 1.0], [0.0])
    >>> standardised(np.array([-100.0, 0.0, 1.0, 2.0])).round(2).tolist()
    [-1.73, 0.53, 0.58, 0.63]
    """
    z = _unit(_tamed(y))
    return _unit(np.where(z < 0.0, -np.log1p(np.maximum(-z, 0.0)), z))


def _tamed(y: Array) -> Array:
    """y, with accidents brought nearer, in their order: few scores, far below the median.

    Where many lie there an optimiser has converged, and the others are what it learnt.
    """
    if not len(y):
        return y
    largest = np.abs(y).max()
    y = y / largest if largest > 1e150 else y  # so that differences stay finite
    median = float(np.median(y))
    far = _FAR * 1.4826 * float(np.median(np.abs(y - median)))
    if not 0 < np.count_nonzero(y < median - far) <= max(1.0, _RARE * len(y)) or far <= 0.0:
        return y
    depth = np.maximum((median - y) / far, 1.0)
    return np.where(depth > 1.0, median - far * (2.0 - 1.0 / depth), y)


def _unit(y: Array) -> Array:
    if not len(y):
        return y
    y = y / (np.abs(y).max() or 1.0)  # so that squares of very large scores stay finite
    deviation = y - y.mean()
    scale = float(deviation.std())
    return deviation / scale if scale > 1e-12 else np.zeros_like(y)
