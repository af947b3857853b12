"""An agent's belief about its own objective: its scores in standard units, and a model of them.

======  =============================================================  ======
symbol  meaning                                                        shape
======  =============================================================  ======
y       scores told so far, to be maximised, in the user's units       (t,)
z       the same scores in standard units: mean 0, deviation 1         (t,)
======  =============================================================  ======

`Standardised` compresses low scores, because one very bad score would make all others look equal.

The belief is an exact GP up to ``exact_limit`` observations. With more, it is a Bayesian linear
regression over features of the GP's kernel, whose cost grows linearly. Between two fits of the
hyper-parameters, observations are added one at a time, so that a belief that was saved and loaded
(`SurrogateState`) equals the original in every bit.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fedbo.model.argmax import SampledFunction
from fedbo.model.features import Features
from fedbo.model.fit import Fit
from fedbo.model.gp import GP, Hyper, LeaveOneOut
from fedbo.model.kernel import Array, Rows
from fedbo.model.linear import Posterior, Regression

_FAR = 30.0  # robust deviations below the median: a lower score may be an outlier
_RARE = 0.05  # largest share of the scores that can be outliers
_FEATURES = 500  # features of the regression beyond the exact limit

Marginal = GP | Posterior  # both have predict, predict_with_gradient and length_scales


class Standardised:
    """Scores with mean 0 and standard deviation 1, low ones compressed; all 0 if all are equal.

    A score z standard deviations below the mean becomes −log(1 − z). The order of the scores is
    kept, and neither their unit nor their origin matters.

    >>> Standardised(np.array([-100.0, 0.0, 1.0, 2.0])).z.round(2).tolist()
    [-1.73, 0.53, 0.58, 0.63]
    >>> Standardised(np.array([1.0, 3.0])).unwarp(np.array([-1.0, 0.0, 1.0])).tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, y: Array) -> None:
        self.y = y
        self.z = y
        if len(y):
            z = _unit(_without_outliers(y))
            self.z = _unit(np.where(z < 0.0, -np.log1p(np.maximum(-z, 0.0)), z))

    def unwarp(self, z: Array) -> Array:
        """Return standard scores in the user's units.

        Between known scores it interpolates. Beyond the lowest and the highest one it continues the
        line from the median score to that end.
        """
        order = np.argsort(self.z)
        zs, ys = self.z[order], self.y[order]
        y = np.interp(z, zs, ys)
        middle = len(zs) // 2
        for end, beyond in ((-1, z > zs[-1]), (0, z < zs[0])):
            if zs[end] != zs[middle]:
                slope = (ys[end] - ys[middle]) / (zs[end] - zs[middle])
                y = np.where(beyond, ys[end] + slope * (z - zs[end]), y)
        return y


class Raw(Standardised):
    """Scores without any change: the standard units are the user's."""

    def __init__(self, y: Array) -> None:
        self.z = y

    def unwarp(self, z: Array) -> Array:
        return z


def _without_outliers(y: Array) -> Array:
    """Move outliers, a few scores far below the median, closer to it, and keep their order.

    Many low scores are no outliers: after convergence, all early scores lie far below the median.
    """
    largest = np.abs(y).max(axis=-1, keepdims=True)
    y = np.where(largest > 1e150, y / np.maximum(largest, 1.0), y)  # differences stay finite
    median = _median(y)
    far = _FAR * 1.4826 * _median(np.abs(y - median))
    outliers = np.count_nonzero(y < median - far, axis=-1, keepdims=True)
    moved = (outliers > 0) & (outliers <= max(1.0, _RARE * y.shape[-1])) & (far > 0.0)
    if not moved.any():
        return y
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # where far is 0 or tiny
        depth = np.maximum((median - y) / far, 1.0)
    return np.where(moved & (depth > 1.0), median - far * (2.0 - 1.0 / depth), y)


def _median(y: Array) -> Array:
    """Return the median; for a few numbers, `np.median` takes ten times as long."""
    ordered, t = np.sort(y, axis=-1), y.shape[-1]
    middle: Array = 0.5 * (ordered[..., (t - 1) // 2, None] + ordered[..., t // 2, None])
    return middle


def _unit(y: Array) -> Array:
    largest = np.abs(y).max(axis=-1, keepdims=True)
    y = y / np.where(largest > 0.0, largest, 1.0)  # squares of very large scores stay finite
    deviation = y - y.mean(axis=-1, keepdims=True)
    scale = deviation.std(axis=-1, keepdims=True)
    return np.where(scale > 1e-12, deviation / np.maximum(scale, 1e-12), 0.0)


class SurrogateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent models its own objective.

    Args:
        fit: How hyper-parameters are fitted: by a full search when the observations have grown by a
            quarter since the last one, and by a local search otherwise.
        refit_every: Fewest new observations between two fits (default 1).
        refit_percent: Smallest share of new observations between two fits, in percent (default 1).
        exact_limit: Most observations for an exact GP (default 1,000).
    """

    fit: Fit = Fit()
    refit_every: int = 1
    refit_percent: int = 1
    exact_limit: int = 1000

    def __post_init__(self) -> None:
        for name in ("refit_every", "refit_percent", "exact_limit"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value!r}, expected 1 or more")


class SurrogateState(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a belief that cannot be derived from the observations."""

    hyper: Hyper | None = None
    built: int = 0  # observations when hyper last changed and the model was built
    fitted: int = 0  # observations at the last fit
    searched: int = 0  # observations at the last full search
    seed: int = 0  # seed of the features beyond the exact limit


class Surrogate:
    """The belief about an objective on the unit cube.

    Args:
        settings: How the objective is modelled.
        dimensions: D, the dimensions of the cube.
        state: The state of a saved belief (default: a new belief).

    >>> belief = Surrogate(SurrogateSettings(), 1)
    >>> X, rng = np.array([[0.1], [0.5], [0.9]]), np.random.default_rng(0)
    >>> belief.update(X, np.array([-1.0, 1.0, 0.0]), rng)
    >>> int(np.argmax(belief.predict(X)[0]))
    1
    """

    def __init__(
        self, settings: SurrogateSettings, dimensions: int, state: SurrogateState | None = None
    ) -> None:
        self.settings, self.dimensions = settings, dimensions
        self.state = state or SurrogateState()
        self._model: GP | Regression | None = None
        self._X, self._y = np.empty((0, dimensions)), np.empty(0)

    @property
    def hyper(self) -> Hyper:
        return self.state.hyper or self.settings.fit.default(self.dimensions)

    def update(self, X: Array, y: Array, rng: np.random.Generator) -> None:
        """Learn from all observations.

        Args:
            X: Points (t, D), in the order in which they were observed.
            y: Their standard scores, (t,).
            rng: Source of randomness for the fit.
        """
        t, settings = len(X), self.settings
        patience = max(settings.refit_every, t * settings.refit_percent // 100)
        if t and t - self.state.fitted >= patience:
            self._fit(X, y, rng)
        if self._model is None:
            built = X[: self.state.built]
            if self._is_exact(len(built)):
                self._model = GP(self.hyper, built)
            else:
                self._model = self._regression(built, _FEATURES, self.state.seed)
        for x in X[len(self._model) :]:
            self._model.add(x[None])
        self._X, self._y = X, y
        if isinstance(self._model, GP):
            self._model.set_scores(y)

    def sample(
        self, rng: np.random.Generator, beta: float = 1.0, points: Array | None = None
    ) -> SampledFunction:
        """Draw f_t from the belief (see `GP.sample`)."""
        if isinstance(self._model, Regression):
            return self._model.posterior(self._y).sample(rng, beta)
        return self._exact().sample(rng, beta, points)

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Return the mean and variance (n,) at the rows of X, in standard units."""
        return self.marginal().predict(X)

    def marginal(self) -> Marginal:
        """Return the belief as an object that is fast to evaluate often."""
        if isinstance(self._model, Regression):
            return self._model.posterior(self._y)
        return self._exact()

    def leave_one_out(self, rows: Rows) -> LeaveOneOut:
        """Return the beliefs that each leave out one of the observations in ``rows``."""
        if isinstance(self._model, Regression):
            return self._model.leave_one_out(self._y, rows)
        return self._exact().leave_one_out(rows)

    def _is_exact(self, t: int) -> bool:
        return t <= self.settings.exact_limit

    def _fit(self, X: Array, y: Array, rng: np.random.Generator) -> None:
        t, last, fit = len(X), self.state, self.settings.fit
        if last.hyper is not None and t < 1.25 * last.searched:
            hyper, searched = fit.again(X, y, last.hyper), last.searched
        else:
            hyper, searched = fit(X, y, rng, last.hyper), t
        if hyper is last.hyper and self._is_exact(last.built) == self._is_exact(t):
            self.state = msgspec.structs.replace(last, fitted=t, searched=searched)
            return  # the model can stay
        seed = 0 if self._is_exact(t) else int(rng.integers(2**63))
        self.state = SurrogateState(hyper=hyper, built=t, fitted=t, searched=searched, seed=seed)
        self._model = None

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
