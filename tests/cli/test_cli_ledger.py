"""`fedbo ledger`: what left, as a person reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedbo import RGPE, Agent, Federation, Float, Message, Policy
from fedbo.cli import app as cli
from fedbo.exchange import ExchangeError, HubExchange, Ledger, MemoryExchange, Progress
from fedbo.message import Heard, Kind


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of this user's log, which is not yet there."""
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path))
    return tmp_path / "ledger.jsonl"


def invoke(*args: str, columns: int = 100) -> Result:
    wide = {"COLUMNS": f"{columns}", "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner().invoke(cli.app, ["ledger", *args], env=wide)


def said(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def federation(kind: Kind = "weights") -> Federation:
    return Federation({"x": Float(0, 1)}, features=25, kind=kind)


def message(name: str = "site-a", scores: int = 1, kind: Kind = "weights") -> Message:
    policies: dict[Kind, Policy] = {"belief": RGPE()}
    agent = Agent(federation(kind), policies.get(kind), name=name, seed=0)
    for i in range(scores):
        agent.tell({"x": i / 10}, float(i))
    return agent.message()


def test_an_empty_log_says_where_it_looked(log: Path) -> None:
    result = invoke()
    assert result.exit_code == 0
    assert str(log) in said(result)
    assert json.loads(invoke("--json").stdout) == []


def test_every_message_has_its_line(log: Path) -> None:
    """The golden text: whoever reads it must know what left."""
    exchange, ledger = MemoryExchange(), Ledger()
    for scores in (1, 2):
        ledger.publish(exchange, message(scores=scores))
    ledger.publish(exchange, message("site-b", 7))
    ledger.withdraw(exchange, federation(), "site-a")
    times = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
    print_of = federation().fingerprint
    sizes = [message(scores=2).nbytes, message("site-b", 7).nbytes]
    text = times.sub("2026-01-31 12:00:00", invoke().stdout)
    head, total = text.split("\n\n")
    assert (
        head
        == f"""\
   no.  when                  trials  numbers      bytes  what
site-a to memory, federation {print_of}
     1  2026-01-31 12:00:00        1       25        {sizes[0]}  sent
     2  2026-01-31 12:00:00        2       25        {sizes[0]}  sent
site-b to memory, federation {print_of}
     3  2026-01-31 12:00:00        7       25        {sizes[1]}  sent
site-a to memory, federation {print_of}
     4  2026-01-31 12:00:00{"":31}withdrawn"""
    )
    assert "3 messages left this machine" in total and str(log) in said(invoke())


@pytest.mark.parametrize("when", ["yesterday", "0001-01-01T00:00:00+14:00", ""])
def test_a_time_in_another_format_is_shown_as_it_is(log: Path, when: str) -> None:
    Ledger().publish(MemoryExchange(), message())
    log.write_text(re.sub('"when":"[^"]*"', f'"when":"{when}"', log.read_text()))
    for args in ([], ["--show", "1"]):
        result = invoke(*args)
        assert (result.exit_code, when in result.stdout) == (0, True)


def test_the_content_of_a_message_is_shown_whole(log: Path) -> None:
    sent = message(scores=3)
    Ledger().publish(MemoryExchange(), sent)
    text = said(invoke("--show", "1"))
    for part in (
        "Message 1, sent",
        "to memory",
        "agent site-a",
        f"federation {federation().fingerprint}",
        "counter 3",
        "trials 3",
        f"size 25 numbers (weights), {sent.nbytes} bytes",
        *(f"{omega:.4f}" for omega in sent.omega),
    ):
        assert part in text, part


def test_the_content_of_a_belief_is_its_triangle(log: Path) -> None:
    sent = message(scores=3, kind="belief")
    Ledger().publish(MemoryExchange(), sent)
    text = invoke("--show", "1").stdout
    assert f"incumbent    {sent.incumbent:.6g}" in text
    numbers = [word for word in text[text.index("lower triangle") :].split() if "." in word]
    rows = [row[: i + 1] for i, row in enumerate(sent.covariance)]
    assert numbers == [f"{value:.4f}" for row in rows for value in row]


def test_the_content_of_a_compact_message_is_its_mean_and_its_counts(log: Path) -> None:
    sent = message(scores=3, kind="compact")
    Ledger().publish(MemoryExchange(), sent)
    text = invoke("--show", "1").stdout
    assert f"size         {sent.numbers} numbers (compact), {sent.nbytes} bytes" in text
    assert f"point 0x{sent.tip.hex()} of the federation's lattice" in text
    mean, counts = text.split("counts of trials in the public cells")
    assert all(f"{value:.4f}" in mean for value in sent.nu)
    found = [int(line.split()[1]) for line in counts.splitlines() if line.strip()]
    assert found == sent.counts[::10].tolist()


def test_names_and_places_do_not_move_the_cursor(log: Path) -> None:
    Ledger().publish(MemoryExchange(), message())
    Ledger().publish(MemoryExchange(), message("site-b"))
    evil = r"a\u001b[2J" + "\x9b"  # as JSON has it, and what it leaves as it is
    log.write_text(log.read_text().replace("site-a", evil).replace("memory", r"\u0007here"))
    name = "a\x1b[2J\x9b"
    for args in ([], ["--agent", "nobody"], ["--show", "1"], ["--json"], ["--agent", name]):
        output = invoke(*args).output
        assert not any(control in output for control in "\x07\x1b\x9b"), args
    assert r"a\x1b[2J\x9b" in invoke("--agent", "nobody").output
    assert json.loads(invoke("--json").stdout)[0]["agent"] == name
    assert "\x1b" not in invoke("--log", "no\x1b[2J").output


@pytest.mark.filterwarnings("default::fedbo.exchange.ExchangeWarning")
def test_a_damaged_line_is_skipped_with_a_sentence(log: Path) -> None:
    Ledger().publish(MemoryExchange(), message())
    with log.open("a") as file:
        file.write("{damaged\n")
    result = invoke()
    assert result.exit_code == 0
    assert "line 2 of" in result.stderr
    assert "1 message left this machine" in said(result)


class Hub(HubExchange):
    """A hub that takes everything, unless it is down."""

    def __init__(self) -> None:
        super().__init__("https://hub.example.org")
        self.is_down = False

    def publish(self, message: Heard, progress: Progress | None = None) -> bool:
        if self.is_down:
            raise ExchangeError("the hub does not answer; try again later")
        return True


def test_all_attempts_to_send_a_message_are_one_row(log: Path) -> None:
    hub, ledger = Hub(), Ledger()

    def rows() -> list[tuple[str, str]]:
        lines = [line.split(maxsplit=3) for line in invoke().stdout.splitlines()[2:]]
        return [(line[0], line[-1]) for line in lines[: lines.index([])]]

    ledger.publish(hub, message())
    hub.is_down = True
    for _ in range(3):
        with pytest.raises(ExchangeError):
            ledger.publish(hub, message(scores=2))
    with pytest.raises(ExchangeError):
        ledger.publish(hub, message(scores=3))
    assert rows()[1:] == [("7", "not delivered (3 attempts)"), ("9", "not delivered (1 attempt)")]
    assert "1 message left this machine" in said(invoke())
    assert "Message 7, undelivered" in said(invoke("--show", "7"))
    assert len(json.loads(invoke("--json").stdout)) == 9  # all entries
    hub.is_down = False
    ledger.publish(hub, message(scores=3))
    assert [number for number, _ in rows()] == ["1", "7", "10"]
    assert "2 messages left this machine" in said(invoke())


def test_progress_is_shown_with_its_message(log: Path) -> None:
    hub, ledger = Hub(), Ledger()
    ledger.publish(hub, message(), progress=Progress(12, best=0.75, saved=3.0))
    text = said(invoke("--show", "1"))
    assert "shown 12 trials, best score 0.75, trials saved 3" in text
    [row] = json.loads(invoke("--json").stdout)
    assert row["progress"] and row["numbers"] == 28
