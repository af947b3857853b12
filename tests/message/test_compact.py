"""The compact body on the wire: its bytes are pinned, short, and nothing wrong gets through."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.identity import KeyPair, is_installed
from fedbo.message import Fingerprint, Message, MessageRefused
from fedbo.message.compact import Compact

AGREED = Fingerprint.from_parts(space=1, features=1, kind="compact", scales=1)
LEVELS, COUNTS = (5, 0, -7), (1, 0, 2, 9)


def compact(
    levels: Any = LEVELS,
    scale: float = 0.5,
    counts: Any = COUNTS,
    tip: bytes = b"",
    **changes: Any,
) -> Message:
    header = {"fingerprint": AGREED, "sender": "site-a", "sequence": 1, **changes}
    total = int(np.minimum(np.sum(counts, dtype=float), 2**31 - 1))
    return Message.of_compact(levels, scale, counts, tip, **{"t_n": total, **header})


def body(**changes: Any) -> Compact:
    scale = np.array([0.5], "<f4").tobytes()
    good = {"version": 1, "k": 2, "cells": 3, "scale": scale, "packed": b"\xf8\x6c", "tip": b""}
    return Compact(**{**good, **changes})  # levels 7 and 0, counts 1, 2 and 3 or more


def check(message: Message, **changes: Any) -> None:
    agreed = {"fingerprint": AGREED, "kind": "compact", "M": len(LEVELS)}
    message.check(**{**agreed, "noise_variance": 0.1, "cells": len(COUNTS), **changes})


def test_the_wire_format_is_pinned() -> None:
    data = compact(sender="a", sequence=2, tip=b"\x1b").encode()
    # levels + 8 are d, 8 and 1; counts are 01 00 10 11 in bits; then four zeros
    fields = [1, bytes(AGREED), "a", 2, 12]
    fields.append(["compact", 1, 3, 4, b"\x00\x00\x00\x3f", b"\xd8\x14\xb0", b"\x1b"])
    assert data == msgspec.msgpack.encode(fields)
    assert data.hex() == (
        f"9601c410{bytes(AGREED).hex()}a161020c97a7636f6d70616374010304c4040000003fc403d814b0c4011b"
    )
    found = Message.decode(data)
    assert found.nu.tolist() == [2.5, 0.0, -3.5] and found.counts.tolist() == [1, 0, 2, 4]
    assert found.tip == b"\x1b" and compact().tip == b""


def test_a_large_body_has_62_bytes() -> None:
    counters: dict[str, Any] = {"sequence": 2**32 - 1, "t_n": 2**31 - 1}
    tip = bytes(4)  # of a point in 8 dimensions
    largest = compact(np.full(40, 7), 1.0, np.full(64, 255), tip, sender="ä" * 32, **counters)
    assert len(msgspec.msgpack.encode(largest.body)) == 62
    assert largest.nbytes == 158
    if is_installed():
        assert KeyPair.generate().sign(largest).nbytes == 262


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
    assert again.kind == "compact" and len(levels) == again.M
    assert again.counts.tolist() == [(0, 1, 2, 4)[min(count, 3)] for count in counts]
    expected = np.array(levels) * (scale if any(levels) else 0.0)
    np.testing.assert_array_equal(again.nu, expected.astype(np.float32))
    assert message.numbers == message.parameters == len(levels) + 1 + len(counts)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"version": 2}, "version 2, and this fedbo reads version 1; use the same version"),
        ({"k": 0}, "k is 0, expected 1 or more"),
        ({"k": 2**62}, "packed has 2 bytes, expected "),
        ({"packed": b"\xf8\x6d"}, "packed has more than zeros after its last count"),
        ({"packed": b"\x08\x6c"}, "a level is -8, expected -7 to 7"),
        ({"packed": b"\xe8\x6c"}, "the largest level is 6, expected 7"),
        ({"packed": b"\x88\x6c"}, "scale is 0.5 and all levels are 0, expected scale 0"),
        ({"scale": bytes(4)}, "scale is 0, expected 1.18e-38 or more, and finite"),
        ({"scale": np.array([math.nan], "<f4").tobytes()}, "scale is nan, expected"),
        ({"scale": b"\x01\x00\x00\x00"}, "scale is 1.4e-45, expected"),  # subnormal
    ],
)
def test_a_body_with_something_wrong_is_refused(changes: dict[str, Any], sentence: str) -> None:
    body()
    with pytest.raises(MessageRefused, match=sentence):
        body(**changes)


def test_the_cells_hold_as_many_trials_as_the_header_says() -> None:
    for t_n in (0, 2, 4, 12):
        with pytest.raises(MessageRefused, match=f"cells hold 3 trials, expected t_n = {t_n}"):
            compact(counts=[1, 0, 2], t_n=t_n)
    compact(counts=[3, 1], t_n=4)
    compact(counts=[3, 1], t_n=10_000)  # 3 may mean more
    with pytest.raises(MessageRefused, match="cells hold at least 4 trials, expected t_n = 3"):
        compact(counts=[3, 1], t_n=3)
    fields = msgspec.msgpack.decode(compact(counts=[1, 0, 2]).encode())
    fields[4] += 1
    with pytest.raises(MessageRefused, match="cells hold 3 trials"):
        Message.decode(msgspec.msgpack.encode(fields))


def test_it_must_fit_the_federation() -> None:
    check(compact())
    with pytest.raises(MessageRefused, match="M = 3, expected M = 4"):
        check(compact(), M=4)
    with pytest.raises(MessageRefused, match="counts of 4 cells, expected 64"):
        check(compact(), cells=64)
    with pytest.raises(MessageRefused, match="nu holds NaN or infinity"):
        check(compact(scale=3e38))
    with pytest.raises(MessageRefused, match="of kind 'compact', expected 'weights'"):
        check(compact(), kind="weights")
    limit = 100 * (math.sqrt(3) + math.sqrt(12 / 0.1) / 2)
    check(compact([0, 0, 7], 0.999 * limit / 7))
    with pytest.raises(MessageRefused, match=r"nu has norm .*, expected at most"):
        check(compact([0, 0, 7], 1.001 * limit / 7))


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
        assert np.minimum(message.counts, 3).sum(dtype=int) <= message.t_n
