"""Families of synthetic tasks: tables of scores for hostile.py.

======  ==========================================================  ===============
symbol  meaning                                                     shape
======  ==========================================================  ===============
X       configurations, a scrambled Sobol sequence on the cube      (points, D)
Y       scores, higher is better                                    (tasks, points)
f       what the tasks of a family have in common                   function
g_n     what is specific to task n                                  function
======  ==========================================================  ===============

Task n of the family ``"similar"`` is f + 0.3 g_n, and task n of ``"unrelated"`` is g_n.

f and g_n are random functions of a GP. Its kernel differs from seed to seed: SE or Matérn 5/2, with
a length scale for each dimension of 0.2 to 1 times √D/2, but at least 0.1.
"""

from __future__ import annotations

import numpy as np

from fedbo.model.features import Features
from fedbo_paper.harness.intervals import Floats

FEATURES = 2000  # enough for a random function to be close to a draw from the GP
FAMILIES = {"similar": 0, "unrelated": 4}  # numbers of their random streams
OWN = 0.3  # size of g_n beside f


def make(
    family: str, D: int, seed: int = 0, *, tasks: int = 16, points: int = 500
) -> tuple[Floats, Floats]:
    """Create the tasks of a family.

    Args:
        family: "similar" or "unrelated".
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
    rng = np.random.default_rng([seed, D, FAMILIES[family]])
    scales = np.maximum(rng.uniform(0.2, 1.0, D) * np.sqrt(D) / 2, 0.1)
    kernel = str(rng.choice(["se", "matern52"]))
    phi = Features(D, FEATURES, kernel=kernel, length_scales=scales, seed=int(rng.integers(2**31)))

    def draw() -> Floats:
        return np.asarray(phi.function(rng.standard_normal(FEATURES))(X))

    if family == "unrelated":
        return X, np.array([draw() for _ in range(tasks)])
    f = draw()
    return X, np.array([f + OWN * draw() for _ in range(tasks)])
