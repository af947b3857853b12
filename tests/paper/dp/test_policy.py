"""Queries that follow the server: where φ(x)ᵀω of the region that x lies in is largest."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.agent import Agent
from fedbo.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message import Message
from fedbo.space import Float
from fedbo_paper.dp.policy import FollowPeer, FollowServer
from fedbo_paper.dp.server import Regions

SPACE = {"x": Float(0, 1), "y": Float(0, 1)}


def aggregates(federation: Federation, omega: np.ndarray, sequence: int = 1) -> list[Message]:
    return [
        Message.of_weights(
            each,
            fingerprint=federation.fingerprint,
            sender=f"region-{p}",
            sequence=sequence,
            t_n=10,
        )
        for p, each in enumerate(omega)
    ]


def started(federation: Federation, policy: FollowPeer | FollowServer) -> Agent:
    agent = Agent(federation, policy, name="target", seed=0, initial=[{"x": 0.3, "y": 0.3}])
    agent.tell(agent.ask(), 0.0)
    return agent


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_first_query_is_the_largest_over_all_regions(seed: int) -> None:
    federation = Federation(SPACE, features=60, seed=3, length_scale=0.15, kind="weights")
    omega = np.random.default_rng(seed).standard_normal((4, 60))
    agent = started(federation, FollowServer(2))
    agent.receive(aggregates(federation, omega))
    trial = agent.ask()
    assert trial.source == "pool"  # p_1 = 0
    side = np.linspace(0.0, 1.0, 201)
    grid = np.array([(x, y) for x in side for y in side])
    regions = Regions(2, 2)

    def piecewise(X: np.ndarray) -> np.ndarray:
        values = Shared.of(federation).phi(X) @ omega.astype(np.float32).T.astype(np.float64)
        return values[np.arange(len(X)), regions.index(X)]

    [reached] = piecewise(np.array([[trial.params["x"], trial.params["y"]]]))
    assert reached >= piecewise(grid).max() - 1e-6


def test_fts_follows_each_peer_as_often() -> None:
    """Of 400 first queries that follow one of 4 peers, 100 ± 35 follow each (four deviations)."""
    federation = Federation(SPACE, features=20, seed=3, kind="weights")
    omega = np.random.default_rng(0).standard_normal((4, 20))
    followed = []
    for seed in range(400):
        agent = Agent(federation, FollowPeer(), name="target", seed=seed, initial=[])
        agent.tell({"x": 0.3, "y": 0.3}, 0.0)
        agent.receive(aggregates(federation, omega))
        followed.append(agent.ask().peer)
    counts = [followed.count(f"region-{p}") for p in range(4)]
    assert sum(counts) == 400 and all(abs(count - 100) < 35 for count in counts)


def test_without_any_message_the_query_is_the_agent_s_own() -> None:
    federation = Federation(SPACE, features=20, seed=3, kind="weights")
    assert started(federation, FollowServer(2)).ask().source == "own"
