"""Families of synthetic tasks: tables of scores, for choosing defaults and for hostile.py.

======  ==========================================================  ===============
symbol  meaning                                                     shape
======  ==========================================================  ===============
X       configurations, a scrambled Sobol sequence on the cube      (points, D)
Y       scores, higher is better                                    (tasks, points)
f       what the tasks of a family have in common                   function
g_n     what is specific to task n                                  function
======  ==========================================================  ===============

==========  ================================================================================
family      task n
==========  ================================================================================
similar     f + 0.3 g_n
shifted     f, shifted by a random vector of about 0.1 in each dimension, + 0.1 g_n
scaled      a_n h_n(f + 0.3 g_n) + b_n: scales over four orders of magnitude, any offset, and a
            monotone h_n: convex, concave (scores pile up at the top) or linear
opposed     f + 0.3 g_n, and every other task (n = 1, 3, …) negated: half of a target's peers
            help, half mislead
unrelated   g_n
==========  ================================================================================

f and g_n are random functions of a GP. Its kernel differs from seed to seed: SE or Matérn 5/2, with
a length scale for each dimension of 0.2 to 1 times √D/2, but at least 0.1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbo.model.features import Features
from fedbo_paper.harness.intervals import Floats

Function = Callable[[Floats], Floats]

FEATURES = 2000  # enough for a random function to be close to a draw from the GP
OWN = 0.3  # size of g_n
SHIFT = 0.1


class Landscape:
    """A source of random functions with one random kernel."""

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


def similar(X: Floats, tasks: int, rng: np.random.Generator) -> Floats:
    land = Landscape(X.shape[1], rng)
    f = land.function()(X)
    return np.array([f + OWN * land.function()(X) for _ in range(tasks)])


def shifted(X: Floats, tasks: int, rng: np.random.Generator) -> Floats:
    land = Landscape(X.shape[1], rng)
    f = land.function()
    moves = SHIFT * rng.standard_normal((tasks, X.shape[1]))
    return np.array([f(X + move) + 0.1 * land.function()(X) for move in moves])


def scaled(X: Floats, tasks: int, rng: np.random.Generator) -> Floats:
    bends: list[Function] = [np.expm1, lambda z: -np.expm1(-z), lambda z: z]
    rows = []
    for y in similar(X, tasks, rng):
        bend = bends[rng.integers(len(bends))]
        size, offset = 10.0 ** rng.uniform(-2, 2), 10.0 * rng.standard_normal()
        rows.append(size * (bend((y - y.mean()) / y.std()) + offset))
    return np.array(rows)


def opposed(X: Floats, tasks: int, rng: np.random.Generator) -> Floats:
    signs = np.where(np.arange(tasks) % 2, -1.0, 1.0)
    Y: Floats = signs[:, None] * similar(X, tasks, rng)
    return Y


def unrelated(X: Floats, tasks: int, rng: np.random.Generator) -> Floats:
    land = Landscape(X.shape[1], rng)
    return np.array([land.function()(X) for _ in range(tasks)])


FAMILIES: dict[str, Callable[[Floats, int, np.random.Generator], Floats]] = {
    "similar": similar,
    "shifted": shifted,
    "scaled": scaled,
    "opposed": opposed,
    "unrelated": unrelated,
}


def make(
    family: str, D: int, seed: int = 0, *, tasks: int = 16, points: int = 500
) -> tuple[Floats, Floats]:
    """Create the tasks of a family.

    Args:
        family: Name of the family.
        D: Number of dimensions.
        seed: Seed of everything random. X depends on D and the seed only.
        tasks: Number of tasks.
        points: Number of configurations.

    Returns:
        X (points, D) and Y (tasks, points).

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
