"""What comes from the other side is checked."""

import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedbo.flower import wire

GOOD = {"round": 1, "trials": 3, "heard": [b"a", b"bc"], "patience": 2.5}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("trials", [-1, 10**9, "3"]),
        ("heard", [[1.0], b"abc", [b""] * 1025]),
        ("patience", [float("nan"), 0.0, 1e300]),
    ],
)
def test_a_wrong_instruction(name, values):
    for value in values:
        content = RecordDict({"fedbo": ConfigRecord(GOOD | {name: value})})
        with pytest.raises(wire.Refused, match=rf"\$\.{name}"):
            wire.unpacked(content, wire.Instruction)


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"fedbo": MetricRecord({"message": 1.0})}),
        RecordDict({"fedbo": ArrayRecord()}),
        RecordDict({"fedbo": ConfigRecord({})}),
        RecordDict({"fedbo": ConfigRecord({"message": "text"})}),
        RecordDict({"other": ConfigRecord({"message": b""})}),
    ],
)
def test_a_wrong_answer(content):
    with pytest.raises(wire.Refused):
        wire.unpacked(content, wire.Answer)
