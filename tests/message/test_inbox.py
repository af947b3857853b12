"""The inbox: one message per peer, draws from P_N without replacement, exact save and load."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy.stats import chisquare

from fedbo.message import Fingerprint, Message, MessageRefused
from fedbo.message.columns import ROWS
from fedbo.message.inbox import Inbox

AGREED = Fingerprint.from_parts(space=0, features=0, kind="weights", scalars=0)


def message(sender: str, sequence: int = 1, omega: Any = (0.0, 0.0), t_n: int = 20) -> Message:
    return Message.of_weights(
        omega, fingerprint=AGREED, epoch=0, sender=sender, sequence=sequence, t_n=t_n
    )


def filled(n: int, M: int = 2, weights: Any = None) -> Inbox:
    inbox = Inbox(M)
    omegas = np.arange(n * M, dtype=np.float32).reshape(n, M)
    taken = inbox.extend(
        [f"peer-{i}" for i in range(n)], omegas, t_n=20, sequence=1, weights=weights
    )
    assert taken == n == len(inbox)
    return inbox


def counts(inbox: Inbox, draws: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.bincount([drawn(inbox, rng) for _ in range(draws)], minlength=len(inbox))


def drawn(inbox: Inbox, rng: np.random.Generator) -> int:
    row = inbox.draw(rng)
    assert row is not None
    return row


def test_a_message_is_held_under_its_sender() -> None:
    inbox = Inbox(2)
    assert inbox.put(message("b", omega=[1.5, -2.0], t_n=7))
    assert (len(inbox), inbox.left, inbox.sender(0), inbox.t_n(0)) == (1, 1, "b", 7)
    omega = inbox.omega(0)
    assert omega.dtype == np.float64 and omega.tolist() == [1.5, -2.0]
    omega[:] = 0  # a copy
    assert inbox.omega(0).tolist() == [1.5, -2.0]
    assert inbox.draw(np.random.default_rng(0)) == 0


def test_only_a_newer_message_replaces_and_makes_a_used_peer_drawable() -> None:
    inbox = Inbox(2)
    inbox.put(message("a", 5, [1, 1]), weight=0.25)
    inbox.put(message("b"))
    inbox.use(0)
    for old in (4, 5):
        assert not inbox.put(message("a", old, [9, 9]))
    assert (inbox.left, inbox.omega(0).tolist()) == (1, [1, 1])
    assert inbox.put(message("a", 6, [2, 2], t_n=30))
    assert (len(inbox), inbox.left, inbox.omega(0).tolist(), inbox.t_n(0)) == (2, 2, [2, 2], 30)
    assert inbox.state()["weight"].tolist() == [0.25, 1.0]  # its old weight is restored
    assert inbox.put(message("a", 7), weight=3.0)
    assert inbox.state()["weight"].tolist() == [3.0, 1.0]


def test_nothing_left_draws_none() -> None:
    rng = np.random.default_rng(0)
    assert Inbox(2).draw(rng) is None
    inbox = filled(3, weights=[0, 0, 0])
    assert inbox.draw(rng) is None and inbox.left == 0
    inbox.weigh([0, 1, 0])
    assert inbox.draw(rng) == 1 and inbox.left == 1
    inbox.use(1)
    inbox.use(1)  # twice is once
    assert inbox.draw(rng) is None and inbox.left == 0


def test_bad_input_is_refused_and_changes_nothing() -> None:
    inbox = filled(2)
    before = inbox.state()
    with pytest.raises(MessageRefused, match=r"kind 'weights' with M = 3; .* weights with M = 2"):
        inbox.put(message("c", omega=[1, 2, 3]))
    belief = Message.of_belief(
        [1, 2], np.eye(2), fingerprint=AGREED, epoch=0, sender="c", sequence=1, t_n=1
    )
    with pytest.raises(MessageRefused, match="kind 'belief'"):
        inbox.put(belief)
    for weight in (-1.0, np.nan, np.inf, 1e201):
        with pytest.raises(ValueError, match="weight of 'c' is"):
            inbox.put(message("c"), weight=weight)
        with pytest.raises(ValueError, match="a weight is"):
            inbox.weigh([1.0, weight])
    good: dict[str, Any] = {"senders": ["c", "d"], "omegas": [[1, 2], [3, 4]], "t_n": 1}
    good |= {"sequence": 9, "weights": None}
    for wrong, sentence in (
        ({"senders": ["c", ""]}, "sender is ''"),
        ({"senders": ["c", "d" * 65]}, "1 to 64 bytes"),
        ({"omegas": [[1, 2]]}, r"shape \(1, 2\), expected \(2, 2\)"),
        ({"omegas": [[1, 2], [3, np.nan]]}, r"omegas\[1\] holds NaN"),
        ({"omegas": [[1, 2], [3, 1e300]]}, r"omegas\[1\] holds NaN or infinity"),
        ({"t_n": -1}, "t_n is -1"),
        ({"t_n": 1.5}, "whole number"),
        ({"sequence": [1, 2, 3]}, "sequence is"),
        ({"weights": [1, -1]}, r"a weight is -1\.0"),
        ({"weights": [1, 2, 3]}, r"weights have shape \(3,\), expected \(2,\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            inbox.extend(**{**good, **wrong})
    for row in (-1, 2):
        with pytest.raises(IndexError, match=f"row is {row}, expected 0 to 1"):
            inbox.use(row)
    assert all(np.array_equal(before[key], value) for key, value in inbox.state().items())
    with pytest.raises(ValueError, match="M is 0"):
        Inbox(0)


def test_uniform_draws_are_uniform() -> None:
    n = ROWS + 904  # over two chunks
    inbox = filled(n)
    assert chisquare(counts(inbox, 100_000)).pvalue > 1e-3


def test_weighted_draws_follow_their_weights() -> None:
    weights = np.random.default_rng(1).exponential(size=300)
    weights[::3] = 0.0
    seen = counts(filled(300, weights=weights), 60_000)
    assert not seen[::3].any()
    kept = weights > 0
    assert chisquare(seen[kept], 60_000 * weights[kept] / weights.sum()).pvalue > 1e-3


def test_what_is_left_is_renormalised() -> None:
    weights = np.arange(1.0, 41.0)
    inbox = filled(40, weights=weights)
    for row in range(0, 40, 2):
        inbox.use(row)
    seen, kept = counts(inbox, 40_000), np.arange(40) % 2 == 1
    assert not seen[~kept].any()
    assert chisquare(seen[kept], 40_000 * weights[kept] / weights[kept].sum()).pvalue > 1e-3
    inbox.weigh(np.ones(40))  # P_N anew; what is used stays used
    seen = counts(inbox, 40_000)
    assert not seen[~kept].any()
    assert chisquare(seen[kept]).pvalue > 1e-3


def test_using_what_is_drawn_gives_every_order_of_peers_its_chance() -> None:
    rng, orders = np.random.default_rng(2), dict[tuple[int, ...], int]()
    weights = np.array([1.0, 2.0, 3.0])
    for _ in range(6_000):
        inbox, order = filled(3, weights=weights), list[int]()
        while inbox.left:
            order.append(drawn(inbox, rng))
            inbox.use(order[-1])
        orders[tuple(order)] = orders.get(tuple(order), 0) + 1
    chance = {(a, b, c): weights[a] / 6 * weights[b] / (6 - weights[a]) for a, b, c in orders}
    assert len(orders) == 6
    assert chisquare(list(orders.values()), [6_000 * p for p in chance.values()]).pvalue > 1e-3


def test_all_peers_are_drawn_once_without_replacement() -> None:
    n, rng = ROWS + 10, np.random.default_rng(3)
    inbox, rows = filled(n), list[int]()
    while inbox.left:
        rows.append(drawn(inbox, rng))
        inbox.use(rows[-1])
    assert sorted(rows) == list(range(n))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=40),
    st.sets(st.integers(0, 9)),
)
def test_extend_does_what_putting_one_by_one_does(
    batch: list[tuple[int, int]], used: set[int]
) -> None:
    one, many = filled(5), filled(5)
    for inbox in (one, many):
        for row in used & set(range(5)):
            inbox.use(row)
    names, sequence = [f"peer-{i}" for i, _ in batch], [s for _, s in batch]
    omegas, weights = [[k, -k] for k in range(len(batch))], [0.5 * k for k in range(len(batch))]
    for name, s, omega, weight in zip(names, sequence, omegas, weights, strict=True):
        one.put(message(name, s, omega), weight)
    many.extend(names, omegas, t_n=20, sequence=sequence, weights=weights)
    assert_same(one, many)


def assert_same(a: Inbox, b: Inbox) -> None:
    ours, theirs = a.state(), b.state()
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
    assert a.left == b.left
    one, other = np.random.default_rng(5), np.random.default_rng(5)
    assert [a.draw(one) for _ in range(20)] == [b.draw(other) for _ in range(20)]


class InboxMachine(RuleBasedStateMachine):
    """Any order of calls against a dictionary; and a restored inbox draws the same."""

    @initialize()
    def begin(self) -> None:
        self.inbox, self.rng = Inbox(1), np.random.default_rng(0)
        self.peers: dict[str, list[Any]] = {}  # sequence, omega, weight, used

    @rule(
        name=st.sampled_from("abcdefghijklmnopqrstuvwxyz"),
        sequence=st.integers(0, 9),
        omega=st.floats(-1, 1, width=32),
        weight=st.none() | st.floats(0, 1e6),
    )
    def put(self, name: str, sequence: int, omega: float, weight: float | None) -> None:
        held = self.peers.get(name, [-1, 0.0, 1.0, False])
        newer = sequence > held[0]
        assert self.inbox.put(message(name, sequence, [omega]), weight) == newer
        if newer:
            self.peers[name] = [sequence, omega, held[2] if weight is None else weight, False]

    @precondition(lambda self: self.peers)
    @rule(data=st.data())
    def weigh(self, data: st.DataObject) -> None:
        n = len(self.peers)
        weights = data.draw(st.lists(st.floats(0, 1e6), min_size=n, max_size=n))
        self.inbox.weigh(weights)
        for peer, weight in zip(self.peers.values(), weights, strict=True):
            peer[2] = weight

    @rule()
    def draw_and_use(self) -> None:
        row = self.inbox.draw(self.rng)
        assert (row is None) == (self.inbox.left == 0)
        if row is not None:
            _, omega, weight, used = self.peers[self.inbox.sender(row)]
            assert not used and weight > 0 and self.inbox.omega(row).tolist() == [omega]
            self.inbox.use(row)
            self.peers[self.inbox.sender(row)][3] = True

    @invariant()
    def agrees(self) -> None:
        assert len(self.inbox) == len(self.peers)
        assert self.inbox.left == sum(w > 0 and not used for *_, w, used in self.peers.values())

    def teardown(self) -> None:
        assert_same(self.inbox, Inbox.restore(self.inbox.state()))


TestInboxMachine = InboxMachine.TestCase
TestInboxMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_a_restored_inbox_has_the_same_rows_and_the_same_draws() -> None:
    inbox = filled(ROWS + 50, weights=np.random.default_rng(0).random(ROWS + 50))
    for row in range(0, ROWS + 50, 7):
        inbox.use(row)
    again = Inbox.restore(inbox.state())
    assert_same(inbox, again)
    assert not again.put(message("peer-7"))
    assert again.put(message("peer-7", 2)) and len(again) == len(inbox)
    assert_same(Inbox(3), Inbox.restore(Inbox(3).state()))
    with pytest.raises(ValueError, match="not written by state"):
        Inbox.restore({**inbox.state(), "used": np.zeros(3, dtype=bool)})


def test_the_matrix_comes_in_read_only_pieces() -> None:
    inbox = filled(ROWS + 3)
    pieces = list(inbox.matrix)
    assert [piece.shape for piece in pieces] == [(ROWS, 2), (3, 2)]
    np.testing.assert_array_equal(np.concatenate(pieces), inbox.state()["omega"])
    with pytest.raises(ValueError, match="read-only"):
        pieces[0][0, 0] = 1.0
    assert inbox.put(message("peer-0", 2))  # the inbox itself can still write
    assert not list(Inbox(2).matrix)


def test_the_weights_of_some_rows() -> None:
    """In the order asked for, twice if asked twice, from pieces far apart; a copy."""
    inbox = filled(2 * ROWS + 3)
    for rows in ([], [0], [5, 2, 2], [2 * ROWS + 2, 0, ROWS, ROWS - 1, 7], range(2 * ROWS + 3)):
        found = inbox.omegas(np.array(rows, dtype=np.intp))
        assert (found.shape, found.dtype) == ((len(rows), 2), np.float32)
        for row, omega in list(zip(rows, found, strict=True))[:50]:
            assert omega.tolist() == inbox.omega(row).tolist()
    np.testing.assert_array_equal(found, np.concatenate(list(inbox.matrix)))
    found[:] = 0.0
    assert inbox.omega(1).any()


def test_the_weights_of_some_rows_are_the_latest() -> None:
    inbox = filled(4)
    inbox.put(message("peer-2", 2, omega=[8.0, 9.0]))
    assert inbox.omegas(np.array([2, 3])).tolist() == [[8.0, 9.0], [6.0, 7.0]]
    inbox.use(2)
    assert inbox.omegas(np.array([2])).tolist() == [[8.0, 9.0]]
