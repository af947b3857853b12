"""An agent's belief about its own objective, updated as scores come in.

The belief is an exact GP up to ``exact_limit`` observations. With more, it is a Bayesian linear
regression over features of the GP's kernel, whose cost grows linearly. Between two fits of the
hyper-parameters, observations are added one at a time, so that a belief that was saved and loaded
(`SurrogateState`) equals the original in every bit.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fedbo.model.features import Features
from fedbo.model.fit import Fit
from fedbo.model.function import SampledFunction
from fedbo.model.gp import GP, Hyper
from fedbo.model.kernel import Array
from fedbo.model.leave_one_out import LeaveOneOut, Rows
from fedbo.model.linear import Posterior, Regression

_FEATURES = 500  # features of the regression beyond the exact limit

Marginal = GP | Posterior  # both have predict, predict_with_gradient and length_scales


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

    def __repr__(self) -> str:
        return f"Surrogate({len(self._y)} observations, {self.hyper})"

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
            known = X[: self.state.built]
            if self._is_exact(len(known)):
                self._model = GP(self.hyper, known)
            else:
                self._model = self._regression(known, _FEATURES, self.state.seed)
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
