"""What a message promises: exact round trips, a known size, and refusals that say why."""

from __future__ import annotations

import math
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbo.message import Fingerprint, Kind, Message, MessageRefused
from fedbo.message.message import Belief, Weights

AGREED: dict[Kind, Fingerprint] = {
    kind: Fingerprint.from_parts(
        space=[["C", 0.0, 1.0]], features=["se", 3, 7], kind=kind, scales=[0.3]
    )
    for kind in get_args(Kind)
}
floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
senders = st.text(min_size=1, max_size=16).filter(lambda s: s.isprintable())


def weights(omega: Any = (0.5, -1.0, 2.0), **changes: Any) -> Message:
    header = {"sender": "site-a", "sequence": 1, "t_n": 20, **changes}
    return Message.of_weights(omega, **{"fingerprint": AGREED["weights"], **header})


def belief(incumbent: float = 1.0, **changes: Any) -> Message:
    header = {"sender": "site-a", "sequence": 1, "t_n": 20, **changes}
    covariance = np.diag([0.5, 0.25, 0.125]) + 0.0625
    return Message.of_belief(
        [1.0, 2.0, 3.0], covariance, incumbent, **{"fingerprint": AGREED["belief"], **header}
    )


def check(message: Message, **changes: Any) -> None:
    agreed = {"fingerprint": AGREED[message.kind], "kind": message.kind}
    message.check(**{**agreed, "M": 3, "noise_variance": 0.1, **changes})


def test_a_fingerprint_is_the_same_on_every_machine() -> None:
    assert str(AGREED["weights"]) == "b0913900-6b7b5e9e-021d46f1-3fbcbb73"  # sha256sum
    assert Fingerprint(bytes(AGREED["weights"])) == AGREED["weights"]


@pytest.mark.parametrize("part", ["space", "features", "kind", "scales"])
def test_a_fingerprint_tells_which_part_differs(part: str) -> None:
    parts: dict[str, object] = {"space": 1, "features": 1, "kind": 1, "scales": 1}
    ours, theirs = Fingerprint.from_parts(**parts), Fingerprint.from_parts(**{**parts, part: 2})
    assert ours.difference(theirs) == part
    assert ours.difference(ours) is None


def test_whole_floats_and_integers_are_one_number_but_order_and_booleans_count() -> None:
    def of(space: object) -> Fingerprint:
        return Fingerprint.from_parts(space=space, features=0, kind=0, scales=0)

    assert of({"high": 10, "low": 1}) == of({"low": 1.0, "high": 10.0})
    assert of((1, 2)) == of([1.0, 2.0])
    assert of([["a", 1], ["b", 2]]) != of([["b", 2], ["a", 1]])
    assert of(True) != of(1)
    assert of(2**60 + 1) != of(2**60)


def test_a_fingerprint_of_nan_or_of_a_wrong_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Fingerprint.from_parts(space=math.nan, features=0, kind=0, scales=0)
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
    assert again.omega.tobytes() == omega.tobytes() and again.omega.dtype == np.float32
    assert (again.sender, again.sequence, again.t_n) == (sender, sequence, t_n)
    assert message.nbytes == len(data)
    assert message.kind == "weights"
    assert message.M == message.parameters == message.numbers == len(omega)


@given(
    root=hnp.arrays(np.float64, st.tuples(*[st.shared(st.integers(1, 8))] * 2), elements=floats32),
    incumbent=floats32,
)
def test_a_belief_comes_back_symmetric(root: np.ndarray[Any, Any], incumbent: float) -> None:
    M = len(root)
    nu = root[0].clip(-1e30, 1e30)
    square = ((root + root.T) / 2).clip(-1e30, 1e30)
    header: dict[str, Any] = {"sender": "b", "sequence": 2, "t_n": 3}
    message = Message.of_belief(nu, square, incumbent, fingerprint=AGREED["belief"], **header)
    again = Message.decode(bytearray(message.encode()))
    assert again == message and again.M == M
    assert again.kind == "belief"
    np.testing.assert_array_equal(again.covariance, square.astype(np.float32))
    np.testing.assert_array_equal(again.nu, nu.astype(np.float32))
    assert again.incumbent == incumbent
    assert message.parameters == M + M**2 + 1  # as the paper counts for TAF
    assert message.numbers == M + M * (M + 1) // 2 + 1
    assert message.nbytes == len(message.encode())


def test_the_largest_weights_message_of_100_features_is_under_512_bytes() -> None:
    largest = weights(np.ones(100), sender="ä" * 32, sequence=2**32 - 1, t_n=2**31 - 1)
    assert largest.nbytes == 508
    assert weights(np.ones(100), sender="hospital-17").nbytes == 446


def test_the_wire_format_is_pinned() -> None:
    data = weights([1.0], sender="a", sequence=2, t_n=3).encode()
    fields = [1, bytes(AGREED["weights"]), "a", 2, 3, ["weights", b"\x00\x00\x80\x3f"]]
    assert data == msgspec.msgpack.encode(fields)


def test_arrays_are_read_only_and_those_of_the_other_kind_are_missing() -> None:
    with pytest.raises(AttributeError, match="omega"):
        belief().omega  # noqa: B018
    for name in ("nu", "covariance", "incumbent", "cell"):
        with pytest.raises(AttributeError, match=name):
            getattr(weights(), name)
    with pytest.raises(ValueError, match="read-only"):
        weights().omega[0] = 1.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sender": "ä" * 33}, "expected 1 to 64 bytes"),
        ({"sender": "\ud800"}, "surrogates not allowed"),
        ({"sender": "\x1b[31mred"}, r"sender is '\\x1b\[31mred', expected characters"),
        ({"sender": "a\u202eb"}, r"sender is 'a\\u202eb', expected characters"),  # to the left
        ({"sequence": -1}, "sequence is -1, expected 0 to 4294967295"),
        ({"t_n": 2**31}, "t_n is 2147483648, expected 0 to 2147483647"),
        ({"fingerprint": b"short"}, "fingerprint has 5 bytes, expected 16"),
        ({"omega": [[1.0]]}, r"omega has shape \(1, 1\)"),
    ],
)
def test_a_bad_header_or_shape_is_refused_when_built(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        weights(**changes)


def test_a_bad_covariance_is_refused_when_built() -> None:
    header: dict[str, Any] = {"sender": "a", "sequence": 0, "t_n": 0}
    header["fingerprint"] = AGREED["belief"]
    with pytest.raises(MessageRefused, match="covariance has 6 numbers, expected 3"):
        Message.of_belief([1.0, 2.0], np.eye(3), 0.0, **header)
    with pytest.raises(MessageRefused, match="covariance has 2 numbers, expected 3"):
        Belief(nu=bytes(8), covariance=bytes(8), incumbent=0.0)
    with pytest.raises(MessageRefused, match="omega has 3 bytes"):
        Weights(b"abc")
    with pytest.raises(MessageRefused, match="nu has 0 bytes"):
        Belief(nu=b"", covariance=bytes(4), incumbent=0.0)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(MessageRefused):
        Message.decode(data)


@pytest.mark.parametrize("data", [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc1", b""])
def test_hostile_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(MessageRefused, match="bytes are no message"):
        Message.decode(data)


@given(st.data())
def test_a_changed_byte_is_refused_or_gives_a_well_formed_message(data: st.DataObject) -> None:
    wire = bytearray(data.draw(st.sampled_from([weights(), belief(1.5)])).encode())
    place = data.draw(st.integers(0, len(wire) - 1))
    wire[place] = data.draw(st.integers(0, 255))
    try:
        message = Message.decode(wire)
    except MessageRefused:
        return
    assert Message.decode(message.encode()).encode() == message.encode()


def test_a_truncated_or_longer_message_is_refused() -> None:
    for message in (weights(), belief(1.0)):
        data = message.encode()
        for end in range(len(data)):
            with pytest.raises(MessageRefused):
                Message.decode(data[:end])
        with pytest.raises(MessageRefused):
            Message.decode(data + b"\x00")


def test_another_version_and_unknown_fields_are_refused() -> None:
    fields = msgspec.msgpack.decode(weights().encode())
    newer = [9, {"anything": "else"}, *fields[2:], "new"]
    with pytest.raises(MessageRefused, match="no message: it is something else"):
        Message.decode(msgspec.msgpack.encode(newer))
    for wrong in ([*fields, 0], [*fields[:-1], [*fields[-1], 0]], [*fields[:-1], ["other", b""]]):
        with pytest.raises(MessageRefused, match="bytes are no message"):
            Message.decode(msgspec.msgpack.encode(wrong))
    with pytest.raises(MessageRefused, match="sequence is -1"):
        Message.decode(msgspec.msgpack.encode([*fields[:3], -1, *fields[4:]]))
    with pytest.raises(MessageRefused, match=r"sender is 'a\\x1bb'"):
        Message.decode(msgspec.msgpack.encode([*fields[:2], "a\x1bb", *fields[3:]]))


@pytest.mark.parametrize(
    ("part", "meaning"),
    [("space", "ranges"), ("features", "seed"), ("kind", "another kind"), ("scales", "length")],
)
def test_a_foreign_fingerprint_is_refused_by_part(part: str, meaning: str) -> None:
    parts: dict[str, object] = {"space": 1, "features": 1, "kind": 1, "scales": 1}
    ours, theirs = Fingerprint.from_parts(**parts), Fingerprint.from_parts(**{**parts, part: 2})
    with pytest.raises(MessageRefused, match=f"of 'site-a': foreign {part}, .*{meaning}"):
        check(weights(fingerprint=theirs), fingerprint=ours)


def test_wrong_kind_and_wrong_length_are_refused() -> None:
    with pytest.raises(MessageRefused, match="of kind 'weights', expected 'belief'"):
        check(weights(), kind="belief")
    with pytest.raises(MessageRefused, match="M = 3, expected M = 100"):
        check(belief(), M=100)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(MessageRefused, match="omega holds NaN or infinity"):
        check(weights([0.0, bad, 0.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_belief_is_judged_in_all_its_parts(bad: float) -> None:
    numbers, good = np.array([bad, 0, 0], "<f4").tobytes(), bytes(12)
    bodies = {
        "nu": Belief(nu=numbers, covariance=bytes(24), incumbent=0.0),
        "covariance": Belief(nu=good, covariance=numbers + bytes(12), incumbent=0.0),
        "incumbent": Belief(nu=good, covariance=bytes(24), incumbent=bad),
    }
    for name, body in bodies.items():
        with pytest.raises(MessageRefused, match=f"{name} holds NaN or infinity"):
            check(msgspec.structs.replace(belief(body.incumbent), body=body))


@given(t_n=st.integers(0, 10**6), noise_variance=st.floats(1e-6, 1.0))
def test_the_norm_is_limited(t_n: int, noise_variance: float) -> None:
    limit = 100 * (math.sqrt(3) + math.sqrt(t_n) / (2 * math.sqrt(noise_variance)))
    check(weights([0, 0.999 * limit, 0], t_n=t_n), noise_variance=noise_variance)
    with pytest.raises(MessageRefused, match=r"omega has norm .*, expected at most"):
        check(weights([0, 1.001 * limit, 0], t_n=t_n), noise_variance=noise_variance)
    with pytest.raises(MessageRefused, match="incumbent has norm"):
        check(belief(-1.001 * limit, t_n=t_n), noise_variance=noise_variance)


def test_the_limit_is_far_above_honest_beliefs() -> None:
    rng = np.random.default_rng(0)
    for noise_variance in (1e-6, 0.1):
        for t_n in (1, 10, 200):
            Phi = rng.normal(size=(t_n, 100))
            Phi /= np.linalg.norm(Phi, axis=1, keepdims=True)
            y = rng.choice([-1.0, 1.0], size=t_n)
            Sigma = Phi.T @ Phi + noise_variance * np.eye(100)
            nu = np.linalg.solve(Sigma, Phi.T @ y)
            limit = 100 * (10 + math.sqrt(t_n / noise_variance) / 2)
            assert np.linalg.norm(nu) <= limit / 100


def test_a_repr_is_one_short_line() -> None:
    assert repr(belief()) == ("Message(belief, sender='site-a', sequence=1, t_n=20, M=3, 86 bytes)")
