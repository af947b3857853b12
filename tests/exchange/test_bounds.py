"""What is too large for a federation costs no memory, wherever its bytes come in."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from contracts.exchange import OURS, exchange_warnings, message, sequences, withdrawal

from fedbo import Agent, Federation, Float, MessageRefused
from fedbo.exchange import ExchangeWarning, FolderExchange
from fedbo.exchange.folder import file_name, name_of
from fedbo.files import seal
from fedbo.testing.keys import keys_of

MOST = 2**23  # bytes that reading may take
SIZES = [2**19, 2**22, 60 * 2**20]


@contextmanager
def lean() -> Iterator[None]:
    """Fail if the body takes more than `MOST` bytes at any moment."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def huge(size: int) -> bytes:
    """A compact message whose numbers take so many bytes, and that is well-formed but for that."""
    raw = msgspec.msgpack.decode(message().encode())
    body = raw[-1]
    at = next(i for i, field in enumerate(body) if isinstance(field, bytes) and len(field) > 4)
    levels = 2 * (size - 1)
    body[at], body[at - 3], body[at - 2] = b"\x99" * size, levels, 4
    return msgspec.msgpack.encode(raw)


@pytest.mark.parametrize("sender", ["evil/release-07", "evil/7/release-07", "hub/release-00"])
def test_nobody_is_heard_under_the_name_of_a_draw(tmp_path: Path, sender: str) -> None:
    """Draws of a private release stand for peers in an inbox, and have such names."""
    sent = message(sender=sender.replace("release", "raleese"))
    data = sent.encode().replace(b"raleese", b"release")
    exchange = FolderExchange(tmp_path / "exchange")
    exchange.publish(message(sender="good"))
    name = file_name(sender, sent.key)
    (exchange.folder / str(OURS.fingerprint) / name).write_bytes(seal("fedbo message 1", data))
    with pytest.warns(ExchangeWarning, match="of draws of private releases"):
        assert sequences(exchange) == {"good": 1}
    agent = Agent(OURS, name="target")
    with pytest.raises(MessageRefused, match="of draws of private releases"):
        agent.receive(data)
    with pytest.raises(MessageRefused, match="of draws of private releases"):
        Agent(OURS, name=sender)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "act",
    [
        lambda exchange: exchange_warnings(exchange),
        lambda exchange: exchange.holdings(),
        lambda exchange: exchange.publish(withdrawal(message())),
        lambda exchange: exchange.publish(message(sequence=9)),
    ],
)
def test_a_file_that_is_too_large_costs_no_memory(
    tmp_path: Path, act: Callable[[FolderExchange], object], size: int
) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    exchange.publish(message())
    path = exchange.folder / str(OURS.fingerprint) / name_of(message())
    path.write_bytes(seal("fedbo message 1", huge(size)))
    with lean():
        act(exchange)


@pytest.mark.parametrize("parameters", [1, 20])
def test_a_message_is_as_large_as_the_documents_say(parameters: int) -> None:
    """The table in `docs/reference/security.md`."""
    federation = Federation({f"x{i}": Float(0, 1) for i in range(parameters)})
    agent = Agent(federation, name="site-a", seed=0, keys=keys_of("site-a"))
    for i in range(20):
        agent.tell({f"x{j}": (i + j) % 21 / 20 for j in range(parameters)}, float(i))
    sent = agent.message()
    assert 33 <= len(msgspec.msgpack.encode(sent.body)) <= 72
    assert 162 <= sent.nbytes <= 201
