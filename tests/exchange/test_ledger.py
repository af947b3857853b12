"""The log of what left: no message without a line, whatever happens."""

from __future__ import annotations

import base64
import datetime
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from contracts.exchange import OTHERS, OURS, child, ended, heard, message, together, unwarned

from fedbo import Federation
from fedbo.errors import NotOurs
from fedbo.exchange import (
    Entry,
    ExchangeError,
    ExchangeWarning,
    FolderExchange,
    Ledger,
    MemoryExchange,
)
from fedbo.message import Kind
from fedbo.testing.keys import keys_of, new_keys
from fedbo.testing.parties import PLANE
from fedbo.trust import Trusted

KEYS = keys_of("site-a")


@pytest.fixture
def exchange() -> MemoryExchange:
    return MemoryExchange()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.jsonl"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger(path)


def told(ledger: Ledger) -> list[tuple[str, str, int]]:
    return [(one.action, one.agent, one.sequence) for one in ledger.read()]


# Where it lies


def test_it_is_made_with_the_first_message_and_for_its_user_alone(
    ledger: Ledger, exchange: MemoryExchange, path: Path
) -> None:
    assert ledger.read() == []
    assert not path.parent.exists()
    ledger.publish(exchange, message())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# What it says


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_line_says_everything(ledger: Ledger, tmp_path: Path, kind: Kind) -> None:
    federation = Federation(PLANE, features=40, kind=kind)
    exchange = FolderExchange(tmp_path / "exchange")
    sent = message(federation, sender="日本", sequence=7)
    before = datetime.datetime.now(datetime.UTC)
    ledger.publish(exchange, sent)
    after = datetime.datetime.now(datetime.UTC)
    [entry] = ledger.read()
    tick = datetime.timedelta(milliseconds=1)
    assert before - tick < datetime.datetime.fromisoformat(entry.when) <= after
    assert entry == Entry(
        when=entry.when,
        action="sent",
        to=str(tmp_path / "exchange"),
        agent="日本",
        federation=str(federation.fingerprint),
        sequence=7,
        t_n=20,
        kind=kind,
        nbytes=sent.nbytes,
        content=base64.b64encode(sent.encode()).decode(),
    )
    assert entry.message() == sent
    assert heard(exchange, federation) == [sent]


# Retries and withdrawals


def test_a_withdrawal_is_told_and_what_is_sent_afterwards_is_told_again(
    ledger: Ledger, exchange: MemoryExchange
) -> None:
    ledger.publish(exchange, message(sequence=3))
    ledger.publish(exchange, message(OTHERS["seed"], sequence=9))
    with pytest.warns(ExchangeWarning, match="another federation is here"):
        assert ledger.withdraw(exchange, OURS, "site-a", KEYS) is True
    assert ledger.withdraw(exchange, OURS, "site-a", KEYS) is False
    assert unwarned(exchange) == []
    ledger.publish(exchange, message(sequence=3))
    assert told(ledger) == [
        ("sent", "site-a", 3),
        ("sent", "site-a", 9),
        ("withdrawn", "site-a", 3),
        ("sent", "site-a", 3),
    ]
    withdrawn = ledger.read()[2]
    assert (withdrawn.content, withdrawn.nbytes) == ("", message(sequence=3).nbytes)
    with pytest.raises(ValueError, match="message 3 of 'site-a' was withdrawn at"):
        withdrawn.message()


# Whose message it is


def test_without_a_record_a_message_is_withdrawn_with_its_key(
    ledger: Ledger, exchange: MemoryExchange
) -> None:
    exchange.publish(message())
    assert ledger.withdraw(exchange, OURS, "site-a", new_keys()) is False
    assert heard(exchange) == [message()]
    assert ledger.withdraw(exchange, OURS, "site-a", KEYS, study="one") is True
    assert heard(exchange) == []
    assert told(ledger) == [("withdrawn", "site-a", 1)]


def test_a_message_of_another_study_is_not_withdrawn(
    ledger: Ledger, exchange: MemoryExchange
) -> None:
    ledger.publish(exchange, message(), study="one")
    assert ledger.read()[0].study == "one"
    with pytest.raises(NotOurs, match=r"another study or machine sent .* fedbo exchange withdraw"):
        ledger.withdraw(exchange, OURS, "site-a", KEYS, study="two")
    assert heard(exchange) == [message()]
    assert ledger.withdraw(exchange, OURS, "site-a", KEYS, study="one") is True
    assert heard(exchange) == []
    assert ledger.read()[-1].study == "one"
    assert [one.action for one in ledger.read()] == ["sent", "withdrawn"]


# What agents hand out


def test_a_message_that_is_handed_out_is_recorded_once(
    ledger: Ledger, exchange: MemoryExchange, path: Path
) -> None:
    for log in (ledger, ledger, Ledger(path)):
        log.record(message())
    [entry] = ledger.read()
    assert (entry.action, entry.to, entry.message()) == ("handed out", "", message())
    ledger.publish(exchange, message())
    ledger.record(message())
    assert told(ledger) == [("handed out", "site-a", 1), ("sent", "site-a", 1)]
    assert ledger.withdraw(exchange, OURS, "site-a", KEYS) is True


# Damage


@pytest.mark.parametrize(
    "line", [b"{", b"null", b"[1]", b'{"when": "x"}', b"\xff\xfe", b"[" * 9999]
)
def test_a_damaged_line_is_skipped_with_a_warning(
    ledger: Ledger, exchange: MemoryExchange, path: Path, line: bytes
) -> None:
    ledger.publish(exchange, message(sequence=1))
    with path.open("ab") as file:
        file.write(line + b"\n\n")
    ledger.publish(exchange, message(sequence=2))
    with pytest.warns(
        ExchangeWarning, match=r"were skipped \(1\); line 2 of .*ledger.jsonl"
    ) as caught:
        assert [sequence for *_, sequence in told(ledger)] == [1, 2]
    assert len(caught) == 1


def test_a_line_cut_short_does_not_swallow_the_next(
    ledger: Ledger, exchange: MemoryExchange, path: Path
) -> None:
    for sequence in (1, 2):
        ledger.publish(exchange, message(sequence=sequence))
    os.truncate(path, path.stat().st_size - 20)  # as a crash of the machine may leave it
    ledger.publish(exchange, message(sequence=3))
    assert [sequence for *_, sequence in Ledger(path).read() and told(ledger)] == [1, 3]


# No line, no message


@pytest.fixture
def hopeless(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Paths at which nobody, root included, can write a log."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    yield {
        "in a file": tmp_path / "file" / "ledger.jsonl",
        "a folder": tmp_path / "folder",
        "a full disk": Path("/dev/full"),
        "a hole": Path("/dev/null"),
        "too long": tmp_path / ("x" * 300),
        "no folder": tmp_path / "link" / "ledger.jsonl",
    }


@pytest.mark.parametrize(
    "where", ["in a file", "a folder", "a full disk", "a hole", "too long", "no folder"]
)
def test_what_cannot_be_written_down_is_not_sent(
    hopeless: dict[str, Path], exchange: MemoryExchange, where: str
) -> None:
    ledger = Ledger(hopeless[where])
    said = r"message 1 of 'site-a' was not sent because it could not be recorded in .*: .*; "
    with pytest.raises(ExchangeError, match=said):
        ledger.publish(exchange, message())
    assert heard(exchange) == []


@pytest.mark.parametrize("where", ["in a file", "a folder", "too long"])
def test_without_a_record_to_read_nothing_is_withdrawn(
    hopeless: dict[str, Path], exchange: MemoryExchange, where: str
) -> None:
    exchange.publish(message())
    with pytest.raises(ExchangeError, match=r"nothing was withdrawn, because the ledger .* read"):
        Ledger(hopeless[where]).withdraw(exchange, OURS, "site-a", KEYS)
    assert heard(exchange) == [message()]


def test_a_withdrawal_that_cannot_be_recorded_counts(
    hopeless: dict[str, Path], exchange: MemoryExchange
) -> None:
    exchange.publish(message())
    with pytest.raises(ExchangeError, match="was withdrawn from memory, but this could not be"):
        Ledger(hopeless["no folder"]).withdraw(exchange, OURS, "site-a", KEYS)
    assert heard(exchange) == []


def test_a_log_that_is_not_a_file_is_refused(exchange: MemoryExchange) -> None:
    ledger = Ledger("/dev/zero")
    for act in (
        lambda: ledger.read(),
        lambda: ledger.publish(exchange, message()),
        lambda: ledger.withdraw(exchange, OURS, "site-a", KEYS),
    ):
        with pytest.raises(ExchangeError, match="it is not a regular file"):
            act()


def test_a_disk_that_fills_up_midway_leaves_nothing_that_counts(
    ledger: Ledger, exchange: MemoryExchange, path: Path, tmp_path: Path
) -> None:
    ledger.publish(exchange, message(sequence=1))
    program = (
        "import resource\n"  # Python ignores the signal, so that it is an error
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)\n"
        "try:\n"
        "    Ledger(sys.argv[1]).publish(FolderExchange(sys.argv[2]), message(sequence=2))\n"
        "except ExchangeError as error:\n"
        "    print(error)\n"
    )
    said = ended(child(program, path, tmp_path / "exchange", path.stat().st_size + 100))
    assert said == (
        "message 2 of 'site-a' was not sent because it could not be recorded in "
        f"{path}: File too large; free some space there, or raise the limit on the size of files\n"
    )
    assert not (tmp_path / "exchange").exists()
    ledger.publish(exchange, message(sequence=3))
    assert [sequence for *_, sequence in told(ledger)] == [1, 3]


def test_what_was_not_delivered_is_told_so_and_again_when_it_is(
    ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "drive").mkdir()
    exchange = FolderExchange(tmp_path / "drive" / "exchange")
    (tmp_path / "drive").rmdir()
    with pytest.raises(ExchangeError, match="check whether it exists"):
        ledger.publish(exchange, message())
    (tmp_path / "drive").mkdir()
    assert told(ledger) == [("sent", "site-a", 1), ("undelivered", "site-a", 1)]
    ledger.publish(exchange, message())
    assert heard(exchange) == [message()]
    assert told(ledger)[2:] == [("sent", "site-a", 1)]


# Many writers


@pytest.mark.slow
def test_processes_do_not_write_into_each_others_lines(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long lines, of 27 kB, one of them sent by all."""
    monkeypatch.setattr("fedbo.files._WAIT", 60.0)  # as the writers do
    program = (
        "federation = Federation(PLANE, features=100, kind='belief')\n"
        "ledger, exchange = Ledger(sys.argv[1]), MemoryExchange()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "for sequence in range(30):\n"
        "    ledger.publish(exchange, message(federation, sys.argv[2], sequence))\n"
        "    ledger.record(message(federation, 'all', sequence))\n"
    )
    writers = [child(program, path, f"own-{i}") for i in range(3)]
    together(writers)
    while any(writer.poll() is None for writer in writers):
        ledger.read()  # a warning would be an error
    for writer in writers:
        ended(writer)
    for agent in ("own-0", "own-1", "own-2", "all"):
        lines = ledger.read(agent)
        assert sorted(line.sequence for line in lines) == [*range(30)]
        assert all(line.message().sender == agent for line in lines)


class Elsewhere(MemoryExchange):
    """A place that shows this machine nothing of what another one has published."""

    def fetch(self, federation: Federation) -> list[Trusted]:
        return []


def test_a_later_message_of_another_machine_is_not_said_to_be_withdrawn(ledger: Ledger) -> None:
    exchange = Elsewhere()
    ledger.publish(exchange, message(sequence=1))
    exchange.publish(message(sequence=2))  # not recorded here
    with pytest.raises(NotOurs, match="has a later message of 'site-a'"):
        ledger.withdraw(exchange, OURS, "site-a", KEYS)
    assert "withdrawn" not in {entry.action for entry in ledger.read()}
