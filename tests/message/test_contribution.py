"""Contributions to private releases as they travel."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from contracts.releases import contribution, private, released, unsigned_contribution

from fedbo import Message
from fedbo.federation.shared import Shared
from fedbo.message import MessageRefused, Release, Withdrawal, read
from fedbo.trust import KeyPair, verify

OURS = private()
D, CELLS = Shared.of(OURS).shape_coordinates, len(Shared.of(OURS).cells)


def test_it_travels_as_bytes() -> None:
    y = np.random.default_rng(0).standard_normal(D)
    one = contribution(OURS, cell=3, y=y)
    again = Message.decode(one.encode())
    assert again == one == read(one.encode())
    assert (again.kind, again.body.cell) == ("contribution", 3)
    assert again.body.y.dtype == np.float32 and (again.body.y == y.astype(np.float32)).all()
    assert (again.body.M, again.parameters) == (D, D + 1)
    assert len(one.encode()) < 250
    Shared.of(OURS).check(again)
    verify(again)


@pytest.mark.parametrize(
    "body",
    [
        ["contribution"],
        ["contribution", bytes(4 * D), 0],
        ["contribution", bytes(4 * D - 1), 0, bytes(4)],
        ["contribution", bytes(4 * D), True, bytes(4)],
        ["contribution", bytes(4 * D), 0.5, bytes(4)],
        ["contribution", bytes(4 * D), 0, bytes(3)],
        ["contribution", bytes(4 * D), 0, bytes(5)],
        ["contribution", bytes(4 * D), 0, bytes(4), None],
    ],
)
def test_hostile_fields_are_refused(body: list[Any]) -> None:
    one = contribution(OURS)
    whole = msgspec.msgpack.decode(one.encode())
    assert whole[-1] == ["contribution", one.body.y.tobytes(), 0, Shared.of(OURS).basis.digest]
    whole[-1] = body
    with pytest.raises(MessageRefused):
        read(msgspec.msgpack.encode(whole))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cell": CELLS}, f"expected M = {D} and {CELLS} cells"),
        ({"cell": -1}, f"expected M = {D} and {CELLS} cells"),
        ({"y": np.full(D, 1e300)}, "has norm inf"),
        ({"y": np.full(D, 1e9)}, "has norm"),
        ({"basis": bytes(4)}, "other directions of the features, 00000000, .*update NumPy"),
        ({"y": np.ones(D + 1)}, f"it has M = {D + 1}, expected M = {D}"),
        ({"fingerprint": private(seed=1).fingerprint}, "foreign features"),
    ],
)
def test_one_that_does_not_fit_is_refused(given: dict[str, Any], text: str) -> None:
    one = contribution(OURS, **given)
    for same in (one, Message.decode(one.encode())):
        with pytest.raises(MessageRefused, match=text):
            Shared.of(OURS).check(same)


def test_each_kind_of_content_is_recognised() -> None:
    keys = KeyPair.generate()
    gone = keys.sign(Withdrawal(fingerprint=bytes(OURS.fingerprint), sender="a", sequence=1))
    for content in (unsigned_contribution(OURS), contribution(OURS), released(OURS), gone):
        for data in (content.encode(), bytearray(content.encode()), memoryview(content.encode())):
            found = read(data)
            assert found == content and type(found) is type(content)


def test_a_signature_is_for_one_kind_of_content() -> None:
    """A signed contribution cannot be passed off as a release or a withdrawal."""
    signed = contribution(OURS)
    for kind in (Release, Withdrawal):
        with pytest.raises(MessageRefused):
            kind.decode(signed.encode())
    header = {"fingerprint": OURS.fingerprint, "sender": signed.sender, "sequence": signed.sequence}
    forged = Withdrawal(key=signed.key, signature=signed.signature, **header)
    with pytest.raises(MessageRefused, match="wrong signature"):
        verify(forged)
