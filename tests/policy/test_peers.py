"""What peers say, and how much each counts: against loops and SciPy, on noise and on truth."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
from contracts.inboxes import hold_all
from hypothesis import given
from hypothesis import strategies as st
from policy.ensembles import peers_of

from fedbo import TS, Agent, Federation, Float
from fedbo.federation.shared import Shared
from fedbo.message import Kind, Message
from fedbo.message.inbox import BeliefInbox, Held, Inbox, held
from fedbo.policy import Target
from fedbo.policy import peers as module
from fedbo.policy.peers import Peers, Ranking

PLANE = {"x": Float(0, 1), "rate": Float(1e-3, 10, log=True)}


# Shares


class Said(Peers):
    """Peers with these values F (t, K) at the points 0, 1, …"""

    def __init__(self, F: np.ndarray) -> None:
        self.F = F

    def values(self, X: np.ndarray) -> np.ndarray:
        return self.F[X[:, 0].astype(int)]


def shares(y: np.ndarray, F: np.ndarray) -> np.ndarray:
    return Said(F).shares(np.arange(float(len(y)))[:, None], y)


@given(st.data())
def test_shares_against_a_loop_over_pairs(data: st.DataObject) -> None:
    """A few values only: scores tie, points repeat, and peers are constant."""
    t, K = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 4))
    few = st.sampled_from([-1.0, 0.0, 2.0])
    y = np.array(data.draw(st.lists(few, min_size=t, max_size=t)))
    places = data.draw(st.lists(st.integers(0, 5), min_size=t, max_size=t))
    F = np.array(data.draw(st.lists(st.lists(few, min_size=K, max_size=K), min_size=6, max_size=6)))
    pairs = [(i, j) for i in range(t) for j in range(t) if y[i] < y[j] and places[i] != places[j]]
    powers = []
    for f in F.T:
        wrong = sum(f[places[i]] >= f[places[j]] for i, j in pairs)
        tau = 1 - 2 * wrong / len(pairs) if pairs else 0.0
        powers.append(math.exp(1.5 * math.sqrt(max(t - 1, 0)) * tau))
    computed = Said(F).shares(np.array(places, dtype=float).reshape(-1, 1), y)
    np.testing.assert_allclose(computed, np.array(powers) / sum(powers), rtol=1e-9)


@pytest.mark.parametrize("t", [6, 30, 150])
def test_the_luckiest_of_50_uninformative_peers_has_an_eighth(t: int) -> None:
    rng = np.random.default_rng(t)
    y, draws = np.arange(float(t)), (rng.standard_normal((t, 50)) for _ in range(60))
    assert np.mean([shares(y, F).max() for F in draws]) == pytest.approx(1 / 8, abs=0.04)


# Messages


def target_of(federation: Federation, inbox: Inbox) -> Target:
    """An agent without scores that holds these messages."""
    agent = Agent(federation, name="me", seed=0)
    agent.inbox = inbox
    return agent._target(None, np.random.default_rng(0))


def target_told(federation: Federation, claims: list[tuple[np.ndarray, np.ndarray, int]]) -> Target:
    """A target with beliefs of these means, covariances and numbers of trials."""
    inbox = BeliefInbox(Shared.of(federation).coordinates, D=federation.space.dimensions)
    for n, (mean, C, t_n) in enumerate(claims):
        header = {"fingerprint": bytes(16), "sender": f"peer-{n}", "sequence": 1, "t_n": t_n}
        inbox.hold(held(Message.of_belief(mean, C, 0.0, **header)))
    return target_of(federation, inbox)


@pytest.mark.parametrize("kind", ["belief", "compact"])
def test_messages_that_say_nothing_are_left_out(kind: Any) -> None:
    federation = Federation(PLANE, features=30, kind=kind)
    k, rng = Shared.of(federation).coordinates, np.random.default_rng(0)
    claims = [
        (rng.standard_normal(k), 0.5 * np.eye(k), 9),
        (rng.standard_normal(k), 0 * np.eye(k), 4),
    ]
    nothing = [(np.ones(k), np.eye(k), 30), (np.ones(k), claims[0][1], 0)]
    peers = peers_of(target_told(federation, claims))
    beside = peers_of(target_told(federation, [*nothing, claims[0], *nothing, claims[1], *nothing]))
    assert (peers.rows.tolist(), beside.rows.tolist()) == ([0, 1], [2, 5])
    np.testing.assert_array_equal(beside.m, peers.m)
    np.testing.assert_allclose(beside.R, peers.R, atol=1e-6)


def test_no_message_counts_for_its_size_or_for_how_highly_it_praises() -> None:
    """Large numbers, or one sharp maximum: the function is scaled down to that of honest ones."""
    federation = Federation(PLANE)
    basis, k = Shared.of(federation).basis, Shared.of(federation).coordinates
    peak = basis.coordinates(np.full((1, 2), 0.5))[0]
    for z in (peak, np.random.default_rng(0).standard_normal(k)):
        for factor in (1e2, 1e4, 1e6):
            m = peers_of(target_told(federation, [(factor * z, np.zeros((k, k)), 20)])).m
            assert max(basis.height(m)[0], basis.size(m)[0]) == pytest.approx(2.0, rel=1e-5)
            np.testing.assert_allclose(m[0] / np.linalg.norm(m), z / np.linalg.norm(z), atol=1e-6)


@pytest.mark.parametrize("N", [module._MOST, module._MOST + 1, 20_000])
def test_of_many_peers_an_even_selection_is_compared(
    N: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work does not grow with the inbox; peers without trials do not count."""
    federation = Federation(PLANE, features=30, kind="weights")
    inbox, trials = Inbox(30, 2), np.where(np.arange(N + 5) < 5, 0, 20)
    omegas = np.random.default_rng(0).standard_normal((N + 5, 30), dtype=np.float32)
    hold_all(inbox, omegas, t_n=trials)
    looked: list[np.ndarray] = []

    class OnlySome:  # not an array: rows have to be selected
        def __getitem__(self, rows: np.ndarray) -> np.ndarray:
            looked.append(rows)
            return omegas[rows]

    monkeypatch.setattr(Inbox, "omega", OnlySome())
    peers = peers_of(target_of(federation, inbox))
    [rows] = looked
    np.testing.assert_array_equal(rows, peers.rows)
    assert len({*rows.tolist()}) == len(rows) == module._MOST
    assert (rows[0], rows[-1]) == (5, N + 4)
    assert np.diff(rows).max() <= N / module._MOST + 1


# Tips


@pytest.mark.parametrize("kind", get_args(Kind))
def test_tips_and_regrets_of_all_kinds_of_messages(kind: Kind) -> None:
    """A compact message names its tip; others recommend the best of points all over the space."""
    federation = Federation(PLANE, features=30, kind=kind)
    agent = Agent(federation, name="me", seed=0)
    sent = []
    for i in range(3):
        sender = Agent(federation, TS(), name=f"peer-{i}", seed=i)
        for x in federation.space.sample(np.random.default_rng(i), 12):
            sender.tell(federation.space.decode(x), -float(((x - 0.3 - 0.2 * i) ** 2).sum()))
        sent.append(sender.message())
    agent.receive(sent)
    peers = peers_of(agent._target(None, np.random.default_rng(0)))
    values = peers.values(Shared.of(federation).basis.points)
    highest = Shared.of(federation).basis.points[values.argmax(axis=0)]
    named = [Shared.of(federation).tip(message) for message in sent]
    assert all((tip is not None) == (kind == "compact") for tip in named)
    np.testing.assert_array_equal(peers.tips, named if kind == "compact" else highest)
    X = np.random.default_rng(9).random((20, 2))
    lost = (values.max(axis=0) - peers.values(X)) / (values.max(axis=0) - values.min(axis=0))
    np.testing.assert_allclose(peers.regret(X), np.clip(lost, 0, 1), atol=1e-9)
    assert not np.diag(peers.regret(peers.tips)).any()


def test_the_regret_is_0_at_the_trial_of_a_tip() -> None:
    """Although the parameters of a trial are rounded, such as those on a logarithmic axis."""
    federation = Federation(PLANE)
    k, space = Shared.of(federation).coordinates, federation.space
    inbox = BeliefInbox(k, D=2)
    tips = np.array([[i / 15, 0.2] for i in range(16)])
    for n, tip in enumerate(tips):
        z = np.random.default_rng(n).standard_normal(k).astype(np.float32)
        R = np.eye(k, dtype=np.float32)
        inbox.hold(Held(f"peer-{n}", 1, 9, (z, R), math.nan, tip))
    trials = np.array([space.encode(space.decode(tip)) for tip in tips])
    assert not np.diag(peers_of(target_of(federation, inbox)).regret(trials)).any()


# Counting wrongly ranked pairs, against the loops of the definition


def loss(f: np.ndarray, y: np.ndarray) -> int:
    """The ranking loss over ordered pairs, as it is written (Feurer et al. 2018)."""
    n = len(y)
    return sum((f[j] < f[k]) ^ (y[j] < y[k]) for j in range(n) for k in range(n))


def values(ranking: Ranking, X: np.ndarray, F: np.ndarray) -> np.ndarray:
    """F (t, K) at the rows of X, but at the ranking's points instead."""
    rows = [next(i for i, x in enumerate(X) if (x == point).all()) for point in ranking.points]
    return F[rows]


def test_ties_of_scores_and_repeated_points_add_the_same_to_every_model() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((20, 2))
    X[10:14] = X[0]  # one point five times, with several scores
    y = rng.integers(0, 6, 20).astype(float)
    F = rng.standard_normal((20, 8))
    F[10:14] = F[0]
    ranking = Ranking(X, y)
    rest = [
        loss(f, y) - 2 * int(count)
        for f, count in zip(F.T, ranking.discordant(values(ranking, X, F)), strict=True)
    ]
    assert len(set(rest)) == 1 and len(ranking.points) == 16


def test_left_out_draws_rank_each_observation_by_the_belief_that_never_saw_it() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.random((7, 1)), rng.standard_normal(7)
    ranking = Ranking(X, y)
    draws = rng.standard_normal((4, 7, 7))
    scores = y[ranking.rows]
    expected = [
        sum((f[j, j] < f[j, k]) ^ (scores[j] < scores[k]) for j in range(7) for k in range(7))
        for f in draws
    ]
    assert ranking.discordant_left_out(draws).tolist() == expected
