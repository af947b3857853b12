"""The trials that the benchmarks tell: a smooth random function on the unit cube."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def smooth_function(rng: np.random.Generator, D: int) -> Callable[[np.ndarray], np.ndarray]:
    """A sum of random cosines on the rows of X, in the manner of a GP sample."""
    frequencies = rng.standard_normal((100, D)) / 0.5
    phases = rng.uniform(0, 2 * np.pi, 100)
    weights = rng.standard_normal(100) / np.sqrt(50)
    return lambda X: np.cos(X @ frequencies.T + phases) @ weights


def smooth_trials(D: int, n: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """n random points and the values of a smooth random function there."""
    rng = np.random.default_rng(D if seed is None else [D, seed])
    X = rng.random((n, D))
    return X, smooth_function(rng, D)(X)
