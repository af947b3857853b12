"""What comes from the other side is checked."""

import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedbo.flower import wire

GOOD = {"round": 1, "trials": 3, "heard": [b"a", b"bc"], "patience": 2.5}


def test_there_and_back():
    task = wire.Instruction(**GOOD)
    assert wire.unpacked(wire.packed(task), wire.Instruction) == task
    empty = wire.Instruction(**GOOD | {"heard": []})
    assert wire.unpacked(wire.packed(empty), wire.Instruction) == empty
    answer = wire.Answer(message=b"")
    assert wire.unpacked(wire.packed(answer), wire.Answer) == answer


@pytest.mark.parametrize(
    "change",
    [
        {"trials": -1},
        {"trials": 10**9},
        {"trials": "3"},
        {"heard": [1.0]},
        {"heard": b"abc"},
        {"heard": [b""] * 1025},
        {"patience": float("nan")},
        {"patience": 0.0},
        {"patience": 1e300},
    ],
)
def test_a_wrong_instruction(change):
    content = RecordDict({"fedbo": ConfigRecord(GOOD | change)})
    with pytest.raises(wire.Refused, match=rf"\$\.{next(iter(change))}"):
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
