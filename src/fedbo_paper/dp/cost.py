"""The (ε, δ) of a method: what a whole run reveals about one agent's taking part.

Each round of DP-FTS-DE is a Gaussian mechanism of noise multiplier z with Poisson subsampling of
rate q, and a run composes all its rounds (`server` has the argument). A single private release is
accounted as what it is (`one_release`). The publication takes δ = 29^−1.1, below 1/N for its 29
agents, and composes by integer orders of Rényi differential privacy; here privacy loss
distributions are composed, which gives a smaller ε for the same runs.
"""

from __future__ import annotations

import math
from functools import cache

from fedbo.privacy import epsilon
from fedbo_paper.dp.methods import Method
from fedbo_paper.dp.one_release import DELTA

#: The δ of the publication, and a δ that is usual elsewhere.
DELTAS = (DELTA, 1e-5)


@cache
def cost(method: Method, rounds: int, delta: float) -> float:
    """Return ε of a run; infinity without privacy, 0 if nothing leaves an agent.

    Args:
        method: The method.
        rounds: Number of rounds.
        delta: δ.

    Raises:
        ModuleNotFoundError: The package dp-accounting is not installed.
    """
    mechanisms = method.mechanisms(rounds)
    if mechanisms is None:
        return math.inf
    return epsilon(mechanisms, delta) if mechanisms else 0.0
