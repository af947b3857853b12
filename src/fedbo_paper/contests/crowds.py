"""Crowds: a million agents with smooth random functions, and cheap histories of their trials.

=======  =========================================================================  ==========
symbol   meaning                                                                    shape
=======  =========================================================================  ==========
N, D     number of agents, dimensions of the unit cube                              scalars
J        number of waves                                                            scalar
s, b     frequencies of a Matérn-5/2 kernel, and phases; one draw for each crowd    (J, D), (J,)
a        amplitudes: a function is √(2/J) Σ a_j cos(s_j x + b_j)                    (J,)
trait    what an agent's function depends on: its cluster, or when it joined        (N,)
=======  =========================================================================  ==========

The waves have nothing to do with a federation's features, and with length scale 0.25 √D the
functions are rougher than these can express. An agent's amplitudes are those of its kind of task,
N(0, I), plus 0.3 times N(0, I) of its own:

crowd        kinds of task                                          the target is like
-----------  -----------------------------------------------------  -----------------------------
alike        one                                                    everybody
one in 10    10 unrelated ones, by lot                              one agent in 10
one in 200   200 unrelated ones, by lot                             one agent in 200
drifting     changes with the time from 0 to 1 at which an agent    the latest: its correlation
             joined, like a GP with length scale 0.2                with an agent at 0.8 is 0.6

A history is what an agent has after some optimisation: half of its trials are at random points, and
half are each near the best of 16 random points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import qmc

from fedbo.space.axis import Value

Floats = NDArray[np.float64]

#: How many kinds of task there are; 0 means that they drift.
CROWDS = {"alike": 1, "one in 10": 10, "one in 200": 200, "drifting": 0}
TRIALS = 10  # of an agent
BATCH = 16_384  # agents whose histories are made at a time

_WAVES = 64
_LENGTH_SCALE = 0.25  # times √D
_OWN = 0.3  # deviation of an agent from its kind of task
_DRIFT = 0.2  # length scale in time
_TIDES = 64  # waves in time
_POOL = 256  # random points that a batch shares, near which trials are
_CANDIDATES = 16  # of which a good trial is near the best
_NEAR = 0.05
_SCREENED, _CLIMBS = 2**14, 10  # to find the largest value of a function


class Waves:
    """Smooth functions on the unit cube.

    Args:
        D: Dimensions of the cube.
        rng: Draws frequencies and phases.
    """

    def __init__(self, D: int, rng: np.random.Generator) -> None:
        heavy = np.sqrt(5.0 / rng.chisquare(5.0, _WAVES))  # Student's t: Matérn-5/2
        scale = _LENGTH_SCALE * np.sqrt(D)
        self.s: Floats = rng.standard_normal((_WAVES, D)) * heavy[:, None] / scale
        self.b: Floats = rng.uniform(0.0, 2.0 * np.pi, _WAVES)

    def __call__(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return √(2/J) cos(s x + b), (n, J), at the rows of X, in their precision."""
        values: NDArray[Any] = X @ self.s.T.astype(X.dtype)
        values += self.b.astype(X.dtype)
        np.cos(values, out=values)
        values *= np.sqrt(2.0 / _WAVES).astype(X.dtype)
        return values


class Objective(NamedTuple):
    """The function of a target, scaled to mean 0 and deviation 1 over the cube."""

    waves: Waves
    a: Floats
    offset: float
    optimum: float

    def score(self, params: dict[str, Value]) -> float:
        """Return the value at these params."""
        x = np.array([params[name] for name in names(len(params))], dtype=np.float64)
        return float((self.waves(x[None]) @ self.a)[0] - self.offset)


class Crowd:
    """Agents of one crowd, and targets for them.

    Args:
        name: Which crowd, of `CROWDS`.
        seed: Seeds all of its functions and trials.
        size: N.
        D: Dimensions of the cube.
    """

    def __init__(self, name: str, seed: int, size: int, D: int) -> None:
        self.kinds, self.D, self._key = CROWDS[name], D, (seed, [*CROWDS].index(name), D)
        rng = self._rng(0)
        self.waves = Waves(D, rng)
        self._centres = rng.standard_normal((max(self.kinds, 1), _WAVES))
        self._tides = rng.standard_normal((_TIDES, _WAVES)) * np.sqrt(2.0 / _TIDES)
        self._tide_s, self._tide_b = rng.standard_normal(_TIDES) / _DRIFT, rng.random(_TIDES)
        lots = self._rng(1).random(size)
        #: The cluster of each agent, or when it joined, (N,).
        self.traits: Floats = np.floor(lots * self.kinds) if self.kinds else lots

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([*self._key, *key])

    def _amplitudes(self, traits: Floats, rng: np.random.Generator) -> Floats:
        if self.kinds:
            centres = self._centres[traits.astype(np.intp)]
        else:
            angles = traits[:, None] * self._tide_s + 2.0 * np.pi * self._tide_b
            centres = np.cos(angles) @ self._tides
        found: Floats = centres + _OWN * rng.standard_normal(centres.shape)
        return found

    def histories(self) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Yield points (n, t, D) and scores (n, t) of all agents, in batches, in float32."""
        for batch, i in enumerate(range(0, len(self.traits), BATCH)):
            rng = self._rng(2, batch)
            a = self._amplitudes(self.traits[i : i + BATCH], rng).astype(np.float32)
            n, good = len(a), TRIALS // 2
            pool = rng.random((_POOL, self.D), dtype=np.float32)
            at_pool = a @ self.waves(pool).T
            drawn = rng.integers(_POOL, size=(n, good * _CANDIDATES))
            scores = np.take_along_axis(at_pool, drawn, axis=1).reshape(n, good, _CANDIDATES)
            best = scores.argmax(axis=2) + _CANDIDATES * np.arange(good)
            found = pool[np.take_along_axis(drawn, best, axis=1)]
            found += _NEAR * rng.standard_normal(found.shape, dtype=np.float32)
            anywhere = rng.random((n, TRIALS - good, self.D), dtype=np.float32)
            X = np.concatenate([found.clip(0.0, 1.0), anywhere], axis=1)
            values = self.waves(X.reshape(n * TRIALS, self.D)).reshape(n, TRIALS, _WAVES)
            yield X, np.einsum("ntj,nj->nt", values, a)

    def target(self, number: int) -> tuple[float, Objective]:
        """Return the trait and the function of a target; the first ones differ in their kinds.

        Args:
            number: Which target, from 0.
        """
        trait = float(number % self.kinds) if self.kinds else 1.0
        a = self._amplitudes(np.array([trait]), self._rng(3, number))[0]
        cover = qmc.Sobol(self.D, seed=0).random(_SCREENED)
        values = self.waves(cover) @ a
        a = a / values.std()
        values /= values.std()

        def depth(x: Floats) -> float:
            return -float(self.waves(x[None])[0] @ a)

        starts, bounds = cover[np.argsort(-values)[:_CLIMBS]], [(0.0, 1.0)] * self.D
        highest = max(-float(minimize(depth, x, bounds=bounds).fun) for x in starts)
        offset = float(values.mean())
        return trait, Objective(self.waves, a, offset, highest - offset)


def names(D: int) -> list[str]:
    """Return the names of the parameters, in the order of the dimensions."""
    return [f"x{i}" for i in range(D)]
