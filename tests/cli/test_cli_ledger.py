"""`fedbo ledger`: what left, as a person reads it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cli.terminal import run, said

from fedbo import RGPE, Agent, Federation, Float, Message, Policy
from fedbo.errors import NotSent
from fedbo.exchange import ExchangeError, HubExchange, Ledger, MemoryExchange
from fedbo.exchange.latest import Content
from fedbo.message import Kind
from fedbo.testing.keys import keys_of


@pytest.fixture
def log(state: Path) -> Path:
    """The path of this user's log, which is not yet there."""
    return state / "ledger.jsonl"


def federation(kind: Kind = "weights") -> Federation:
    return Federation({"x": Float(0, 1)}, features=25, kind=kind)


def message(name: str = "site-a", scores: int = 1, kind: Kind = "weights") -> Message:
    policies: dict[Kind, Policy] = {"belief": RGPE()}
    agent = Agent(federation(kind), policies.get(kind), name=name, seed=0, keys=keys_of(name))
    for i in range(scores):
        agent.tell({"x": i / 10}, float(i))
    return agent.message()


def test_an_empty_log_says_where_it_looked(log: Path) -> None:
    assert str(log) in said("ledger")


def test_every_message_has_its_line(log: Path) -> None:
    """The golden text: whoever reads it must know what left."""
    exchange, ledger = MemoryExchange(), Ledger()
    for scores in (1, 2):
        ledger.publish(exchange, message(scores=scores))
    ledger.publish(exchange, message("site-b", 7))
    ledger.withdraw(exchange, federation(), "site-a", keys_of("site-a"))
    nbytes = message().nbytes
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-01-31 12:00:00", run("ledger"))
    rows, total = "\n".join(line.rstrip() for line in text.splitlines()).split("\n\n")
    assert (
        rows
        == f"""\
  no.   when                  agent    to       trials   bytes   what
  ──────────────────────────────────────────────────────────────────────────
    1   2026-01-31 12:00:00   site-a   memory        1     {nbytes}   sent
    2   2026-01-31 12:00:00   site-a   memory        2     {nbytes}   sent
    3   2026-01-31 12:00:00   site-b   memory        7     {nbytes}   sent
    4   2026-01-31 12:00:00   site-a   memory                    withdrawn"""
    )
    assert f"3 messages left this machine, {3 * nbytes} bytes in total." in total
    assert str(log) in total.replace("\n", "")


@pytest.mark.parametrize("when", ["yesterday", "0001-01-01T00:00:00+14:00", ""])
def test_a_time_in_another_format_is_shown_as_it_is(log: Path, when: str) -> None:
    Ledger().publish(MemoryExchange(), message())
    log.write_text(re.sub('"when":"[^"]*"', f'"when":"{when}"', log.read_text()))
    assert when in run("ledger") and when in run("ledger", "--show", 1)


@pytest.mark.parametrize("kind", ["weights", "belief", "compact"])
def test_the_content_of_a_message_is_shown_whole(
    log: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = message(scores=3, kind=kind)
    Ledger().publish(MemoryExchange(), sent)
    text = said("ledger", "--show", 1)
    for part in (
        "Message 1, sent",
        "to memory agent site-a",
        f"federation {federation(kind).fingerprint} counter 3 trials 3",
        f"size {sent.nbytes:,} bytes ({kind})",
    ):
        assert part in text
    arrays = {"weights": ("omega",), "belief": ("nu", "covariance"), "compact": ("nu", "counts")}
    for name in arrays[kind]:
        values, shown = getattr(sent.body, name).ravel(), text.partition(f" {name}, ")[2]
        numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", shown)]
        assert np.allclose(numbers[: values.size], values, atol=1e-4)
    assert kind != "compact" or f"point 0x{sent.tip.hex()} of the federation's lattice" in text
    assert kind != "belief" or f"incumbent {sent.body.incumbent:.6g}" in text
    assert "there is no message 9 in" in said("ledger", "--show", 9, code=1)
    monkeypatch.chdir(log.parent)  # where the federation file tells what the tip means
    federation(kind).save("federation.toml")
    assert ("tip x = 0." in said("ledger", "--show", 1)) == (kind == "compact")


def test_names_and_places_do_not_move_the_cursor(log: Path) -> None:
    Ledger().publish(MemoryExchange(), message())
    evil = r"a\u001b[2J" + "\x9b"  # as JSON has it, and what it leaves as it is
    log.write_text(log.read_text().replace("site-a", evil).replace("memory", r"\u0007here"))
    assert r"a\x1b[2J\x9b" in run("ledger")
    for text in run("ledger"), run("ledger", "--show", 1), run("ledger", "--log", "\x1b", code=2):
        assert not any(control in text for control in "\x07\x1b\x9b")


@pytest.mark.filterwarnings("default::fedbo.exchange.ExchangeWarning")
def test_a_damaged_line_is_skipped_with_a_sentence(log: Path) -> None:
    Ledger().publish(MemoryExchange(), message())
    with log.open("a") as file:
        file.write("{damaged\n")
    text = said("ledger")
    assert "line 2 of" in text and "1 message left this machine" in text


class Hub(HubExchange):
    """A hub that takes everything, unless it is down."""

    def __init__(self) -> None:
        super().__init__("https://hub.example.org")
        self.is_down = False

    def publish(self, content: Content) -> bool:
        if self.is_down:
            raise NotSent("the hub cannot be reached; try again later")
        return True


def test_all_attempts_to_send_a_message_are_one_row(log: Path) -> None:
    hub, ledger = Hub(), Ledger()
    ledger.publish(hub, message())
    hub.is_down = True
    for scores in (2, 2, 2, 3):
        with pytest.raises(ExchangeError):
            ledger.publish(hub, message(scores=scores))

    def rows() -> list[tuple[str, str]]:
        lines = [line.split() for line in run("ledger").splitlines()[2:]]
        return [(line[0], " ".join(line[5:])) for line in lines[: lines.index([])]]

    assert rows()[1:] == [("7", "not delivered (3 attempts)"), ("9", "not delivered (1 attempt)")]
    hub.is_down = False
    ledger.publish(hub, message(scores=3))
    assert [number for number, _ in rows()] == ["1", "7", "10"]
    assert "2 messages left this machine" in said("ledger")
