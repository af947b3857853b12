"""The paper's synthetic setting (section 5.1, appendix D) as statistics: what FTS claims over TS.

=======  ==================================================================================
symbol   meaning
=======  ==================================================================================
f        target's objective: a GP draw on 1,000 points of [0, 1], scaled into [0, 1]
g_n      peer n's objective: f(x) + d_n or f(x) − d_n, by the toss of a coin at each point
t_n      observations of each peer, at random points; all have noise of variance 0.01
N, M     number of peers and of features
p_t      probability of the target's own draw in query t
=======  ==================================================================================

FTS and TS start from the same point, with the same seed; messages are handed out once.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from fedbo import FTS, TS, Agent, Federation, Float, Policy, Power, Settings, Space
from fedbo.model.fit import Fit, LogNormal, Priors
from fedbo.model.surrogate import SurrogateSettings
from fedbo.simulate import Party, simulate

Array = NDArray[np.float64]

SIZE, LENGTH_SCALE, NOISE = 1000, 0.03, 0.1
N, M, T_N = 50, 100, 100
FUNCTIONS = 20

GRID = [{"x": i / (SIZE - 1)} for i in range(SIZE)]
# f has a variance of about 0.04, so noise of 0.01 makes about a fifth of that of all scores.
SHARE_OF_NOISE = 0.2
FEDERATION = Federation(
    Space({"x": Float(0, 1)}, points=GRID),
    features=M,
    length_scale=LENGTH_SCALE,
    noise_variance=SHARE_OF_NOISE,
)
#: A target that knows the kernel which f was drawn from, as in the theory: nothing is ever fitted.
KNOWN = Settings(
    surrogate=SurrogateSettings(
        fit=Fit(
            kernel="se",
            priors=Priors(
                length_scale=LogNormal(LENGTH_SCALE, 1.0),
                noise_variance=LogNormal(SHARE_OF_NOISE, 1.0),
            ),
        ),
        refit_every=1_000_000,
    )
)


@cache
def root() -> Array:
    """The symmetric square root of the SE kernel on the grid; unlike other roots, it is unique."""
    x = np.linspace(0, 1, SIZE)
    values, vectors = np.linalg.eigh(np.exp(-0.5 * ((x[:, None] - x) / LENGTH_SCALE) ** 2))
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def drawn(rng: np.random.Generator) -> Array:
    f = root() @ rng.standard_normal(SIZE)
    return (f - f.min()) / (f.max() - f.min())


def peer(n: int, f: Array, d_n: float, rng: np.random.Generator) -> Party:
    agent = Agent(FEDERATION, TS(), name=f"peer-{n}", seed=n)
    g_n = f + d_n * rng.choice([-1.0, 1.0], SIZE)
    for i in rng.choice(SIZE, T_N, replace=False):
        agent.tell(GRID[i], g_n[i] + NOISE * rng.standard_normal())
    return Party(agent=agent)


def target(policy: Policy, settings: Settings, f: Array, start: int, seed: int) -> Party:
    noise = np.random.default_rng([seed, 1])

    def truth(params: dict[str, float]) -> float:
        return float(f[round(params["x"] * (SIZE - 1))])

    return Party(
        agent=Agent(FEDERATION, policy, seed=seed, settings=settings, initial=[GRID[start]]),
        objective=lambda params: truth(params) + NOISE * noise.standard_normal(),
        truth=truth,
        optimum=1.0,
    )


def regrets(fts: FTS, d_n: float, T: int, settings: Settings) -> tuple[Array, Array]:
    """Simple regrets of FTS and of TS at iteration T, for each function."""
    found = []
    for seed in range(FUNCTIONS):
        rng = np.random.default_rng([seed, 0])
        f, start = drawn(rng), int(rng.integers(SIZE))
        peers = [peer(n, f, d_n, rng) for n in range(N)]
        with_peers = simulate([target(fts, settings, f, start, seed), *peers], T)
        alone = simulate([target(TS(), settings, f, start, seed)], T)
        assert with_peers["param_x"][0] == alone["param_x"][0]
        assert with_peers["parameters_received"][-1] == N * M
        found.append([table["simple_regret"][-1] for table in (with_peers, alone)])
    ours, theirs = np.array(found).T
    return ours, theirs


@pytest.mark.parametrize("settings", [KNOWN, Settings()], ids=["known kernel", "default"])
def test_peers_alike_more_than_halve_the_regret(settings: Settings) -> None:
    """Figure 1b: d_n = 0.02, p_t = 1 − 1/√t, at iteration 10."""
    fts, ts = regrets(FTS(schedule=Power(0.5)), 0.02, 10, settings)
    assert fts.mean() < 0.5 * ts.mean()


def test_peers_unlike_cost_nothing_in_the_end() -> None:
    """Figure 1c: every d_n = 1.2, p_t = 1 − 1/t², at iteration 50."""
    fts, ts = regrets(FTS(schedule=Power(2)), 1.2, 50, KNOWN)
    difference = fts - ts
    standard_error = difference.std(ddof=1) / np.sqrt(FUNCTIONS)
    assert difference.mean() <= max(0.01, 2 * standard_error)
