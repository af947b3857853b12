"""Section 5.1 as statistics: what FTS claims over TS, on functions that no report looks at.

FTS and TS start from the same point, with the same seeds; messages are handed out once. A curve is
the simple regret after iterations 0 … T. With as few functions as fit here only large effects can
be told from luck: the small ones are left to ``fedbo reproduce fig1``.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fedbo import FTS, TS, Agent, Power
from fedbo.simulate import Party, simulate
from fedbo_paper.problems.synthetic import Array, Preset, Synthetic

pytestmark = pytest.mark.slow

TASKS = Synthetic().tasks()
FIRST, FUNCTIONS = 1000, 20
Peers = tuple[int, int, float, float]  # M, t_n, d_n, and the exponent of p_t


@cache
def run(target: int, preset: Preset, T: int, peers: Peers | None) -> Array:
    """Return the curve of one run: FTS if there are peers, TS otherwise."""
    M, t_n, d_n, exponent = peers or (1, 0, 0.0, 1.0)
    federation, settings = TASKS.federation(preset, M, seed=target), TASKS.settings(preset)
    objective = TASKS.objective(target, seed=0)
    policy = FTS(schedule=Power(exponent)) if peers else TS()
    agent = Agent(federation, policy, name="target", seed=target, settings=settings)
    parties = [Party(agent=agent, objective=objective, truth=objective.truth, optimum=1.0)]
    for n in range(TASKS.agents if peers else 0):
        peer = Agent(federation, TS(), name=f"peer-{n}", seed=n, settings=settings)
        for params, score in TASKS.observed(target, n, t_n, d_n, seed=0):
            peer.tell(params, score)
        parties.append(Party(agent=peer))
    table = simulate(parties, T)
    assert table["parameters_received"][-1] == (TASKS.agents * M if peers else 0)
    curve: Array = table["simple_regret"]
    return curve


def curves(preset: Preset, T: int, peers: Peers | None, functions: int = FUNCTIONS) -> Array:
    """Return the curves (functions, 1 + T)."""
    return np.array([run(FIRST + i, preset, T, peers) for i in range(functions)])


def near(M: int, t_n: int) -> Array:
    """Mean regret over iterations 1 … 20 with similar peers and p_t = 1 − 1/√t, by function."""
    means: Array = curves("paper", 20, (M, t_n, 0.02, 0.5))[:, 1:].mean(axis=1)
    return means


def test_runs_are_paired() -> None:
    starts = [curves("paper", 20, peers)[:, 0] for peers in (None, (100, 100, 0.02, 0.5))]
    np.testing.assert_array_equal(*starts)


@pytest.mark.parametrize(("preset", "functions"), [("paper", FUNCTIONS), ("default", 10)])
def test_peers_alike_more_than_halve_the_regret(preset: Preset, functions: int) -> None:
    """Figure 1b: t_n = 100, at iteration 10."""
    T = 20 if preset == "paper" else 10
    fts = curves(preset, T, (100, 100, 0.02, 0.5), functions)[:, 10]
    ts = curves(preset, T, None, functions)[:, 10]
    assert fts.mean() < 0.5 * ts.mean()


def test_more_observations_help_when_features_are_many() -> None:
    """Figures 1a and 1b, M = 100."""
    assert near(100, 100).mean() < near(100, 40).mean()


def test_more_features_help_when_observations_are_many() -> None:
    """Figure 1b."""
    assert near(100, 100).mean() < near(25, 100).mean()


def test_peers_unlike_cost_nothing_in_the_end() -> None:
    """Figure 1c: every d_n = 1.2, p_t = 1 − 1/t², at iteration 50."""
    fts, ts = curves("paper", 50, (100, 100, 1.2, 2.0)), curves("paper", 50, None)
    difference = (fts - ts)[:, -1]
    standard_error = difference.std(ddof=1) / np.sqrt(FUNCTIONS)
    assert difference.mean() <= max(0.01, 2 * standard_error)
