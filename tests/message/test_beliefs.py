"""An inbox of beliefs: exactly what was sent, whatever else is in it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from contracts.inboxes import covariance, hold_all
from policy.ensembles import message as belief
from scipy.linalg import sqrtm

from fedbo.message import Message
from fedbo.message.inbox import (
    LEAST_EIGENVALUE,
    BeliefInbox,
    Inbox,
    held,
    reduction,
)
from fedbo.model.features import Features

M = 40
FEATURES = Features(2, M, length_scales=0.4, seed=2)
ENTROPY = 2**100 + 7


def message(i: int, sequence: int = 1, t_n: int = 6) -> Message:
    rng = np.random.default_rng([i, sequence])
    X = rng.random((t_n, 2))
    y = rng.standard_normal(t_n)
    return belief(FEATURES, X, y, f"peer-{i}", sequence=sequence)


def filled(*messages: Message) -> BeliefInbox:
    inbox = BeliefInbox(M, ENTROPY)
    for given in messages:
        assert inbox.hold(held(given))
    return inbox


def test_variances_are_those_of_the_covariance_that_was_sent() -> None:
    Phi = FEATURES(np.random.default_rng(0).random((50, 2)))
    messages = [message(i, t_n=t_n) for i, t_n in enumerate([1, 5, 39, 40, 41, 300])]
    inbox = filled(*messages)
    for row, sent in enumerate(messages):
        C = sent.body.covariance.astype(np.float64)
        dense = np.einsum("nm,mk,nk->n", Phi, C, Phi)
        R_phi = Phi @ inbox.R[row].T.astype(np.float64)
        np.testing.assert_allclose(1.0 - (R_phi**2).sum(axis=1), dense, atol=2e-6)
        np.testing.assert_allclose(covariance(inbox, row), C, atol=2e-6)
        np.testing.assert_array_equal(inbox.nu[row], sent.body.nu)
        assert inbox.incumbents[row] == sent.body.incumbent


def test_a_reduction_has_no_more_rows_than_observations() -> None:
    for t_n in (1, 5, 20):
        R = reduction(message(0, t_n=t_n).body).astype(np.float64)
        assert len(R) <= t_n
        G = R @ R.T
        np.testing.assert_allclose(G, np.diag(np.diag(G)), atol=1e-6)
        assert (np.diff(np.diag(G)) <= 1e-6).all() and np.diag(G).min() > LEAST_EIGENVALUE


def test_what_no_belief_can_be_is_clipped() -> None:
    header = {"fingerprint": bytes(16), "sender": "a", "sequence": 1, "t_n": 1}
    sent = Message.of_belief(np.zeros(3), np.diag([4.0, -3.0, 0.5]), 0.0, **header)
    R = reduction(sent.body)
    np.testing.assert_allclose(np.eye(3) - R.T @ R, np.diag([1.0, 0.0, 0.5]), atol=1e-6)


def test_a_draw_is_the_mean_plus_the_symmetric_root_of_the_covariance_times_noise() -> None:
    sent = message(3, sequence=5, t_n=12)
    name = int.from_bytes(hashlib.sha256(b"peer-3").digest()[:8], "big")
    seeds = (np.random.SeedSequence(ENTROPY, spawn_key=(3, use, name, 5)) for use in (0, 1))
    Z = [np.random.default_rng(seed).standard_normal((7, M)) for seed in seeds]
    root = sqrtm(sent.body.covariance.astype(np.float64)).real
    inbox = filled(message(0, t_n=30), sent)
    np.testing.assert_allclose(inbox.omega[1], sent.body.nu + Z[0][0] @ root, atol=1e-5)
    np.testing.assert_allclose(inbox.draws(7)[1], sent.body.nu + Z[1] @ root, atol=1e-5)


def test_draws_depend_on_entropy_sender_and_sequence_only() -> None:
    first, second = filled(message(0), message(1, t_n=30)), filled(message(1, t_n=30), message(0))
    np.testing.assert_array_equal(first.omega[0], second.omega[1])
    np.testing.assert_array_equal(first.draws(10), second.draws(10)[::-1])
    np.testing.assert_array_equal(first.draws(30)[:, :10], second.draws(10)[::-1])
    other = BeliefInbox(M, ENTROPY + 1)
    other.hold(held(message(0)))
    assert not np.array_equal(other.omega[0], first.omega[0])
    assert len(np.unique(np.vstack([first.omega[0], *first.draws(10)[0]]), axis=0)) == 11


def test_draws_made_on_arrival_are_those_made_when_asked_for() -> None:
    early, late = BeliefInbox(M, ENTROPY), filled(*map(message, range(20)))
    early.draws(7)
    for i in range(20):
        early.hold(held(message(i)))
    np.testing.assert_array_equal(early.draws(7), late.draws(7))


@pytest.mark.parametrize("n", [0, 1, 13])
def test_a_restored_inbox_is_the_same_to_the_last_bit(n: int) -> None:
    inbox = filled(*[message(i, t_n=3 * i + 1) for i in range(n)])
    if n:
        inbox.use(0)
    again = BeliefInbox(M, ENTROPY)
    again.restore(inbox.state())
    assert (len(again), again.left) == (n, inbox.left)
    for ours, theirs in [
        (inbox.nu, again.nu),
        (inbox.R, again.R),
        (inbox.incumbents, again.incumbents),
        (inbox.draws(8), again.draws(8)),
    ]:
        np.testing.assert_array_equal(ours, theirs)
    for each in (inbox, again):
        each.hold(held(message(50, t_n=45)))
        each.hold(held(message(0, sequence=3)))
    np.testing.assert_array_equal(inbox.draws(8), again.draws(8))
    assert inbox.senders == again.senders


@pytest.mark.parametrize("name", ["nu", "R", "incumbents"])
@pytest.mark.parametrize("size", [4, 8001])
def test_a_state_whose_beliefs_do_not_match_its_senders_is_refused(name: str, size: int) -> None:
    state = filled(message(0), message(1)).state()
    with pytest.raises(ValueError, match=r"in the inbox|buffer size"):
        BeliefInbox(M).restore({**state, name: bytes(size)})


def test_a_message_says_something_if_it_has_scores_and_reduces_the_covariance() -> None:
    inbox, header = BeliefInbox(3), {"fingerprint": bytes(16), "sequence": 1}
    for name, C, t_n, informed in (
        ("prior", np.eye(3), 5, 0),
        ("no scores", np.diag([1.0, 0.5, 1.0]), 0, 0),
        ("rounded", np.eye(3) * (1 - 1e-7), 5, 0),
        ("good", np.diag([1.0, 0.5, 1.0]), 5, 1),
    ):
        sent = Message.of_belief(np.zeros(3), C, 0.0, sender=name, t_n=t_n, **header)
        inbox.hold(held(sent))
        assert inbox.informed == informed
    assert len(inbox) == 4
    weights = Inbox(3)
    hold_all(weights, np.ones((2, 3)), t_n=[0, 7])
    assert weights.informed == 1
