"""An agent that forgets peers is like one that never heard of them."""

from __future__ import annotations

import pytest

from fedbo import FTS, RGPE, TAF, TS, Agent, Federation, Float, Message, Policy, TipsThenPool
from fedbo.message import Kind

SPACE = {"x": Float(0, 1), "y": Float(-1, 1)}
POLICIES: list[tuple[type[Policy], Kind]] = [
    (TipsThenPool, "compact"),
    (TipsThenPool, "weights"),
    (FTS, "compact"),
    (FTS, "weights"),
    (RGPE, "belief"),
    (TAF, "belief"),
]


def score(x: float, y: float, best: float = 0.4) -> float:
    return -((x - best) ** 2) - (y - 0.2) ** 2


def peer(federation: Federation, name: str, scores: int, best: float) -> Message:
    agent = Agent(federation, TS(), name=name, seed=1)
    for i in range(scores):
        params = {"x": (0.37 * i + best) % 1, "y": (0.73 * i) % 2 - 1}
        agent.tell(params, score(**params, best=best))
    return agent.message()


def target(federation: Federation, policy: type[Policy]) -> Agent:
    agent = Agent(federation, policy(), name="here", seed=0)
    for i in range(4):
        params = {"x": (0.29 * i) % 1, "y": (0.41 * i) % 2 - 1}
        agent.tell(params, score(**params))
    return agent


def queries(agent: Agent, n: int = 6) -> list[tuple[dict[str, object], str]]:
    asked = []
    for _ in range(n):
        trial = agent.ask()
        asked.append((dict(trial.params), trial.source))
        agent.tell(trial, score(**trial.params))  # type: ignore[arg-type]
    return asked


@pytest.mark.parametrize(("policy", "kind"), POLICIES)
def test_queries_are_those_of_an_agent_that_never_heard_of_them(
    policy: type[Policy], kind: Kind
) -> None:
    federation = Federation(SPACE, features=30, kind=kind)
    sizes = {"a": 5, "b": 25, "c": 7}  # b has a belief of a higher rank than the others
    messages = {name: peer(federation, name, n, n / 30) for name, n in sizes.items()}
    forgetful, ignorant = target(federation, policy), target(federation, policy)
    forgetful.receive(messages.values())
    assert forgetful.forget(["b", "nobody"]) == 1
    ignorant.receive([messages["a"], messages["c"]])
    assert forgetful.inbox.senders == ["a", "c"]
    expected = queries(ignorant)
    assert {source for _, source in expected} & {"pool", "peer", "own"}
    assert queries(forgetful) == expected


def test_a_forgotten_peer_is_heard_again_whatever_its_sequence_is() -> None:
    federation = Federation(SPACE, features=30)
    agent = target(federation, TipsThenPool)
    earlier, later = (peer(federation, "a", n, 0.3) for n in (3, 9))
    assert agent.receive(later) == 1
    assert agent.receive(earlier) == 0
    assert agent.forget(["a"]) == 1
    assert agent.forget(["a"]) == 0
    assert agent.receive(earlier) == 1
