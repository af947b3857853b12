"""What peers say, and how much each counts: against loops and SciPy, on noise and on truth."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from fedbo import TS, Agent, Federation, Float
from fedbo.message import Kind
from fedbo.message.inbox import BeliefInbox, Held, Inbox, reduction
from fedbo.policy import Target
from fedbo.policy import peers as module
from fedbo.policy.peers import Peers

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
    found = Said(F).shares(np.array(places, dtype=float).reshape(-1, 1), y)
    np.testing.assert_allclose(found, np.array(powers) / sum(powers), rtol=1e-9)


@pytest.mark.parametrize("t", [2, 5, 30, 200])
def test_tau_is_kendalls(t: int) -> None:
    rng = np.random.default_rng(t)
    y, F = rng.standard_normal(t), rng.standard_normal((t, 5))
    F[:, 1:3] += y[:, None]
    powers = np.exp(1.5 * np.sqrt(t - 1) * np.array([kendalltau(y, f).statistic for f in F.T]))
    np.testing.assert_allclose(shares(y, F), powers / powers.sum(), rtol=1e-9)


def test_of_many_scores_200_ranks_are_compared() -> None:
    rng = np.random.default_rng(0)
    y = rng.standard_normal(711)
    F = y[:, None] + rng.standard_normal((711, 3))
    some = np.argsort(y)[np.linspace(0, 710, 200).round().astype(int)]
    np.testing.assert_allclose(shares(y, F), shares(y[some], F[some]))


def test_only_the_order_of_scores_counts() -> None:
    """Neither the scale of the scores, nor that of a peer, nor which score came first."""
    rng = np.random.default_rng(1)
    y, F = rng.standard_normal(15), rng.standard_normal((15, 3))
    expected, order = shares(y, F), rng.permutation(15)
    np.testing.assert_array_equal(shares(np.exp(3 * y) - 50, F), expected)
    warped = np.stack([F[:, 0] ** 3, 1e9 + 1e6 * F[:, 1], 1e-9 * F[:, 2]], axis=1)
    np.testing.assert_array_equal(shares(y, warped), expected)
    np.testing.assert_array_equal(shares(y[order], F[order]), expected)


def test_a_peer_that_ranks_nothing_counts_as_one_that_is_wrong() -> None:
    y = np.arange(8.0)
    right, flat, wrong = shares(y, np.stack([y, np.ones(8), -y], axis=1))
    assert flat == wrong == pytest.approx(right * math.exp(-3 * math.sqrt(7)))


@pytest.mark.parametrize("t", [6, 30, 150])
def test_the_luckiest_of_50_uninformative_peers_has_an_eighth(t: int) -> None:
    rng = np.random.default_rng(t)
    y, draws = np.arange(float(t)), (rng.standard_normal((t, 50)) for _ in range(60))
    assert np.mean([shares(y, F).max() for F in draws]) == pytest.approx(1 / 8, abs=0.04)


def test_the_right_ones_are_found_among_many_wrong_ones() -> None:
    """4 of 40 are nearly right: after 15 scores their share is more than 8 times 4 / 40."""
    rng, found = np.random.default_rng(2), []
    for _ in range(20):
        y, F = rng.standard_normal(15), rng.standard_normal((15, 40))
        F[:, :4] = y[:, None] + 0.3 * rng.standard_normal((15, 4))
        w = shares(y, F)
        assert w.sum() == pytest.approx(1.0)
        found.append(w[:4].sum())
    assert np.mean(found) > 0.8


# Messages


def target_of(federation: Federation, inbox: Inbox) -> Target:
    """An agent without scores that holds these messages."""
    agent = Agent(federation, name="me", seed=0)
    agent.inbox = inbox
    return agent._target(None, np.random.default_rng(0))


def told(federation: Federation, said: list[tuple[np.ndarray, np.ndarray, int]]) -> Target:
    """A target with beliefs of these means, covariances and numbers of trials."""
    inbox = BeliefInbox(federation.coordinates, D=federation.space.dimensions)
    for n, (mean, C, t_n) in enumerate(said):
        content = mean.astype(np.float32), reduction(C).astype(np.float32)
        inbox.hold(Held(f"peer-{n}", 1, t_n, content))
    return target_of(federation, inbox)


@pytest.mark.parametrize("kind", ["belief", "compact"])
def test_messages_that_say_nothing_are_left_out(kind: Any) -> None:
    federation = Federation(PLANE, features=30, kind=kind)
    k, rng = federation.coordinates, np.random.default_rng(0)
    said = [
        (rng.standard_normal(k), 0.5 * np.eye(k), 9),
        (rng.standard_normal(k), 0 * np.eye(k), 4),
    ]
    nothing = [(np.ones(k), np.eye(k), 30), (np.ones(k), said[0][1], 0)]
    peers = Peers(told(federation, said))
    beside = Peers(told(federation, [*nothing, said[0], *nothing, said[1], *nothing]))
    assert (peers.rows.tolist(), beside.rows.tolist()) == ([0, 1], [2, 5])
    np.testing.assert_array_equal(beside.m, peers.m)
    np.testing.assert_allclose(beside.R, peers.R, atol=1e-6)


def test_no_message_counts_for_its_size_or_for_how_highly_it_praises() -> None:
    """Large numbers, or one sharp maximum: the function is scaled down to that of honest ones."""
    federation = Federation(PLANE)
    basis, k = federation.basis, federation.coordinates
    peak = basis.coordinates(np.full((1, 2), 0.5))[0]
    for z in (peak, np.random.default_rng(0).standard_normal(k)):
        for factor in (1e2, 1e4, 1e6):
            m = Peers(told(federation, [(factor * z, np.zeros((k, k)), 20)])).m
            assert max(basis.height(m)[0], basis.size(m)[0]) == pytest.approx(2.0, rel=1e-5)
            np.testing.assert_allclose(m[0] / np.linalg.norm(m), z / np.linalg.norm(z), atol=1e-6)


def test_the_best_guess_of_a_mean_from_one_draw() -> None:
    """Of the draws ω ~ N(ν, (1 − s) I) with ν ~ N(0, s I) it has the errors that it claims."""
    federation = Federation(PLANE, features=30, kind="weights")
    basis, rng = federation.basis, np.random.default_rng(1)
    inbox = Inbox(30, 2)
    s = 20 * basis.lam / (20 * basis.lam + federation.noise_variance)
    size = (1000, len(s))
    nu = np.sqrt(s) * rng.standard_normal(size)
    z, truth = (nu + np.sqrt(1 - s) * rng.standard_normal(size) for _ in range(2))
    names = [f"peer-{n}" for n in range(1000)]
    inbox.extend(names, (0.1 * z) @ np.linalg.pinv(basis.vectors), t_n=20, sequence=1)
    peers = Peers(target_of(federation, inbox))  # small enough that nothing is scaled down
    np.testing.assert_allclose((truth - 10 * peers.m).var(axis=0), 1 - s**2, rtol=0.2)
    np.testing.assert_allclose(
        np.einsum("nri,nrj->nij", peers.R, peers.R)[0], np.diag(s**2), rtol=1e-6
    )


@pytest.mark.parametrize("N", [module._MOST, module._MOST + 1, 20_000])
def test_of_many_peers_an_even_selection_is_compared(
    N: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work does not grow with the inbox; peers without trials do not count."""
    federation = Federation(PLANE, features=30, kind="weights")
    inbox, trials = Inbox(30, 2), np.where(np.arange(N + 5) < 5, 0, 20)
    omegas = np.random.default_rng(0).standard_normal((N + 5, 30), dtype=np.float32)
    inbox.extend([f"peer-{n}" for n in range(N + 5)], omegas, t_n=trials, sequence=1)
    looked: list[np.ndarray] = []

    class OnlySome:  # not an array: rows have to be selected
        def __getitem__(self, rows: np.ndarray) -> np.ndarray:
            looked.append(rows)
            return omegas[rows]

    monkeypatch.setattr(Inbox, "omega", OnlySome())
    peers = Peers(target_of(federation, inbox))
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
    peers = Peers(agent._target(None, np.random.default_rng(0)))
    values = peers.values(federation.basis.points)
    highest = federation.basis.points[values.argmax(axis=0)]
    named = [federation.tip(message) for message in sent]
    assert all((tip is not None) == (kind == "compact") for tip in named)
    np.testing.assert_array_equal(peers.tips, named if kind == "compact" else highest)
    X = np.random.default_rng(9).random((20, 2))
    lost = (values.max(axis=0) - peers.values(X)) / (values.max(axis=0) - values.min(axis=0))
    np.testing.assert_allclose(peers.regret(X), np.clip(lost, 0, 1), atol=1e-9)
    assert not np.diag(peers.regret(peers.tips)).any()


def test_the_regret_is_0_at_the_trial_of_a_tip() -> None:
    """Although the parameters of a trial are rounded, such as those on a logarithmic axis."""
    federation = Federation(PLANE)
    k, space = federation.coordinates, federation.space
    inbox = BeliefInbox(k, D=2)
    tips = np.array([[i / 15, 0.2] for i in range(16)])
    for n, tip in enumerate(tips):
        z = np.random.default_rng(n).standard_normal(k).astype(np.float32)
        R = np.eye(k, dtype=np.float32)
        inbox.hold(Held(f"peer-{n}", 1, 9, (z, R), math.nan, tip))
    trials = np.array([space.encode(space.decode(tip)) for tip in tips])
    assert not np.diag(Peers(target_of(federation, inbox)).regret(trials)).any()


def test_who_is_flat_recommends_nothing() -> None:
    federation = Federation(PLANE)
    k = federation.coordinates
    peers = Peers(told(federation, [(np.zeros(k), np.zeros((k, k)), 9)]))
    assert np.isnan(peers.tips).all()
    assert (peers.regret(np.random.default_rng(0).random((4, 2))) == 1.0).all()
