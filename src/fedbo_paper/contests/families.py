"""Families of tasks that are made up: tables of scores on which defaults may be chosen.

======  ==========================================================  ===============
symbol  meaning                                                     shape
======  ==========================================================  ===============
X       configurations, a scrambled Sobol sequence on the cube      (points, D)
Y       scores, higher is better                                    (tasks, points)
f       what the tasks of a family have in common                   function
g_n     what is task n's own                                        function
======  ==========================================================  ===============

==========  ================================================================================
family      task n
==========  ================================================================================
similar     f + 0.3 g_n
shifted     f moved by a random vector, 0.1 long in each dimension, + 0.1 g_n
scaled      a_n h_n(f + 0.3 g_n) + b_n: sizes over four orders of magnitude, any offset, and h_n
            monotone: bent upwards, bent downwards (scores pile up at the top), or straight
opposed     f + 0.3 g_n, and every other task (n = 1, 3, …) negated: half of anybody's peers
            are of use, half mislead
unrelated   g_n
==========  ================================================================================

f and g_n are random functions with the covariance of a kernel, which differs from seed to seed: SE
or Matérn 5/2, with a length scale for each dimension between 0.2 and 1 times √D/2 (none under 0.1).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbo.model.features import Features

Array = np.ndarray
Function = Callable[[Array], Array]

FEATURES = 2000  # so many that a random function of them is close to a draw from the GP
OWN = 0.3  # size of a task's own part beside what is common
SHIFT = 0.1


class Landscape:
    """Random functions of one kernel, as many as are asked for, the same for the same seed."""

    def __init__(self, D: int, rng: np.random.Generator) -> None:
        self._rng = rng
        scales = np.maximum(rng.uniform(0.2, 1.0, D) * np.sqrt(D) / 2, 0.1)
        self._phi = Features(
            D,
            FEATURES,
            kernel=str(rng.choice(["se", "matern52"])),
            length_scales=scales,
            seed=int(rng.integers(2**31)),
        )

    def function(self) -> Function:
        return self._phi.function(self._rng.standard_normal(FEATURES))


def similar(X: Array, tasks: int, rng: np.random.Generator) -> Array:
    land = Landscape(X.shape[1], rng)
    f = land.function()(X)
    return np.array([f + OWN * land.function()(X) for _ in range(tasks)])


def shifted(X: Array, tasks: int, rng: np.random.Generator) -> Array:
    land = Landscape(X.shape[1], rng)
    f = land.function()
    moves = SHIFT * rng.standard_normal((tasks, X.shape[1]))
    return np.array([f(X + move) + 0.1 * land.function()(X) for move in moves])


def scaled(X: Array, tasks: int, rng: np.random.Generator) -> Array:
    bends: list[Function] = [np.expm1, lambda z: -np.expm1(-z), lambda z: z]
    rows = []
    for y in similar(X, tasks, rng):
        bend = bends[rng.integers(len(bends))]
        size, offset = 10.0 ** rng.uniform(-2, 2), 10.0 * rng.standard_normal()
        rows.append(size * (bend((y - y.mean()) / y.std()) + offset))
    return np.array(rows)


def opposed(X: Array, tasks: int, rng: np.random.Generator) -> Array:
    signs = np.where(np.arange(tasks) % 2, -1.0, 1.0)
    return signs[:, None] * similar(X, tasks, rng)


def unrelated(X: Array, tasks: int, rng: np.random.Generator) -> Array:
    land = Landscape(X.shape[1], rng)
    return np.array([land.function()(X) for _ in range(tasks)])


FAMILIES: dict[str, Callable[[Array, int, np.random.Generator], Array]] = {
    "similar": similar,
    "shifted": shifted,
    "scaled": scaled,
    "opposed": opposed,
    "unrelated": unrelated,
}


def make(
    family: str, D: int, seed: int = 0, *, tasks: int = 16, points: int = 500
) -> tuple[Array, Array]:
    """X (points, D) and Y (tasks, points) of a family; X is the same for all of one D and seed.

    >>> X, Y = make("similar", 2, seed=0, tasks=5)
    >>> X.shape, Y.shape, bool(np.corrcoef(Y).min() > 0.5)
    ((500, 2), (5, 500), True)
    """
    from scipy.stats.qmc import Sobol  # slow to import

    if family not in FAMILIES:
        raise ValueError(f"family is {family!r}, expected one of {', '.join(FAMILIES)}")
    bits = (points - 1).bit_length()
    X = Sobol(D, rng=np.random.default_rng([seed, D])).random_base2(bits)[:points]
    key = [seed, D, [*FAMILIES].index(family)]
    return X, FAMILIES[family](X, tasks, np.random.default_rng(key))
