"""The (ε, δ) of a method: what a whole run reveals about one agent's taking part.

Each round is a Gaussian mechanism of noise multiplier z with Poisson subsampling of rate q, and a
run composes all its rounds (`server` has the argument). The publication takes δ = 29^−1.1, below
1/N for its 29 agents, and composes by integer orders of Rényi differential privacy.
"""

from __future__ import annotations

import math
from importlib import import_module

from fedbo_paper.dp.methods import Method

#: The δ of the publication, and a δ that is usual elsewhere.
DELTAS = (29.0**-1.1, 1e-5)


def cost(method: Method, rounds: int, delta: float) -> float:
    """Return ε of a run; infinity without privacy, 0 if nothing leaves an agent.

    Args:
        method: The method.
        rounds: Number of rounds.
        delta: δ.

    Returns:
        ε by `fedbo.privacy.accounting`; NaN if that is not installed.
    """
    try:
        mechanisms = method.mechanisms(rounds)
        if not mechanisms:
            return math.inf if mechanisms is None else 0.0
        accounting = import_module("fedbo.privacy.accounting")
    except ModuleNotFoundError:
        return math.nan
    return float(accounting.epsilon(mechanisms, delta))
