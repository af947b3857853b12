"""The small world of the tests: spaces, an objective, agents that run, peers that know something.

Everything is quick and exact: few features, a handful of trials, peers whose trials are told and
not searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedbo.agent import Agent
from fedbo.federation import Federation
from fedbo.message import Message
from fedbo.policy import TS
from fedbo.space import Categorical, Float, Int, Parameter, Space

M = 30
PLANE = {"x": Float(0, 1), "rate": Float(1e-3, 10, log=True)}
MIXED: dict[str, Parameter] = {
    "rate": Float(1e-4, 1, log=True),
    "momentum": Float(0, 0.9, step=0.1),
    "layers": Int(1, 5),
    "batch": Int(16, 256, step=16),
    "width": Int(1, 1000, log=True),
    "bias": Categorical([True, False]),
    "kind": Categorical(["a", "b", "c"]),
}
LISTED_POINTS = [{"x": i / 7, "rate": 10.0**k} for i in range(8) for k in range(-3, 2)]
LISTED = Space(PLANE, points=LISTED_POINTS)

Objective = Callable[[Mapping[str, Any]], float]
Asked = tuple[dict[str, Any], str, str | None, int | None, dict[str, float]]


def cube(D: int) -> dict[str, Float]:
    """A space of D numbers from 0 to 1."""
    return {f"x{i}": Float(0, 1) for i in range(D)}


def bowl(federation: Federation, top: float = 0.3) -> Objective:
    """A smooth objective, best (0, in either direction) where all coordinates are ``top``."""
    space = federation.space

    def score(params: Mapping[str, Any]) -> float:
        return -space.sign * float(((space.encode(params) - top) ** 2).sum())

    return score


def bump(federation: Federation, shift: float = 0.0, height: float = 1.0) -> Objective:
    """A smooth bump on the plane, as high as told, around (0.7, 0.3) or beside it."""
    top = np.array([0.7, 0.3]) + shift

    def score(params: Mapping[str, Any]) -> float:
        gap2 = ((federation.space.encode(params) - top) ** 2).sum()
        return height * float(np.exp(-gap2 / (2 * 0.3**2)))

    return score


def run(agent: Agent, n: int, objective: Objective | None = None) -> Agent:
    """Ask and tell n trials of the objective, a bowl unless another is given."""
    objective = bowl(agent.federation) if objective is None else objective
    for _ in range(n):
        trial = agent.ask()
        agent.tell(trial, objective(trial.params))
    return agent


def asked(agent: Agent) -> list[Asked]:
    """What the agent asked for so far, and who proposed it."""
    return [(dict(t.params), t.source, t.peer, t.t, dict(t.credit)) for t in agent.trials]


def peer(
    federation: Federation, i: int = 0, trials: int = 6, objective: Objective | None = None
) -> Agent:
    """The agent ``peer-i``, which knows the scores of some random points."""
    agent = Agent(federation, TS(), name=f"peer-{i}", seed=i)
    return learn(agent, trials, objective or bowl(federation, 0.3 + 0.02 * (i % 5)))


def learn(agent: Agent, trials: int, objective: Objective) -> Agent:
    """Tell the agent the scores of random points, other ones each time."""
    space = agent.federation.space
    rng = np.random.default_rng([len(agent.trials), *agent.name.encode()])
    for x in space.sample(rng, trials):
        params = space.decode(x)
        agent.tell(params, objective(params))
    return agent


def messages(federation: Federation, n: int = 3, trials: int = 6) -> list[Message]:
    """What ``peer-0``, ``peer-1``, … hand out."""
    return [peer(federation, i, trials).message() for i in range(n)]
