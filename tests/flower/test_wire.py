"""What comes from the other side is checked."""

import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedbo.flower import wire

GOOD = {"round": 1, "trials": 3, "heard": [b"a", b"bc"], "patience": 2.5}


def test_there_and_back():
    asked = wire.Instruction(**GOOD)
    assert wire.instruction(wire.packed(asked)) == asked
    empty = wire.Instruction(**GOOD | {"heard": []})
    assert wire.instruction(wire.packed(empty)) == empty
    assert wire.answer(wire.packed(wire.Answer(message=b""))) == wire.Answer(message=b"")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"trials": -1}, "trials is -1"),
        ({"trials": 10**9}, "expected 0 to 10,000"),
        ({"trials": "3"}, "Expected `int`"),
        ({"heard": [1.0]}, "Expected `bytes`"),
        ({"heard": b"abc"}, "Expected `array`"),
        ({"heard": [b""] * 1025}, "1,025 messages, expected up to 1,024"),
        ({"patience": float("nan")}, "patience is nan"),
        ({"patience": 0.0}, "patience is 0.0"),
        ({"patience": 1e300}, "expected up to 86400 s"),
    ],
)
def test_a_wrong_instruction(change, why):
    content = RecordDict({"fedbo": ConfigRecord(GOOD | change)})
    with pytest.raises(wire.Refused, match=why):
        wire.instruction(content)


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
        wire.answer(content)
