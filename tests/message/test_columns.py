"""How the inbox keeps its rows: no sender is lost, no empty row drawn, little memory, no O(N)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.message import Fingerprint, Message
from fedbo.message.columns import BLOCK, ROWS, Index, SumTree
from fedbo.message.inbox import Inbox

AGREED = Fingerprint.from_parts(space=0, features=0, kind="weights", scalars=0)


def filled(n: int, M: int, prefix: str = "agent-", weights: Any = None) -> Inbox:
    inbox, step = Inbox(M), 50_000
    omegas = np.random.default_rng(0).standard_normal((min(n, step), M), dtype=np.float32)
    for first in range(0, n, step):
        names = [f"{prefix}{i}" for i in range(first, min(first + step, n))]
        inbox.extend(names, omegas[: len(names)], t_n=20, sequence=1, weights=weights)
    assert len(inbox) == n
    return inbox


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=32), st.floats(0, 1, exclude_max=True))
def test_a_tree_finds_the_leaf_where_the_running_sum_passes(values: list[float], u: float) -> None:
    tree, filled_at_once = SumTree(32), SumTree(32)
    for leaf, value in enumerate(values):
        tree.put(leaf, value)
    filled_at_once.fill(np.array(values))
    assert tree.nodes.tobytes() == filled_at_once.nodes.tobytes()  # the same bits either way
    assert tree.total == pytest.approx(sum(values))
    if tree.total > 0:
        leaf, rest = tree.find(u * tree.total)
        assert values[leaf] > 0
        assert sum(values[:leaf]) + rest == pytest.approx(u * tree.total, rel=1e-9, abs=1e-300)


def test_a_draw_past_the_total_by_rounding_never_finds_an_empty_leaf() -> None:
    tree = SumTree(8)
    for leaf, value in ((0, 0.1), (2, 0.2), (5, 0.3)):
        tree.put(leaf, value)
    for u in (tree.total, np.nextafter(tree.total, 0), np.nextafter(tree.total, 1), 2.0):
        assert tree.find(float(u))[0] in {0, 2, 5}


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e200])
def test_extreme_weights_still_draw_only_what_has_weight(scale: float) -> None:
    weights = np.zeros(3 * BLOCK)
    weights[[1, BLOCK + 2]] = scale
    inbox, rng = filled(3 * BLOCK, 2, weights=weights), np.random.default_rng(0)
    assert {inbox.draw(rng) for _ in range(200)} == {1, BLOCK + 2}


def test_a_doubled_tree_finds_the_same() -> None:
    tree = SumTree(2)
    tree.put(1, 3.0)
    larger = tree.doubled()
    assert (larger.leaves, larger.total, larger.find(1.0)) == (4, 3.0, (1, 1.0))


def test_chunks_beyond_the_first_tree_are_drawn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo.message.inbox.SumTree", lambda leaves: SumTree(1))
    inbox, rng = filled(4 * ROWS + 1, 1), np.random.default_rng(0)
    assert inbox.left == 4 * ROWS + 1
    assert {(inbox.draw(rng) or 0) // ROWS for _ in range(200)} == {0, 1, 2, 3}


class Colliding(bytes):
    def __hash__(self) -> int:
        return -1


def test_the_index_survives_collisions_and_growth() -> None:
    names = [Colliding(str(i).encode()) for i in range(200)]
    index = Index(names.__getitem__)
    assert [index.row(name, i) for i, name in enumerate(names)] == list(range(200))
    assert [index.row(name, 999) for name in names] == list(range(200))


def test_the_index_knows_a_name_only_once_its_row_is_written() -> None:
    names: list[bytes] = []
    index = Index(names.__getitem__)  # an index that looked ahead would raise
    for i in range(20_000):
        name = b"%d" % i
        assert index.row(name, i) == i
        names.append(name)
    assert all(index.row(name, -1) == i for i, name in enumerate(names))


def test_every_sender_is_found_again_after_growth() -> None:
    inbox = filled(30_000, 2, "peer-")
    names = [f"peer-{i}" for i in range(30_000)]
    assert inbox.extend(names, np.zeros((30_000, 2)), t_n=1, sequence=1) == 0
    assert inbox.extend(names[::-1], np.ones((30_000, 2)), t_n=1, sequence=2) == 30_000
    assert len(inbox) == 30_000 and inbox.sender(29_999) == "peer-29999"


def resident() -> int:
    """Bytes of memory in use, or 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_message_of_100_features_takes_less_than_500_bytes() -> None:
    n = 12 * ROWS
    inbox = filled(n, 100, "a-sender-with-a-name-of-36-bytes")  # with its number
    assert len(inbox.sender(n - 1)) > 36
    assert inbox.nbytes / n < 490


def test_a_million_messages_fit_in_500_mb_and_no_step_looks_at_all() -> None:
    before = resident()
    large = filled(1_000_000, 100)
    assert large.left == 1_000_000
    assert large.nbytes < 5e8
    assert resident() - before < 5e8
    small = filled(100, 100)
    for step in (draw, draw_and_use, put):
        ratio = fastest(step, large) / fastest(step, small)
        assert ratio < 100, step.__name__  # about 1.5 on a quiet machine; 10,000 if it were O(N)


def fastest(step: Callable[[Inbox], None], inbox: Inbox) -> float:
    times = []
    for _ in range(50):
        begin = perf_counter()
        step(inbox)
        times.append(perf_counter() - begin)
    return min(times)


def draw(inbox: Inbox) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        inbox.draw(rng)


def draw_and_use(inbox: Inbox) -> None:
    row = inbox.draw(np.random.default_rng(0))
    assert row is not None
    inbox.use(row)


def put(inbox: Inbox) -> None:
    header: dict[str, Any] = {"fingerprint": AGREED, "epoch": 0, "sequence": 1, "t_n": 20}
    inbox.put(Message.of_weights(np.zeros(100), sender=f"new-{len(inbox)}", **header))
