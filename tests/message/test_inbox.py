"""The inbox: one message for each peer, draws from P_N without replacement, exact save and load."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from contracts.inboxes import hold_all
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fedbo.message import Fingerprint, Message
from fedbo.message.inbox import _BLOCK, CHANCE_LIMIT, Held, Inbox, held

AGREED = Fingerprint.from_parts(space=0, features=0, kind="weights", scales=0)


def message(sender: str, sequence: int = 1, omega: Any = (0.0, 0.0), t_n: int = 20) -> Held:
    header: Any = {"fingerprint": AGREED, "sender": sender, "sequence": sequence, "t_n": t_n}
    return held(Message.of_weights(omega, **header))


def filled(n: int, M: int = 2, chance: Any = 1.0) -> Inbox:
    inbox = Inbox(M)
    assert hold_all(inbox, np.arange(n * M).reshape(n, M), chance=chance) == n == len(inbox)
    return inbox


def drawn(inbox: Inbox, rng: np.random.Generator) -> int:
    row = inbox.draw(rng)
    assert row is not None
    return row


def drawn_by_hand(inbox: Inbox, rng: np.random.Generator) -> int | None:
    """The definition: rows are intervals of [0, total), as long as their chance; one holds u."""
    lengths = [0.0 if u else c for c, u in zip(inbox.chance, inbox.used, strict=True)]
    if not any(lengths):
        return None
    u = rng.random() * sum(lengths)
    for row, length in enumerate(lengths):
        if u < length:
            return row
        u -= length
    raise AssertionError("u is beyond all intervals")


def test_nothing_left_draws_none_and_takes_no_random_number() -> None:
    rng, untouched = np.random.default_rng(0), np.random.default_rng(0)
    assert Inbox(2).draw(rng) is None
    inbox = filled(3, chance=[0, 0, 0])
    assert inbox.draw(rng) is None and inbox.left == 0
    inbox = filled(3, chance=[0, 1, 0])
    inbox.use(1)
    inbox.use(1)  # twice is once
    assert inbox.draw(rng) is None and inbox.left == 0
    assert rng.bit_generator.state == untouched.bit_generator.state


@pytest.mark.parametrize("n", [1, 28, _BLOCK - 1, _BLOCK, _BLOCK + 1, 5 * _BLOCK + 3])
def test_draws_are_those_of_the_definition_with_the_same_random_numbers(n: int) -> None:
    chance = np.random.default_rng(1).exponential(size=n)
    chance[1::3] = 0.0
    for inbox in (filled(n), filled(n, chance=chance)):
        one, other = np.random.default_rng(2), np.random.default_rng(2)
        for _ in range(min(n, 60)):
            row = inbox.draw(one)
            assert row == drawn_by_hand(inbox, other)
            if row is not None:
                inbox.use(row)
        assert one.random() == other.random()


@pytest.mark.parametrize("scale", [5e-324, 1e-300, CHANCE_LIMIT])
def test_extreme_chances_draw_only_what_has_a_chance(scale: float) -> None:
    chance = np.zeros(2 * _BLOCK)
    chance[[1, 5, _BLOCK + 2]] = scale
    inbox, rng = filled(2 * _BLOCK, chance=chance), np.random.default_rng(0)
    assert {inbox.draw(rng) for _ in range(200)} == {1, 5, _BLOCK + 2}


class InboxMachine(RuleBasedStateMachine):
    """Any order of calls against a dictionary; and a restored inbox draws the same."""

    @initialize()
    def begin(self) -> None:
        self.inbox, self.rng = Inbox(1), np.random.default_rng(0)
        self.peers: dict[str, list[Any]] = {}  # sequence, omega, chance, used

    @rule(
        name=st.sampled_from("abcdefghijklmnopqrstuvwxyz"),
        sequence=st.integers(0, 9),
        omega=st.floats(-1, 1, width=32),
        chance=st.floats(0, 1e6),
    )
    def put(self, name: str, sequence: int, omega: float, chance: float) -> None:
        newer = name not in self.peers or sequence > self.peers[name][0]
        assert self.inbox.hold(message(name, sequence, [omega]), chance) == newer
        if newer:
            self.peers[name] = [sequence, omega, chance, False]

    @rule()
    def draw_and_use(self) -> None:
        row = self.inbox.draw(self.rng)
        assert (row is None) == (self.inbox.left == 0)
        if row is not None:
            _, omega, chance, used = self.peers[self.inbox.sender(row)]
            assert not used and chance > 0 and self.inbox.omega[row].tolist() == [omega]
            self.inbox.use(row)
            self.peers[self.inbox.sender(row)][3] = True

    @invariant()
    def agrees(self) -> None:
        assert self.inbox.senders == [*self.peers]
        assert self.inbox.left == sum(c > 0 and not used for *_, c, used in self.peers.values())

    def teardown(self) -> None:
        again = Inbox(self.inbox.M, self.inbox.D)
        again.restore(self.inbox.state())
        assert again.state() == self.inbox.state() and again.left == self.inbox.left
        one, other = np.random.default_rng(5), np.random.default_rng(5)
        assert [self.inbox.draw(one) for _ in range(20)] == [again.draw(other) for _ in range(20)]


TestInboxMachine = InboxMachine.TestCase
TestInboxMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_drawing_is_fast_with_many_peers() -> None:
    """About 0.1 ms at 100,000 peers on a quiet machine; a query costs several ms."""
    inbox, rng, times = filled(100_000), np.random.default_rng(0), []
    for _ in range(50):
        start = time.perf_counter()
        inbox.use(drawn(inbox, rng))
        times.append(time.perf_counter() - start)
    assert min(times) < 5e-4


def test_removed_senders_are_forgotten_and_the_others_stay() -> None:
    inbox = Inbox(2)
    hold_all(inbox, [[1, 1], [2, 2], [3, 3], [4, 4]], "abcd", t_n=[1, 2, 3, 4], sequence=9)
    inbox.use(3)
    assert inbox.remove(["b", "nobody", "a"]) == 2
    assert inbox.senders == ["c", "d"]
    assert inbox.omega.tolist() == [[3, 3], [4, 4]]
    assert (inbox.t_n.tolist(), inbox.used.tolist(), inbox.left) == ([3, 4], [False, True], 1)
    assert hold_all(inbox, [[7, 7], [8, 8]], "ad", t_n=5, sequence=[1, 10]) == 2
    assert inbox.senders == ["c", "d", "a"]
    assert inbox.omega.tolist() == [[3, 3], [8, 8], [7, 7]]
    assert inbox.remove(inbox.senders) == 3
    assert len(inbox) == 0 and inbox.draw(np.random.default_rng(0)) is None


_MILLION = """
import pathlib, re
import numpy as np
from fedbo.message.inbox import Held, Inbox

inbox = Inbox(100)
omega = np.random.default_rng(0).standard_normal((50_000, 100), dtype=np.float32)
for i in range(1_000_000):
    assert inbox.hold(Held(f"agent-{i}", 1, 20, omega[i % len(omega)]))
assert len(inbox) == inbox.left == 1_000_000
assert inbox.draw(np.random.default_rng(0)) == 636_961
# getrusage would count the memory of the process that started this one, too
status = pathlib.Path("/proc/self/status").read_text()
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/status, which Linux has")
@pytest.mark.slow
def test_a_million_messages_fit_in_750_mb() -> None:
    run = subprocess.run([sys.executable, "-c", _MILLION], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 750e6
