"""The settings of the paper's experiments: a federation, an agent, and the options they need.

The library has no use for these options: DIRECT, random initial points, raw scores, a random point
in place of a repeated one, and messages without the initial points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from fedbo.agent import Agent, Settings, Trial
from fedbo.federation import Federation
from fedbo.message import Kind
from fedbo.model.argmax import Domain, SampledFunction, Taken, argmax
from fedbo.model.fit import Fit
from fedbo.model.gp import GP
from fedbo.model.kernel import Array
from fedbo.model.surrogate import Raw, Standardised, Surrogate, SurrogateSettings, SurrogateState
from fedbo.policy import FTS, Policy
from fedbo.policy.base import Power
from fedbo.policy.target import Maximiser
from fedbo.space import Parameter, Part, Space
from fedbo.space.axis import Value

Design = Literal["sobol", "random"]

_EVALUATIONS = 1000  # of DIRECT; the paper gives its time only, .76 s


class FeatureDraws(Surrogate):
    """The belief of the authors' code: its fits come in whole searches at fixed times.

    It is fitted to the initial points, and again after every 5 queries (``refit_every``), each time
    by a search that forgets the fit before. Its draws come from fresh random features instead of
    Matheron's rule.

    Args:
        settings, dimensions, state: As of `Surrogate`.
        features: Number of features of a draw.
        first: Number of initial points.
    """

    def __init__(
        self,
        settings: SurrogateSettings,
        dimensions: int,
        state: SurrogateState | None = None,
        *,
        features: int,
        first: int,
    ) -> None:
        super().__init__(settings, dimensions, state)
        self._features, self._first = features, first

    def update(self, X: Array, y: Array, rng: np.random.Generator) -> None:
        t = len(X)
        due = t - (t - self._first) % self.settings.refit_every if t > self._first else t
        if due > self.state.fitted:
            self.state = SurrogateState()
            self._fit(X[:due], y[:due], rng)
        super().update(X, y, rng)

    def sample(
        self, rng: np.random.Generator, beta: float = 1.0, points: Array | None = None
    ) -> SampledFunction:
        seed = int(rng.integers(2**63))
        regression = self._regression(self._X, self._features, seed)
        return regression.posterior(self._y).sample(rng, beta)


class ExactDraws(Surrogate):
    """A belief whose draws on listed points are exact, however many there are.

    It suits a GP that is never fitted again: the factor of the points' covariance is kept.
    """

    def sample(
        self, rng: np.random.Generator, beta: float = 1.0, points: Array | None = None
    ) -> SampledFunction:
        if points is None or not isinstance(self._model, GP):
            return super().sample(rng, beta, points)
        return self._model.sample_exactly(rng, beta, points)


class PaperSettings(Settings, frozen=True, kw_only=True):
    """Settings of an agent, with the options of the paper's experiments.

    Args:
        design: Initial points from a Sobol sequence, or uniformly random ones.
        direct: Whether functions are maximised by DIRECT (`scipy.optimize.direct`).
        raw_scores: Whether models and messages are made of scores as they are.
        random_repeats: Whether a query at exactly the point of an earlier trial is replaced by a
            random point. It needs ``repeats="allow"``: the library would avoid close points too.
        initial_in_messages: Whether messages draw on the initial points too.
        draw_features: Draw f_t from so many fresh random features, and fit as `FeatureDraws` does;
            None is the library's way.
        exact_draws: Whether draws on listed points are exact, however many there are.

    >>> PAPER.direct, PAPER.draw_features
    (True, 200)
    """

    design: Design = "sobol"
    direct: bool = False
    raw_scores: bool = False
    random_repeats: bool = False
    initial_in_messages: bool = True
    draw_features: int | None = None
    exact_draws: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.random_repeats and self.repeats != "allow":
            raise ValueError(
                f"repeats is {self.repeats!r} with random_repeats, expected 'allow': only then is "
                "every other query the policy's own"
            )

    def model(self, dimensions: int, state: SurrogateState | None = None) -> Surrogate:
        if self.exact_draws:
            return ExactDraws(self.surrogate, dimensions, state)
        if self.draw_features is None:
            return super().model(dimensions, state)
        draws = {"features": self.draw_features, "first": self.n_initial}
        return FeatureDraws(self.surrogate, dimensions, state, **draws)

    def design_point(self, space: Space | Part, i: int, rng: np.random.Generator) -> Array:
        if self.design == "sobol":
            return super().design_point(space, i, rng)
        point: Array = space.sample(rng, i + 1)[i]
        return point

    def scores(self, y: Array) -> Standardised:
        return Raw(y) if self.raw_scores else super().scores(y)

    @property
    def maximiser(self) -> Maximiser:
        return argmax_direct if self.direct else super().maximiser

    def revise(
        self, x: Array, tried: Array, space: Space | Part, rng: np.random.Generator
    ) -> Array:
        if self.random_repeats and _is_repeated(x, tried, space):
            [x] = space.sample(rng, 1)
        return x

    def informs(self, trial: Trial) -> bool:
        return self.initial_in_messages or trial.source != "initial"


#: The settings of the paper's real-world experiments (appendix D, and its authors' code): an
#: isotropic SE kernel, fitted by maximum likelihood from 10 starts after the 3 initial points and
#: then every 5 queries with almost no noise floor, f_t from 200 fresh features, DIRECT, raw scores,
#: messages from the 50 queries, and a random point in place of an exact repeat.
PAPER = PaperSettings(
    n_initial=3,
    design="random",
    surrogate=SurrogateSettings(
        fit=Fit(kernel="se", ard=False, priors=None, noise_floor=1e-10, starts=10),
        refit_every=5,
    ),
    draw_features=200,
    raw_scores=True,
    direct=True,
    repeats="allow",
    random_repeats=True,
    initial_in_messages=False,
)


def paper_federation(
    space: Space | Mapping[str, Parameter],
    features: int = 100,
    seed: int = 0,
    kind: Kind = "weights",
) -> Federation:
    """Return a federation with the settings of the paper's experiments (appendix D).

    >>> from fedbo.space import Float
    >>> paper_federation({"C": Float(0, 1)}).noise_variance
    1e-06
    """
    return Federation(
        space, features=features, seed=seed, length_scale=0.01, noise_variance=1e-6, kind=kind
    )


def paper_agent(
    federation: Federation,
    policy: Policy | None = None,
    *,
    name: str | None = None,
    seed: int | None = None,
    initial: Sequence[Mapping[str, Value]] | None = None,
) -> Agent:
    """Return an agent with the settings of the paper's real-world experiments.

    Args:
        federation: A federation of `paper_federation`.
        policy: FTS with p_t = 1 − 1/t² by default; the defaults of `RGPE` and `TAF` are the
            paper's.
        name, seed, initial: See `fedbo.Agent`.
    """
    policy = FTS(schedule=Power(2)) if policy is None else policy
    return Agent(federation, policy, name=name, seed=seed, settings=PAPER, initial=initial)


def argmax_direct(
    function: SampledFunction,
    domain: Domain,
    near: Array | None = None,
    taken: Taken | None = None,
) -> Array:
    """Maximise by DIRECT with 1,000 evaluations; the arguments are those of `argmax`.

    DIRECT has one result, so ``near`` and ``taken`` have no effect unless points are listed.
    """
    from scipy.optimize import Bounds, direct

    if domain.points is not None:
        return argmax(function, domain, near, taken)

    def negative(x: Array) -> float:
        return -float(function(x[None])[0])

    result = direct(negative, Bounds(*domain.box), maxfun=_EVALUATIONS, maxiter=10_000)
    x: Array = domain.snap(np.asarray(result.x, dtype=np.float64)[None])[0]
    return x


def _is_repeated(x: Array, tried: Array, space: Space | Part) -> bool:
    whole = space.space if isinstance(space, Part) else space
    point = whole.encode(whole.decode(x))
    return bool(len(tried)) and bool((tried == point).all(axis=1).any())
