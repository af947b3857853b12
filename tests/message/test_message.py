"""What a message promises: exact round trips, a known size, and refusals that say why."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbo import Federation, Float
from fedbo.federation.shared import Shared
from fedbo.message import Fingerprint, Message, MessageRefused
from fedbo.message.message import Belief, Weights
from fedbo.message.signed import DRAW

SPACE = {"C": Float(0, 1)}
WEIGHTS = Federation(SPACE, features=3, kind="weights")
BELIEF = Federation(SPACE, features=3, kind="belief")
floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
senders = st.text(min_size=1, max_size=16).filter(lambda s: s.isprintable() and DRAW not in s)


def weights(omega: Any = (0.5, -1.0, 2.0), **changes: Any) -> Message:
    header = {"sender": "site-a", "sequence": 1, "t_n": 20, **changes}
    return Message.of_weights(omega, **{"fingerprint": WEIGHTS.fingerprint, **header})


def belief(incumbent: float = 1.0, **changes: Any) -> Message:
    header = {"fingerprint": BELIEF.fingerprint, "sender": "site-a", "sequence": 1, "t_n": 20}
    covariance = np.diag([0.5, 0.25, 0.125]) + 0.0625
    return Message.of_belief([1.0, 2.0, 3.0], covariance, incumbent, **header | changes)


def test_whole_floats_and_integers_are_one_number_but_order_and_booleans_count() -> None:
    def of(space: object) -> Fingerprint:
        return Fingerprint.from_parts(space=space, features=0, kind=0, scales=0)

    assert of({"high": 10, "low": 1}) == of({"low": 1.0, "high": 10.0})
    assert of([["a", 1], ["b", 2]]) != of([["b", 2], ["a", 1]])
    assert of(True) != of(1)
    assert of(2**60 + 1) != of(2**60)
    with pytest.raises(ValueError, match="16 bytes, got 3"):
        Fingerprint(b"abc")


@given(
    omega=hnp.arrays(np.float32, st.integers(1, 40), elements=floats32),
    sender=senders,
    sequence=st.integers(0, 2**32 - 1),
    t_n=st.integers(0, 2**31 - 1),
)
def test_weights_come_back_bit_for_bit(
    omega: np.ndarray[Any, Any], sender: str, sequence: int, t_n: int
) -> None:
    message = weights(omega, sender=sender, sequence=sequence, t_n=t_n)
    data = message.encode()
    again = Message.decode(data)
    assert again == message and again.encode() == data
    assert again.body.omega.tobytes() == omega.tobytes() and again.body.omega.dtype == np.float32
    assert (again.sender, again.sequence, again.t_n) == (sender, sequence, t_n)
    assert (message.kind, message.nbytes) == ("weights", len(data))
    assert message.body.M == message.parameters == len(omega)


@given(
    root=hnp.arrays(np.float64, st.tuples(*[st.shared(st.integers(1, 8))] * 2), elements=floats32),
    incumbent=floats32,
)
def test_a_belief_comes_back_symmetric(root: np.ndarray[Any, Any], incumbent: float) -> None:
    nu = root[0].clip(-1e30, 1e30)
    square = ((root + root.T) / 2).clip(-1e30, 1e30)
    header: dict[str, Any] = {"sender": "b", "sequence": 2, "t_n": 3}
    message = Message.of_belief(nu, square, incumbent, fingerprint=bytes(16), **header)
    again = Message.decode(bytearray(message.encode()))
    assert again == message and (len(root), "belief") == (again.body.M, again.kind)
    np.testing.assert_array_equal(again.body.covariance, square.astype(np.float32))
    np.testing.assert_array_equal(again.body.nu, nu.astype(np.float32))
    assert again.body.incumbent == incumbent
    _, *parts = msgspec.msgpack.decode(message.encode())[-1]
    numbers = [len(part) // 4 if isinstance(part, bytes) else 1 for part in parts]
    assert message.parameters == sum(numbers)


def test_the_largest_weights_message_of_100_features_has_512_bytes() -> None:
    largest = weights(np.ones(100), sender="ä" * 32, sequence=2**32 - 1, t_n=2**31 - 1)
    assert largest.nbytes == 512


def test_the_wire_format_is_pinned() -> None:
    data = weights([1.0], sender="a", sequence=2, t_n=3, fingerprint=bytes(16)).encode()
    fields = [1, bytes(16), "a", 2, b"", b"", 3, ["weights", b"\x00\x00\x80\x3f"]]
    assert data == msgspec.msgpack.encode(fields)


def test_arrays_are_read_only_and_those_of_the_other_kind_are_missing() -> None:
    with pytest.raises(AttributeError, match="omega"):
        belief().body.omega  # noqa: B018
    with pytest.raises(ValueError, match="read-only"):
        weights().body.omega[0] = 1.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sender": "ä" * 33}, "expected 1 to 64 bytes"),
        ({"sender": "\ud800"}, "expected 1 to 64 bytes"),
        ({"sender": "\x1b[31mred"}, r"the name is '\\x1b\[31mred', expected"),
        ({"sender": "a\u202eb"}, r"the name is 'a\\u202eb', expected"),  # to the left
        ({"sequence": -1}, "sequence is -1, expected 0 to 4294967295"),
        ({"t_n": 2**31}, "t_n is 2147483648, expected 0 to 2147483647"),
        ({"fingerprint": b"short"}, r"have \(5, 0, 0\) bytes, expected 16"),
        ({"omega": [[1.0]]}, r"omega has shape \(1, 1\)"),
    ],
)
def test_a_bad_header_or_shape_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MessageRefused, match=sentence):
        weights(**changes)
    if "sequence" in changes:
        fields = msgspec.msgpack.decode(weights().encode())
        with pytest.raises(MessageRefused, match=sentence):
            Message.decode(msgspec.msgpack.encode([*fields[:3], -1, *fields[4:]]))


def test_a_body_of_wrong_size_or_kind_is_refused() -> None:
    forged = msgspec.structs.replace(belief(), fingerprint=bytes(WEIGHTS.fingerprint))
    with pytest.raises(MessageRefused, match="of kind 'belief', expected 'weights'"):
        Shared.of(WEIGHTS).check(forged)
    with pytest.raises(MessageRefused, match="foreign kind"):
        Shared.of(WEIGHTS).check(belief())
    with pytest.raises(MessageRefused, match="M = 4, expected M = 3"):
        Shared.of(WEIGHTS).check(weights(np.ones(4)))
    for build in (
        lambda: Weights(b"abc"),
        lambda: Belief(b"", bytes(4), 0.0),
        lambda: Belief(bytes(8), bytes(8), 0.0),
    ):
        with pytest.raises(MessageRefused, match="bytes"):
            build()


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(MessageRefused):
        Message.decode(data)


@pytest.mark.parametrize("data", [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc1", b""])
def test_hostile_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(MessageRefused, match="bytes are no message"):
        Message.decode(data)


def test_a_truncated_or_longer_message_another_version_and_unknown_fields_are_refused() -> None:
    data = belief().encode()
    for wrong in (*(data[:end] for end in range(len(data))), data + b"\x00"):
        with pytest.raises(MessageRefused):
            Message.decode(wrong)
    fields = msgspec.msgpack.decode(weights().encode())
    for other in ([9, *fields[1:]], [*fields, 0], [*fields[:-1], ["other", b""]]):
        with pytest.raises(MessageRefused, match="bytes are no message"):
            Message.decode(msgspec.msgpack.encode(other))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_belief_is_judged_in_all_its_parts(bad: float) -> None:
    numbers, good = np.array([bad, 0, 0], "<f4").tobytes(), bytes(12)
    for body in (
        Belief(numbers, bytes(24), 0.0),
        Belief(good, numbers + bytes(12), 0.0),
        Belief(good, bytes(24), bad),
    ):
        with pytest.raises(MessageRefused, match=r"norm (nan|inf), expected at most"):
            Shared.of(BELIEF).check(msgspec.structs.replace(belief(), body=body))


@given(t_n=st.integers(0, 10**6))
def test_the_norm_is_limited_far_above_that_of_honest_beliefs(t_n: int) -> None:
    limit = 100 * (math.sqrt(3) + math.sqrt(t_n / 0.1) / 2)
    Shared.of(WEIGHTS).check(weights([0, 0.999 * limit, 0], t_n=t_n))
    for large in (1.001 * limit, 1e300):
        with pytest.raises(MessageRefused, match=r"has norm .*, expected at most"):
            Shared.of(WEIGHTS).check(weights([0, large, 0], t_n=t_n))
    with pytest.raises(MessageRefused, match="incumbent has norm"):
        Shared.of(BELIEF).check(belief(-1.001 * limit, t_n=t_n))
    rng = np.random.default_rng(t_n)
    Phi = rng.normal(size=(min(t_n, 200), 100))
    Phi /= np.linalg.norm(Phi, axis=1, keepdims=True)
    y = rng.choice([-1.0, 1.0], size=len(Phi))
    nu = np.linalg.solve(Phi.T @ Phi + 0.1 * np.eye(100), Phi.T @ y)
    assert np.linalg.norm(nu) <= 10 + math.sqrt(t_n / 0.1) / 2
