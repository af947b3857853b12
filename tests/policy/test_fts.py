"""Algorithm 1 at the level of the policy: who is asked, how often, and what is used up."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.inboxes import hold_all
from scipy.stats import chisquare

import fedbo
from fedbo.federation.shared import Shared
from fedbo.message.inbox import Inbox
from fedbo.model.argmax import SampledFunction
from fedbo.model.surrogate import Surrogate, SurrogateSettings
from fedbo.policy import FTS, Target
from fedbo.policy.base import Power

N, T, RUNS = 12, 10, 10_000
# A domain of one point makes a query cost microseconds, and leaves the choice of peers as it is.
SPACE = fedbo.Space({"x": fedbo.Float(0, 1)}, points=[{"x": 0.5}])
FEDERATION = fedbo.Federation(SPACE, features=4, seed=1, kind="weights")
FEATURES = Shared.of(FEDERATION).phi


def inbox_of(n: int, policy: FTS, inbox: Inbox | None = None, sequence: int = 1) -> Inbox:
    """An inbox with a message that is not used of each of n peers."""
    inbox = Inbox(FEATURES.M) if inbox is None else inbox
    names = [f"peer-{i}" for i in range(n)]
    chance = [policy.chance(name) for name in names]
    hold_all(inbox, np.ones((n, FEATURES.M)), t_n=5, sequence=sequence, chance=chance)
    assert inbox.left == np.count_nonzero(chance)
    return inbox


class Choosing(Target):
    """A target whose own draws cost nothing: what is tested is who is asked."""

    def own_draw(self, beta: float = 1.0) -> SampledFunction:
        return FEATURES.function(np.zeros(FEATURES.M))


def target(t: int, inbox: Inbox, rng: np.random.Generator, kind: type[Target] = Choosing) -> Target:
    return kind(
        t=t,
        space=SPACE,
        X=np.empty((0, 1)),
        y=np.empty(0),
        open_points=np.empty((0, 1)),
        surrogate=Surrogate(SurrogateSettings(), 1),
        inbox=inbox,
        federation=FEDERATION,
        rng=rng,
    )


def peers_asked(policy: FTS, runs: int) -> list[list[str | None]]:
    """For each run, whose function each of its T queries came from."""
    rng = np.random.default_rng(20)
    choices, inbox = [], Inbox(FEATURES.M)
    for i in range(runs):
        inbox_of(N, policy, inbox, sequence=i)
        choices.append([policy.query(target(t, inbox, rng)).origin.peer for t in range(1, T + 1)])
    return choices


@pytest.fixture(scope="module")
def uniform() -> list[list[str | None]]:
    return peers_asked(FTS(schedule=Power(0.5)), RUNS)


def test_the_number_of_peer_queries_agrees_with_the_schedule(uniform: list) -> None:
    p = np.array([Power(0.5)(t) for t in range(1, T + 1)])
    counts = np.array([[peer is not None for peer in run] for run in uniform])
    for t in range(T):
        z = (counts[:, t].mean() - (1 - p[t])) / np.sqrt(p[t] * (1 - p[t]) / RUNS)
        assert abs(z) < 4.5, f"iteration {t + 1}"


def test_the_second_peer_follows_the_renormalised_rest() -> None:
    """Without replacement: P(second = j) = Σ_{i ≠ j} P_i P_j / (1 − P_i)."""
    weights = np.array([8.0, 4.0, 2.0, 1.0])
    P = weights / weights.sum()
    policy = FTS(schedule=1e-9, P_N={f"peer-{i}": w for i, w in enumerate(weights)})
    rng = np.random.default_rng(3)
    counts = np.zeros(4)
    for _ in range(4000):
        inbox = inbox_of(4, policy)
        policy.query(target(1, inbox, rng))
        counts[int(str(policy.query(target(2, inbox, rng)).origin.peer).removeprefix("peer-"))] += 1
    expected = np.array(
        [sum(P[i] * P[j] / (1 - P[i]) for i in range(4) if i != j) for j in range(4)]
    )
    assert chisquare(counts, expected * counts.sum()).pvalue > 1e-4


def test_a_message_is_used_once_and_then_the_agent_is_on_its_own(uniform: list) -> None:
    for run in uniform[:500]:
        peers = [peer for peer in run if peer is not None]
        assert len(peers) == len(set(peers))
    policy = FTS(schedule=1e-9)
    inbox, rng = inbox_of(3, policy), np.random.default_rng(0)
    choices = [policy.query(target(t, inbox, rng)).origin.peer for t in range(1, 6)]
    assert {*choices[:3]} == {"peer-0", "peer-1", "peer-2"}
    assert choices[3:] == [None, None]


def test_stragglers_are_never_followed_and_hold_nobody_up() -> None:
    """A straggler has P_N = 0, or its message never arrives; the others are drawn as before."""
    chances = {f"peer-{i}": 1.0 for i in range(N) if i % 3}  # peers 0, 3, 6 and 9 are stragglers
    policy, rng = FTS(schedule=1e-9, P_N=chances), np.random.default_rng(5)
    asked = []
    for i in range(400):
        inbox = inbox_of(N if i % 2 else N - 2, policy)  # of two peers nothing arrives
        for t in range(1, N + 1):
            asked.append(policy.query(target(t, inbox, rng)).origin.peer)
        assert inbox.left == 0
    counts = {name: asked.count(name) for name in {*asked}}
    assert counts.pop(None) == 200 * 4 + 200 * (N - 6)
    assert counts == {name: 200 if int(name[5:]) >= N - 2 else 400 for name in chances}


def test_a_peers_query_is_the_maximiser_of_its_function() -> None:
    space = fedbo.Space({"x": fedbo.Float(0, 1)})
    agreed = fedbo.Federation(space, features=30, length_scale=0.2, seed=2, kind="weights")
    features = Shared.of(agreed).phi
    omega = np.random.default_rng(5).standard_normal(30)
    inbox = Inbox(30)
    hold_all(inbox, omega[None], t_n=5)
    asking = target(1, inbox, np.random.default_rng(0))
    asking.space, asking.federation = space, agreed
    x = FTS(schedule=1e-9).query(asking).x
    grid = np.linspace(0, 1, 20_001)[:, None]
    sent = omega.astype(np.float32).astype(np.float64)
    assert features(x[None]) @ sent >= (features(grid) @ sent).max() - 1e-4


@pytest.mark.parametrize("beta", [-1.0, float("nan"), []])
def test_a_wrong_beta_is_named(beta: object) -> None:
    with pytest.raises(ValueError, match="beta is"):
        FTS(beta=beta)  # type: ignore[arg-type]


@pytest.mark.parametrize("P_N", [{"a": -0.1, "b": 1.0}, {"a": 0.0}, {}])
def test_a_wrong_distribution_is_named(P_N: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="P_N"):
        FTS(P_N=P_N)
