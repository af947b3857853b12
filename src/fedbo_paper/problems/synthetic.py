"""The synthetic functions and peers of section 5.1 (appendix D), and what agents know about them.

=======  ===========================================================================  ==========
symbol   meaning                                                                      shape
=======  ===========================================================================  ==========
f        target's objective: a GP draw on equidistant points, scaled to [0, 1]        (size,)
g_n      peer n's objective: f + d_n or f − d_n, by a coin toss at each point         (size,)
t_n      observations of each peer, at random points                                  scalar
σ²       ``noise_variance`` of every observation of peers and target                  scalar
=======  ===========================================================================  ==========

A function depends on its index only, a peer's coins on the function and n, and observations also on
a seed. The observations of t_n = 40 are the first 40 of t_n = 100, and d_n changes neither coins
nor noise. So runs that differ only in t_n, d_n or M are paired.

The paper does not say what its agents know about f. Preset ``"paper"`` is the simplest reading: as
in the theory, agents know the kernel of f (SE, signal variance 1) and σ²; nothing is fitted; scores
are neither centred nor scaled; f_t is an exact draw on the points. Public code of the same first
author for synthetic games (R2-B2, 2020) with the same kind of functions does this too: the true
length scale, raw scores, and GPy's default signal variance of 1. Preset ``"default"`` uses fedbo's
defaults: hyper-parameters are fitted to standardised scores, and only the features have f's length
scale.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.federation import Federation
from fedbo.model.fit import Fit, LogNormal, Priors
from fedbo.model.surrogate import SurrogateSettings
from fedbo.space import Float, Space
from fedbo.space.axis import Value
from fedbo_paper.preset import PaperSettings

Array = NDArray[np.float64]
Preset = Literal["paper", "default"]
Params = dict[str, Value]

AGENTS = 50  # N

_FUNCTION, _COINS, _OBSERVATIONS, _NOISE = range(4)  # random streams
_LONGEST = 0.15  # length scale; beyond it, the ends of [0, 1] are correlated: see _amplitudes
_NEVER = 2**31  # observations before hyper-parameters are fitted


class Synthetic(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="synthetic"):
    """Functions drawn from a GP with an SE kernel, and peers with almost the same functions.

    Args:
        size: Number of points.
        length_scale: Length scale of the kernel.
        noise_variance: σ².

    >>> tasks = Synthetic().tasks()
    >>> objective = tasks.objective(target=0, seed=0)
    >>> best = max(tasks.points, key=objective.truth)
    >>> objective.truth(best), objective.optimum
    (1.0, 1.0)
    >>> len(tasks.observed(target=0, n=7, t_n=40, d_n=0.02, seed=0))
    40
    """

    size: int = 1000
    length_scale: Annotated[float, msgspec.Meta(gt=0.0, le=_LONGEST)] = 0.03
    noise_variance: float = 0.01

    def tasks(self, folder: Path | None = None) -> SyntheticTasks:
        """Create the tasks; they need no data, so ``folder`` is ignored."""
        return SyntheticTasks(self)


class SyntheticTasks:
    """All functions by index, each with N peers, on one discrete space."""

    agents = AGENTS

    def __init__(self, problem: Synthetic) -> None:
        self.problem = problem
        self.points: list[Params] = [{"x": x} for x in np.linspace(0, 1, problem.size).tolist()]
        self.space = Space({"x": Float(0, 1)}, points=self.points)
        self._functions: dict[int, Array] = {}  # the last one that was used

    def function(self, target: int) -> Array:
        """Return f of this index at all points, scaled to [0, 1]; read-only."""
        if target not in self._functions:  # all N peers of a run use the same function
            f = self.unscaled(target)
            f -= f.min()
            f /= f.max()
            f.setflags(write=False)
            self._functions = {target: f}
        return self._functions[target]

    def unscaled(self, target: int) -> Array:
        """Draw f from the GP."""
        rng = np.random.default_rng([_FUNCTION, target])
        real, imaginary = rng.standard_normal((2, len(self._amplitudes)))
        waves = np.fft.fft(self._amplitudes * (real + 1j * imaginary))
        return np.ascontiguousarray(waves.real[: self.problem.size])

    @cached_property
    def _amplitudes(self) -> Array:
        """The amplitudes (2·size,) of a draw's waves: roots of the kernel's spectrum.

        The points lie on a circle that is twice as long as [0, 1], so their distances are those on
        the line. No large matrix has to be factorised. The draw is exact if the kernel is 0 at half
        of the circle's length.
        """
        steps = np.arange(2 * self.problem.size)
        gaps = np.minimum(steps, len(steps) - steps) / (self.problem.size - 1)
        kernel = np.exp(-0.5 * (gaps / self.problem.length_scale) ** 2)
        spectrum = np.maximum(np.fft.fft(kernel).real, 0.0)
        return np.sqrt(spectrum / len(steps))

    def peer_function(self, target: int, n: int, d_n: float) -> Array:
        """Return g_n at all points."""
        coins = np.random.default_rng([_COINS, target, n]).integers(2, size=self.problem.size)
        return self.function(target) + np.where(coins == 1, d_n, -d_n)

    def objective(self, target: int, seed: int) -> Objective:
        """Create the target's objective: f of this index, with noise from ``seed``."""
        rng = np.random.default_rng([_NOISE, target, seed])
        return Objective(self.function(target), self.problem.noise_variance, rng)

    def observed(
        self, target: int, n: int, t_n: int, d_n: float, seed: int
    ) -> list[tuple[Params, float]]:
        """Draw the observations of peer n: g_n with noise at t_n different random points."""
        if not 0 <= t_n <= self.problem.size:
            raise ValueError(
                f"t_n is {t_n}, expected 0 to {self.problem.size}: points are observed once"
            )
        rng = np.random.default_rng([_OBSERVATIONS, target, n, seed])
        rows = rng.permutation(self.problem.size)[:t_n]
        noise = np.sqrt(self.problem.noise_variance) * rng.standard_normal(t_n)
        scores = self.peer_function(target, n, d_n)[rows] + noise
        return [(self.points[i], y) for i, y in zip(rows.tolist(), scores.tolist(), strict=True)]

    def federation(self, preset: Preset, M: int, seed: int) -> Federation:
        """Create a federation with M features, drawn from ``seed``.

        With the same seed, the features of M = 25 are the first 25 of M = 100.
        """
        length_scale = self.problem.length_scale
        shared: Any = {"features": M, "seed": seed, "length_scale": length_scale, "kind": "weights"}
        if preset == "paper":
            shared["noise_variance"] = self.problem.noise_variance
        return Federation(self.space, **shared)

    def settings(self, preset: Preset) -> PaperSettings:
        """Create the settings of the target and of every peer: see the top of this module."""
        if preset == "default":
            return PaperSettings(n_initial=1, design="random")
        true = Priors(
            length_scale=LogNormal(self.problem.length_scale, 1.0),
            signal_variance=LogNormal(1.0, 1.0),
            noise_variance=LogNormal(self.problem.noise_variance, 1.0),
        )
        surrogate = SurrogateSettings(fit=Fit(kernel="se", priors=true), refit_every=_NEVER)
        return PaperSettings(
            n_initial=1,
            design="random",
            surrogate=surrogate,
            raw_scores=True,
            exact_draws=True,
            repeats="allow",
            random_repeats=True,
        )


class Objective:
    """f with noise; each call draws new noise. ``truth`` is f without noise."""

    optimum = 1.0

    def __init__(self, f: Array, noise_variance: float, rng: np.random.Generator) -> None:
        self.f = f
        self._scale = float(np.sqrt(noise_variance))
        self._rng = rng

    def truth(self, params: Params) -> float:
        """Return f at the point nearest to ``params``."""
        x = params["x"]
        if not isinstance(x, int | float) or not 0 <= x <= 1:
            raise ValueError(f"x is {x!r}, expected a number from 0 to 1")
        return float(self.f[round(x * (len(self.f) - 1))])

    def __call__(self, params: Params) -> float:
        return self.truth(params) + self._scale * float(self._rng.standard_normal())
