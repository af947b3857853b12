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

AGREED = Fingerprint.from_parts(space=1, features=1, kind="compact", scalars=1)
LEVELS, COUNTS = (5, 0, -127), (3, 0, 1, 7)


def compact(
    levels: Any = LEVELS, scale: float = 0.5, counts: Any = COUNTS, **changes: Any
) -> Message:
    header = {"fingerprint": AGREED, "epoch": 0, "sender": "site-a", "sequence": 1, **changes}
    total = int(np.minimum(np.sum(counts, dtype=float), 2**31 - 1))
    return Message.of_compact(levels, scale, counts, **{"t_n": total, **header})


def body(**changes: Any) -> Compact:
    packed = np.array([0.5], "<f4").tobytes()
    good = {"version": 1, "scale": packed, "levels": b"\x7f\x00", "counts": b"\x01\x02"}
    return Compact(**{**good, **changes})


def check(message: Message, **changes: Any) -> None:
    agreed = {"fingerprint": AGREED, "epoch": 0, "kind": "compact", "M": len(LEVELS)}
    message.check(**{**agreed, "noise_variance": 0.1, "cells": len(COUNTS), **changes})


def test_the_wire_format_is_pinned() -> None:
    data = compact(sender="a", sequence=2, epoch=4).encode()
    packed = [b"\x00\x00\x00\x3f", b"\x05\x00\x81", b"\x03\x00\x01\x07"]
    fields = [1, bytes(AGREED), 4, "a", 2, 11, ["compact", 1, *packed]]
    assert data == msgspec.msgpack.encode(fields)
    assert data.hex() == (
        f"9701c410{bytes(AGREED).hex()}04a161020b"
        "95a7636f6d7061637401c4040000003fc403050081c40403000107"
    )


def test_the_largest_body_has_124_bytes() -> None:
    counters: dict[str, Any] = {"epoch": 2**16 - 1, "sequence": 2**32 - 1, "t_n": 2**31 - 1}
    largest = compact(np.full(40, 127), 1.0, np.full(64, 255), sender="ä" * 32, **counters)
    assert len(msgspec.msgpack.encode(largest.body)) == 124
    assert largest.nbytes == 223
    if is_installed():
        assert KeyPair.generate().sign(largest).nbytes == 335


@st.composite
def levels(draw: st.DrawFn) -> list[int]:
    """Whole numbers of which the largest is 127, or all 0."""
    rest = draw(st.lists(st.integers(-127, 127), max_size=39))
    place = draw(st.integers(0, len(rest)))
    return [*rest[:place], draw(st.sampled_from([-127, 127])), *rest[place:]]


@given(
    levels=levels() | st.integers(1, 40).map(lambda k: [0] * k),
    scale=st.floats(2.0**-126, 2.0**100, width=32, allow_subnormal=False),
    counts=st.lists(st.integers(0, 254), min_size=1, max_size=64),
)
def test_it_comes_back_bit_for_bit(levels: list[int], scale: float, counts: list[int]) -> None:
    message = compact(levels, scale if any(levels) else 0.0, counts)
    again = Message.decode(bytearray(message.encode()))
    assert again == message and again.encode() == message.encode()
    assert again.kind == "compact" and len(levels) == again.M
    np.testing.assert_array_equal(again.counts, counts)
    expected = np.array(levels) * (scale if any(levels) else 0.0)
    np.testing.assert_array_equal(again.nu, expected.astype(np.float32))
    assert message.numbers == message.parameters == len(levels) + 1 + len(counts)


def test_its_numbers_are_read_only_and_it_has_no_others() -> None:
    message = compact()
    for name in ("omega", "covariance", "incumbent", "cell", "y"):
        with pytest.raises(AttributeError, match=name):
            getattr(message, name)
    for values in (message.nu, message.counts):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"version": 2}, "version 2, and this fedbo reads version 1; use the same version"),
        ({"version": 0}, "version 0"),
        ({"version": True}, "version True"),
        ({"scale": bytes(3)}, "scale has 3 bytes, expected 4"),
        ({"levels": b""}, "levels has no bytes"),
        ({"counts": b""}, "counts has no bytes"),
        ({"levels": b"\x80\x00"}, "a level is -128, expected -127 to 127"),
        ({"levels": b"\x7e\x00"}, "the largest level is 126, expected 127"),
        ({"levels": bytes(2)}, "scale is 0.5 and all levels are 0, expected scale 0"),
        ({"scale": bytes(4)}, "scale is 0, expected 1.18e-38 or more, and finite"),
        ({"levels": bytes(2), "scale": b"\x00\x00\x00\x80"}, "scale is -0 and all levels are 0"),
        *(
            ({"scale": np.array([bad], "<f4").tobytes()}, f"scale is {bad:.3g}, expected")
            for bad in (-0.5, math.inf, -math.inf, math.nan)
        ),
        ({"scale": b"\x01\x00\x00\x00"}, "scale is 1.4e-45, expected"),  # subnormal
    ],
)
def test_a_body_with_something_wrong_is_refused(changes: dict[str, Any], sentence: str) -> None:
    body()
    with pytest.raises(MessageRefused, match=sentence):
        body(**changes)


def test_a_body_of_a_later_version_is_refused_with_a_clear_sentence() -> None:
    fields = msgspec.msgpack.decode(compact().encode())
    fields[-1][1] = 2
    with pytest.raises(MessageRefused, match="this fedbo reads version 1; use the same version"):
        Message.decode(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize(
    ("levels", "counts", "sentence"),
    [
        ([0.5, 127.0], COUNTS, "levels has .*float64, expected one row of whole numbers"),
        ([[127]], COUNTS, r"levels has shape \(1, 1\)"),
        ([200, 127], COUNTS, "levels has 200, expected -128 to 127"),
        (LEVELS, [256, 1], "counts has 256, expected 0 to 255"),
        (LEVELS, [-1, 3], "counts has -1, expected 0 to 255"),
        (LEVELS, [], "counts has shape"),
    ],
)
def test_numbers_that_fit_no_byte_are_refused(levels: Any, counts: Any, sentence: str) -> None:
    with pytest.raises(MessageRefused, match=sentence):
        compact(levels, 0.5, counts, t_n=3)


def test_the_cells_hold_as_many_trials_as_the_header_says() -> None:
    for t_n in (0, 10, 12):
        with pytest.raises(MessageRefused, match=f"cells hold 11 trials, expected t_n = {t_n}"):
            compact(t_n=t_n)
    compact(counts=[255, 1], t_n=256)
    compact(counts=[255, 1], t_n=10_000)  # 255 may mean more
    with pytest.raises(MessageRefused, match="cells hold 256 trials, expected t_n = 255"):
        compact(counts=[255, 1], t_n=255)
    fields = msgspec.msgpack.decode(compact().encode())
    fields[5] += 1
    with pytest.raises(MessageRefused, match="cells hold 11 trials"):
        Message.decode(msgspec.msgpack.encode(fields))


def test_it_must_fit_the_federation() -> None:
    check(compact())
    with pytest.raises(MessageRefused, match="M = 3, expected M = 4"):
        check(compact(), M=4)
    check(compact(epoch=1), M=4)  # the number of coordinates follows the length scale
    for epoch in (0, 1):
        with pytest.raises(MessageRefused, match="counts of 4 cells, expected 64"):
            check(compact(epoch=epoch), cells=64)
        with pytest.raises(MessageRefused, match="nu holds NaN or infinity"):
            check(compact(scale=3e38, epoch=epoch))
    with pytest.raises(MessageRefused, match="of kind 'compact', expected 'summary'"):
        check(compact(), kind="summary")
    limit = 100 * (math.sqrt(3) + math.sqrt(11 / 0.1) / 2)
    check(compact([0, 0, 127], 0.999 * limit / 127))
    with pytest.raises(MessageRefused, match=r"nu has norm .*, expected at most"):
        check(compact([0, 0, 127], 1.001 * limit / 127))


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
        fields[-1] = ["compact", *data.draw(st.lists(anything, max_size=5))]
        wire = bytearray(msgspec.msgpack.encode(fields))
    try:
        message = Message.decode(wire)
    except MessageRefused:
        return
    assert message.encode() == wire
    if message.kind == "compact":
        largest = np.abs(np.frombuffer(message.body.levels, np.int8).astype(int)).max()
        assert largest in (0, 127)
        assert message.counts.sum(dtype=int) <= message.t_n
