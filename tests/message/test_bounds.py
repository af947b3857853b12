"""What comes from outside costs little memory: sizes are checked before anything is unpacked."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from contracts.releases import private, released

from fedbo import Agent, Federation, Float
from fedbo.message import MessageRefused, read
from fedbo.message.release import NEIGHBOURS

SIZE = 2**21  # of a hostile message, in bytes
OPEN, PLANNED = Federation({"x": Float(0, 1)}), private()


def _message(*body: Any, sender: str = "a") -> list[Any]:
    return [1, bytes(16), sender, 1, b"", b"", 5, [*body]]


def _release(votes: list[int], sums: list[int]) -> list[Any]:
    terms = [1.0, 0.1, 1, 5, 5, votes, 1.0, sums, 1.0, 1.0, 0, NEIGHBOURS]
    return [3, bytes(16), "hub", 1, b"", b"", *terms]


LARGE: dict[str, list[Any]] = {
    "compact": _message("compact", 2 * SIZE, 4, b"\0\0\0\x3f", b"\xff" * (SIZE + 1), b""),
    "tip": _message("compact", 3, 4, b"\0\0\0\x3f", b"\xd8\x14\xb0", bytes(SIZE)),
    "weights": _message("weights", bytes(SIZE)),
    "belief": _message("belief", bytes(4000), bytes(2 * 1000 * 1001), 1.0),
    "contribution": _message("contribution", bytes(SIZE), 0, None),
    "name": _message("weights", bytes(4), sender="a" * SIZE + "\U0001f600"),
    "votes": _release([2**40] * (SIZE // 9), [0]),
    "sums": _release([0], [1] * SIZE),
    "withdrawal": [4, bytes(16), "a", 1, bytes(SIZE), bytes(64)],
}


def peak(reader: Any, data: bytes) -> int:
    """Return how many bytes it takes to refuse these at most."""
    tracemalloc.start()
    try:
        with pytest.raises(MessageRefused):
            reader(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", LARGE)
@pytest.mark.parametrize("federation", [OPEN, PLANNED], ids=["open", "planned"])
def test_what_is_too_large_is_not_unpacked(form: str, federation: Federation) -> None:
    data, agent = msgspec.msgpack.encode(LARGE[form]), Agent(federation, name="b")
    assert len(data) > 100 * federation.most_bytes  # computed once
    assert peak(federation.read, data) < 2**14
    assert peak(agent.receive, data) < 2**14


@pytest.mark.parametrize("form", ["compact", "votes", "sums", "name", "tip"])
def test_without_a_federation_it_takes_a_few_times_its_size(form: str) -> None:
    data = msgspec.msgpack.encode(LARGE[form])
    assert peak(read, data) < 6 * len(data)


def test_the_largest_messages_are_read() -> None:
    for federation in (
        Federation({"x": Float(0, 1)}, kind=kind) for kind in ("compact", "weights", "belief")
    ):
        agent = Agent(federation, name="ä" * 32, seed=0)
        agent.tell({"x": 0.3}, 1.0)
        message = agent.message()
        signed = msgspec.structs.replace(message, key=bytes(32), signature=bytes(64))
        assert federation.read(signed.encode()) == signed
        assert signed.nbytes <= federation.most_bytes <= signed.nbytes + 512
    published = released(PLANNED)
    largest = tuple(np.full(len(published.votes), -(2**62)).tolist())
    noisy = msgspec.structs.replace(published, votes=largest, sums=(2**62,) * len(published.sums))
    assert PLANNED.read(noisy.encode()) == noisy


_GROWTH = """
import resource, sys
from fedbo import Federation, Float, MessageRefused
from fedbo.federation.shared import Shared

federation, data = Federation({"x": Float(0, 1)}), open(sys.argv[1], "rb").read()
Shared.of(federation).cells, Shared.of(federation).basis
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(8):
    try:
        federation.read(data)
    except MessageRefused:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_process_does_not_grow(tmp_path: Any) -> None:
    (tmp_path / "data").write_bytes(msgspec.msgpack.encode(LARGE["compact"]))
    command = [sys.executable, "-c", _GROWTH, str(tmp_path / "data")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 2**10
    assert int(run.stdout) * unit < 2**21
