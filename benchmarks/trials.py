"""The trials that the benchmarks tell: a smooth random function on the unit cube."""

from __future__ import annotations

import numpy as np


def smooth_trials(D: int, n: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """n points and values of a sum of random cosines, in the manner of a GP sample."""
    rng = np.random.default_rng(D if seed is None else [D, seed])
    X = rng.random((n, D))
    frequencies = rng.standard_normal((100, D)) / 0.5
    phases = rng.uniform(0, 2 * np.pi, 100)
    return X, np.cos(X @ frequencies.T + phases) @ rng.standard_normal(100) / np.sqrt(50)
