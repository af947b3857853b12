"""The compact body on the wire: its bytes are pinned, short, and nothing wrong gets through."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo import Federation, Float
from fedbo.federation.shared import Shared
from fedbo.message import Message, MessageRefused
from fedbo.message.compact import Compact
from fedbo.trust import KeyPair

LEVELS, COUNTS = (5, 0, -7), (1, 0, 2, 9)
OURS = Federation({"x": Float(0, 1)})
K, CELLS = Shared.of(OURS).coordinates, len(Shared.of(OURS).cells)


def compact(
    levels: Any = LEVELS,
    scale: float = 0.5,
    counts: Any = COUNTS,
    tip: bytes = b"",
    **changes: Any,
) -> Message:
    header = {"fingerprint": OURS.fingerprint, "sender": "site-a", "sequence": 1}
    header |= {"basis": Shared.of(OURS).basis.digest, **changes}
    total = int(np.minimum(np.sum(counts, dtype=float), 2**31 - 1))
    return Message.of_compact(levels, scale, counts, tip, **{"t_n": total, **header})


def body(**changes: Any) -> Compact:
    scale = np.array([0.5], "<f4").tobytes()
    good = {
        "basis": bytes(4),
        "k": 2,
        "cells": 3,
        "scale": scale,
        "packed": b"\xf8\x6c",
        "tip": b"",
    }
    return Compact(**{**good, **changes})  # levels 7 and 0, counts 1, 2 and 3 or more


def test_the_wire_format_is_pinned() -> None:
    data = compact(sender="a", sequence=2, tip=b"\x1b", fingerprint=bytes(16)).encode()
    # levels + 8 are d, 8 and 1; counts are 01 00 10 11 in bits; then four zeros
    fields = [1, bytes(16), "a", 2, b"", b"", 12]
    fields.append(
        [
            "compact",
            Shared.of(OURS).basis.digest,
            3,
            4,
            b"\x00\x00\x00\x3f",
            b"\xd8\x14\xb0",
            b"\x1b",
        ]
    )
    assert data == msgspec.msgpack.encode(fields)
    message = Message.decode(data)
    assert message.body.nu.tolist() == [2.5, 0.0, -3.5]
    assert message.body.counts.tolist() == [1, 0, 2, 4]
    assert message.tip == b"\x1b" and compact().tip == b""


def test_a_large_body_has_67_bytes() -> None:
    counters: dict[str, Any] = {"sequence": 2**32 - 1, "t_n": 2**31 - 1}
    tip = bytes(4)  # of a point in 8 dimensions
    largest = compact(np.full(40, 7), 1.0, np.full(64, 255), tip, sender="ä" * 32, **counters)
    assert len(msgspec.msgpack.encode(largest.body)) == 67
    assert largest.nbytes == 167
    assert KeyPair.generate().sign(largest).nbytes == 263


@st.composite
def levels(draw: st.DrawFn) -> list[int]:
    """Whole numbers of which the largest is 7 or −7."""
    rest = draw(st.lists(st.integers(-7, 7), max_size=39))
    place = draw(st.integers(0, len(rest)))
    return [*rest[:place], draw(st.sampled_from([-7, 7])), *rest[place:]]


@given(
    levels=levels() | st.integers(1, 40).map(lambda k: [0] * k),
    scale=st.floats(2.0**-126, 2.0**100, width=32, allow_subnormal=False),
    counts=st.lists(st.integers(0, 300), min_size=1, max_size=64),
)
def test_it_comes_back_bit_for_bit(levels: list[int], scale: float, counts: list[int]) -> None:
    message = compact(levels, scale if any(levels) else 0.0, counts)
    again = Message.decode(bytearray(message.encode()))
    assert again == message and again.encode() == message.encode()
    assert (again.kind, again.body.M) == ("compact", len(levels))
    assert again.body.counts.tolist() == [(0, 1, 2, 4)[min(count, 3)] for count in counts]
    expected = np.array(levels) * (scale if any(levels) else 0.0)
    np.testing.assert_array_equal(again.body.nu, expected.astype(np.float32))


@pytest.mark.parametrize(
    "changes",
    [
        {"k": 0},
        {"k": 41, "cells": 3, "packed": bytes(22)},
        {"k": 2**62},
        {"packed": b"\xf8\x6d"},  # a bit after the last count
        {"packed": b"\x08\x6c"},  # level -8
        {"packed": b"\xe8\x6c"},  # the largest level is 6
        {"packed": b"\x88\x6c"},  # all levels are 0, but the scale is not
        {"scale": bytes(4)},
        {"scale": bytes(3)},
        {"scale": np.array([math.nan], "<f4").tobytes()},
        {"scale": b"\x01\x00\x00\x00"},  # subnormal
    ],
)
def test_a_body_with_something_wrong_is_refused(changes: dict[str, Any]) -> None:
    body()
    with pytest.raises(MessageRefused, match=r"packed has|the largest level is"):
        body(**changes)


def test_the_cells_hold_as_many_trials_as_the_header_says() -> None:
    for counts, t_n in ([1, 0, 2], 0), ([1, 0, 2], 2), ([1, 0, 2], 4), ([3, 1], 3):
        with pytest.raises(MessageRefused, match=rf"cells hold \d trials .*, expected t_n = {t_n}"):
            compact(counts=counts, t_n=t_n)
    compact(counts=[3, 1], t_n=4)
    compact(counts=[3, 1], t_n=10_000)  # 3 may mean more


def test_it_must_fit_the_federation() -> None:
    def message(scale: float, k: int = K, cells: int = CELLS, **given: Any) -> Message:
        return compact([7] + [0] * (k - 1), scale, [9] + [0] * (cells - 1), **given)

    limit = 100 * (math.sqrt(K) + math.sqrt(9 / 0.1) / 2)
    Shared.of(OURS).check(message(0.999 * limit / 7))
    for wrong, why in (
        (message(0.5, k=K + 1), f"M = {K + 1}, expected M = {K}"),
        (message(0.5, cells=CELLS + 1), f"{CELLS} cells"),
        (message(1.001 * limit / 7), r"nu has norm .*, expected at most"),
        (message(3e38), "nu has norm inf"),
        (message(0.5, basis=b"abcd"), "other directions of the features, 61626364, .*update NumPy"),
    ):
        OURS.check(wrong)  # its header fits
        with pytest.raises(MessageRefused, match=why):
            Shared.of(OURS).check(wrong)


@given(st.data())
def test_hostile_bytes_are_refused_or_have_one_spelling(data: st.DataObject) -> None:
    """Some bytes changed, anywhere, or the body replaced by anything that looks like one."""
    wire = bytearray(compact().encode())
    if data.draw(st.booleans()):
        for _ in range(data.draw(st.integers(1, 3))):
            wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    else:
        fields = msgspec.msgpack.decode(bytes(wire))
        anything = st.binary(max_size=8) | st.integers(-3, 3) | st.floats() | st.none() | st.text()
        fields[-1] = ["compact", *data.draw(st.lists(anything, max_size=7))]
        wire = bytearray(msgspec.msgpack.encode(fields))
    try:
        message = Message.decode(wire)
    except MessageRefused:
        return
    assert message.encode() == wire
    if message.kind == "compact":
        assert np.abs(message.body.levels).max() in (0, 7)
        assert np.minimum(message.body.counts, 3).sum(dtype=int) <= message.t_n
