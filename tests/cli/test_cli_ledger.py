"""`fedbo ledger`: what left, as a person reads it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner, Result

from fedbo import RGPE, Agent, Federation, Float, Message, Policy
from fedbo.cli import app as cli
from fedbo.cli.ledger import _list
from fedbo.exchange import ExchangeError, Ledger, MemoryExchange, Progress
from fedbo.federation.scalars import Scalars
from fedbo.message import Kind


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of this user's log, which is not yet there."""
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path))
    return tmp_path / "releases.jsonl"


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
    exchange = MemoryExchange()
    ledger = Ledger()
    for scores in (1, 2):
        ledger.publish(exchange, message(scores=scores))
    ledger.publish(exchange, message("site-b", 7))
    ledger.withdraw(exchange, federation(), "site-a")
    lines = invoke().stdout.splitlines()
    rows = [line.split() for line in lines[1:5]]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    print_of = str(federation().fingerprint)[:8]
    nbytes = str(message(scores=2).nbytes)
    assert rows[1][3:] == ["site-a", "memory", print_of, "2", "25", nbytes, "sent"]
    assert rows[3][3:] == ["site-a", "memory", print_of, "withdrawn"]
    assert "3 messages left this machine" in " ".join(lines)
    assert str(log) in "".join(lines)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("columns", [80, 120])
def test_nothing_is_broken_in_a_narrow_terminal(log: Path, columns: int) -> None:
    place, name = "/mnt/hospital-group/projects/tuning/exchange", "a-hospital-with-a-long-name"
    exchange = MemoryExchange()
    for scores in (1, 2):
        Ledger().publish(exchange, message(name, scores))
    Ledger().publish(exchange, message("site-b", 9))
    Ledger().withdraw(exchange, federation(), "site-b")
    log.write_text(log.read_text().replace('"to":"memory"', f'"to":"{place}"'))
    lines = invoke(columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    print_of, nbytes = str(federation().fingerprint)[:8], str(message("site-b", 9).nbytes)
    for word in (place, name, "withdrawn", print_of, nbytes):
        assert any(word in line.replace(",", " ").split() for line in lines), word
    rows = [line for line in lines if re.match(r" *\d  ", line)]
    assert [row.split()[-1] for row in rows] == ["sent", "sent", "sent", "withdrawn"]
    assert ["9", "25", nbytes] == rows[2].split()[-4:-1]
    places = " ".join(" ".join(line for line in lines if line not in rows).split())
    if columns == 80:  # one line for each agent and place, above its messages
        assert f"{name} to {place}, federation {print_of} site-b to {place}" in places


def test_an_action_of_a_later_version_is_listed(log: Path) -> None:
    Ledger().publish(MemoryExchange(), message(scores=2))
    [entry] = Ledger().read()
    handed_out = replace(entry, action="handed out")  # type: ignore[arg-type]
    console = Console(width=80, file=io.StringIO())
    _list(console, {1: handed_out}, log)
    assert isinstance(console.file, io.StringIO)
    text = " ".join(console.file.getvalue().split())
    assert f"2 25 {entry.nbytes} handed out" in text
    assert "1 message left this machine" in text


@pytest.mark.parametrize("when", ["yesterday", "0001-01-01T00:00:00+14:00", ""])
def test_a_time_in_another_format_is_shown_as_it_is(log: Path, when: str) -> None:
    Ledger().publish(MemoryExchange(), message())
    log.write_text(re.sub('"when":"[^"]*"', f'"when":"{when}"', log.read_text()))
    for args in ([], ["--show", "1"]):
        result = invoke(*args)
        assert (result.exit_code, when in result.stdout) == (0, True)


def test_numbers_stay_the_same_for_one_agent(log: Path) -> None:
    for name in ("site-a", "site-b"):
        Ledger().publish(MemoryExchange(), message(name))
    assert "\n  2 " in invoke("--agent", "site-b").stdout
    assert "site-a" not in invoke("--agent", "site-b").stdout
    assert "only of site-a, site-b" in said(invoke("--agent", "nobody"))
    assert invoke("--agent", "site-b", "--show", "2").exit_code == 0
    result = invoke("--agent", "site-b", "--show", "1")
    assert result.exit_code == 1
    assert "no message of 'site-b' has this number" in said(result)


def test_times_are_local(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    Ledger().publish(MemoryExchange(), message())
    line = log.read_text()
    start = line.index('"when":"') + 8
    log.write_text(line[:start] + "2026-01-31T23:30:00.000Z" + line[start + 24 :])
    monkeypatch.setenv("TZ", "Etc/GMT-1")
    time.tzset()
    try:
        assert "2026-02-01 00:30:00" in invoke().stdout
    finally:
        monkeypatch.undo()
        time.tzset()


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


def test_what_was_withdrawn_has_no_content(log: Path) -> None:
    exchange = MemoryExchange()
    Ledger().publish(exchange, message())
    Ledger().withdraw(exchange, federation(), "site-a")
    result = invoke("--show", "2")
    assert result.exit_code == 0
    assert "Message 2, withdrawn" in said(result)


def test_json_has_everything(log: Path) -> None:
    sent = message()
    Ledger().publish(MemoryExchange(), sent)
    [row] = json.loads(invoke("--json").stdout)
    assert row["number"] == 1
    assert (row["agent"], row["numbers"], row["nbytes"]) == ("site-a", 25, sent.nbytes)
    [entry] = Ledger().read()
    assert row["content"] == entry.content
    assert json.loads(invoke("--json", "--show", "1").stdout) == [row]


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


def test_a_message_of_an_older_version_says_so(log: Path) -> None:
    Ledger().publish(MemoryExchange(), message())
    log.write_text(re.sub('"content":"....', '"content":"AAAA', log.read_text()))
    result = invoke("--show", "1")
    assert result.exit_code == 1
    assert "The content cannot be read: " in said(result)


def test_another_log_can_be_read(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    Ledger(other).publish(MemoryExchange(), message("elsewhere"))
    assert "elsewhere" in invoke("--log", str(other)).stdout
    result = invoke("--log", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "there is no file" in said(result)


@pytest.mark.filterwarnings("default::fedbo.exchange.ExchangeWarning")
def test_a_damaged_line_is_skipped_with_a_sentence(log: Path) -> None:
    Ledger().publish(MemoryExchange(), message())
    with log.open("a") as file:
        file.write("{damaged\n")
    result = invoke()
    assert result.exit_code == 0
    assert "Warning: line 2 of" in result.stderr
    assert "1 message left this machine" in said(result)


class Hub(MemoryExchange):
    """An exchange that carries scalars and shows progress, unless it is down."""

    is_down = False

    def publish(self, message: Message) -> bool:
        if self.is_down:
            raise ExchangeError("the hub does not answer; try again later")
        return super().publish(message)

    def share(self, scalars: Scalars) -> None:
        pass

    def report(self, progress: Progress) -> None:
        if self.is_down:
            raise ExchangeError("the hub does not answer; try again later")


def test_all_attempts_to_send_a_message_are_one_row(log: Path) -> None:
    hub, ledger = Hub(), Ledger()

    def rows() -> list[list[str]]:
        lines = invoke(columns=140).stdout.splitlines()[1:]
        return [line.split(maxsplit=6) for line in lines[: lines.index("")]]

    ledger.publish(hub, message())
    hub.is_down = True
    for _ in range(3):
        with pytest.raises(ExchangeError):
            ledger.publish(hub, message(scores=2))
    with pytest.raises(ExchangeError):
        ledger.publish(hub, message(scores=3))
    assert [(row[0], row[-1]) for row in rows()][1:] == [
        ("7", "not delivered (3 attempts)"),
        ("9", "not delivered (1 attempt)"),
    ]
    assert "1 message left this machine" in said(invoke())
    assert "Message 7, undelivered" in said(invoke("--show", "7"))
    assert len(json.loads(invoke("--json").stdout)) == 9  # all entries
    hub.is_down = False
    ledger.publish(hub, message(scores=3))
    assert [row[0] for row in rows()] == ["1", "7", "10"]
    assert rows()[2][-1].endswith(" sent")
    assert "2 messages left this machine" in said(invoke())
    ledger.withdraw(hub, federation(), "site-a")
    assert [row[0] for row in rows()] == ["1", "7", "10", "11"]


def test_scalars_and_progress_are_listed_and_shown(log: Path) -> None:
    hub, ledger, agreed = Hub(), Ledger(), federation()
    ledger.publish(hub, message())
    given = {"fingerprint": agreed.fingerprint, "sender": "site-a"}
    ledger.share(
        hub,
        Scalars(**given, length_scales=(0.25,), noise_variance=0.01, t_n=12),  # type: ignore[arg-type]
    )
    assert "1 message and scalars 1 time left this machine" in said(invoke())
    for best in (0.5, 0.75):
        ledger.report(hub, Progress(**given, trials=12, best=best, saved=3.0))  # type: ignore[arg-type]
    hub.is_down = True
    with pytest.raises(ExchangeError):
        ledger.report(hub, Progress(**given, trials=13))  # type: ignore[arg-type]
    lines = invoke(columns=140).stdout.splitlines()
    assert lines[2].endswith("scalars sent") and lines[3].endswith("progress sent")
    assert lines[5].split()[0] == "6" and lines[5].endswith("progress not delivered (1 attempt)")
    text = said(invoke())
    assert "1 message, progress 2 times and scalars 1 time left this machine" in text
    text = said(invoke("--show", "2"))
    assert text.startswith("Scalars 2, sent")
    assert "length scales 0.25 noise variance 0.01 trials 12" in text
    text = said(invoke("--show", "4"))
    assert text.startswith("Progress 4, sent")
    assert "trials 12 best score 0.75 trials saved 3" in text
    assert "best score not reported trials saved no estimate" in said(invoke("--show", "5"))
