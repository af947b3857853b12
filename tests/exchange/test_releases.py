"""Releases in the ledger: what was planned is released, nothing else, and nothing is forgotten."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from contracts.exchange import child, ended, heard, together
from contracts.releases import contribution, private, record, released

from fedbo import Federation
from fedbo.exchange import (
    ExchangeError,
    ExchangeWarning,
    Ledger,
    MemoryExchange,
)
from fedbo.exchange.contributions import make_release
from fedbo.privacy import BudgetSpent, Plan
from fedbo.testing.keys import keys_of

PLAN = Plan(epsilon=2.0, delta=1e-3, releases=3)
OURS = private(plan=PLAN)
NOBODY = (None,) * 20
KEYS = keys_of("hub")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.jsonl"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger(path)


# What was planned


def test_releases_are_numbered_and_the_last_planned_one_is_the_last(ledger: Ledger) -> None:
    made = [record(ledger, OURS, NOBODY) for _ in range(3)]
    assert [one.sequence for one in made] == [1, 2, 3]
    assert ledger.releases(OURS) == made
    with pytest.raises(BudgetSpent, match=r"all planned .* number 3 of 3 planned"):
        record(ledger, OURS, NOBODY)
    assert ledger.releases(OURS) == made
    actions = [(one.action, one.kind, one.agent, one.sequence) for one in ledger.read()]
    assert actions == [("handed out", "release", "hub", number) for number in (1, 2, 3)]


@pytest.mark.parametrize("change", [{"sequence": 1}, {"sequence": 4}, {"epsilon": 1.0}])
def test_a_ledger_records_no_release_that_was_not_planned(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    """Whatever makes it."""
    record(ledger, OURS, NOBODY)
    wrong = msgspec.structs.replace(released(OURS, sequence=2), **change)
    with pytest.raises(ValueError):
        ledger.add_release(OURS, lambda made: wrong)
    assert len(ledger.releases(OURS)) == 1


def test_without_a_lock_nothing_is_released(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.exchange.ledger.alone", unlocked)
    with pytest.raises(ExchangeError, match="cannot be locked, and two processes could spend"):
        record(ledger, OURS, NOBODY)
    assert ledger.releases(OURS) == []


@contextlib.contextmanager
def unlocked(descriptor: int) -> Iterator[bool]:
    """Take the place of a lock on a drive that has none."""
    yield False


# Damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b'"sequence":1', b'"sequence":x'),
        lambda line: line[:40] + b"\0" * 20 + line[60:],
        lambda line: b"\0" * len(line),
        lambda line: line[5:],
        lambda line: b"<<<<<<< ours\n" + line,
        lambda line: line.replace(b'"kind":"release"', b'"kind":"later"'),
        lambda line: line[:-3],
        lambda line: line[: len(line) // 2],
    ],
)
def test_a_damaged_line_may_have_been_a_release(path: Path, damage: Any) -> None:
    record(Ledger(path), OURS, NOBODY)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    for _ in range(2):
        with pytest.raises(ExchangeError, match=r"has damaged lines .*: restore it from a copy"):
            record(Ledger(path), OURS, NOBODY)
    assert path.read_bytes() == damage(whole)
    path.write_bytes(whole)
    assert record(Ledger(path), OURS, NOBODY).sequence == 2


def test_a_release_whose_content_is_damaged_stops_everything(path: Path) -> None:
    record(Ledger(path), OURS, NOBODY)
    entry = json.loads(path.read_text())
    entry["content"] = "AAAA" + entry["content"][4:]
    path.write_text(json.dumps(entry) + "\n")
    for call in (
        lambda: record(Ledger(path), OURS, NOBODY),
        lambda: Ledger(path).releases(OURS),
        lambda: Ledger(path).publish(MemoryExchange(), contribution(OURS)),
    ):
        with pytest.raises(ExchangeError, match=r"a release in .* is damaged"):
            call()


def test_a_line_without_any_content_is_no_release(path: Path) -> None:
    """A kill or a full disk can do that, and then nobody has seen the release."""
    first = record(Ledger(path), OURS, NOBODY)
    record(Ledger(path), OURS, NOBODY)
    whole = path.read_bytes()
    end = whole.index(b"\n") + 1
    path.write_bytes(whole[: end + 40])
    again = Ledger(path)
    assert again.releases(OURS) == [first]
    assert record(again, OURS, NOBODY).sequence == 2
    assert record(Ledger(path), OURS, NOBODY).sequence == 3  # the rest of the line does not matter
    assert len(Ledger(path).read()) == 3


# Releases that others made


def test_what_is_received_is_recorded_once(ledger: Ledger, path: Path) -> None:
    one = released(OURS)
    for book in (ledger, ledger, Ledger(path)):
        book.receive(one)
    assert [(entry.action, entry.sequence) for entry in ledger.read()] == [("received", 1)]


def test_no_more_is_contributed_to_a_broken_plan(ledger: Ledger) -> None:
    exchange = MemoryExchange()
    assert ledger.publish(exchange, contribution(OURS, sequence=1))
    ledger.receive(released(OURS))
    assert ledger.publish(exchange, contribution(OURS, sequence=2))
    with pytest.warns(ExchangeWarning, match="Contributions to it are no longer sent from here"):
        ledger.receive(released(OURS, seed=1))
    with pytest.raises(ExchangeError, match="'hub' has made 2 different releases"):
        ledger.publish(exchange, contribution(OURS, sequence=3))
    with pytest.raises(ExchangeError, match="2 different releases"):  # to a program
        ledger.record(contribution(OURS, sequence=3))
    [held] = exchange.contributions(OURS)
    assert held.sequence == 2
    assert ledger.publish(exchange, contribution(private(plan=PLAN, seed=1)))


# From contributions to a release


def members(agreed: Federation, exchange: Any, n: int = 5) -> None:
    for i in range(n):
        exchange.publish(contribution(agreed, f"site-{i}", cell=i % 2))


def test_a_release_is_made_of_the_contributions_and_published(ledger: Ledger) -> None:
    exchange = MemoryExchange()
    members(OURS, exchange)
    made, is_new = make_release(exchange, OURS, ledger, KEYS)
    assert is_new and (made.members, made.trials, made.sequence) == (5, 50, 1)
    assert heard(exchange, OURS) == [made]
    assert [entry.action for entry in ledger.read()] == ["handed out", "sent"]
    later, is_new = make_release(exchange, OURS, ledger, KEYS)
    assert is_new and later.sequence == 2
    assert heard(exchange, OURS) == [later]


def test_without_contributions_nothing_is_spent(ledger: Ledger) -> None:
    strict = private(plan=Plan(epsilon=2.0, delta=1e-3, least_trials=11))
    exchange = MemoryExchange()
    for given in (0, 5):
        members(strict, exchange, given)
        with pytest.raises(ExchangeError, match=f"memory has {given} contributions, none of them"):
            make_release(exchange, strict, ledger, KEYS)
    assert ledger.read() == []


def test_a_recorded_release_is_published_before_another_one_is_made(ledger: Ledger) -> None:
    """As after a kill between the record and the publication."""
    exchange = MemoryExchange()
    members(OURS, exchange)
    recorded = record(ledger, OURS, exchange.contributions(OURS))
    assert make_release(exchange, OURS, ledger, KEYS) == (recorded, False)
    assert heard(exchange, OURS) == [recorded]
    assert ledger.releases(OURS) == [recorded]
    assert make_release(exchange, OURS, ledger, KEYS)[0].sequence == 2


def test_who_lost_the_ledger_learns_from_the_exchange(ledger: Ledger, tmp_path: Path) -> None:
    exchange = MemoryExchange()
    members(OURS, exchange)
    first, _ = make_release(exchange, OURS, ledger, KEYS)
    other = Ledger(tmp_path / "new")
    assert make_release(exchange, OURS, other, KEYS)[0].sequence == 2
    assert [one.sequence for one in other.releases(OURS)] == [1, 2]
    assert other.releases(OURS)[0] == first


def test_a_second_ledger_does_not_hide_what_was_released(ledger: Ledger) -> None:
    """Two releases with one number count as two, so that no more is made than was planned."""
    exchange = MemoryExchange()
    members(OURS, exchange)
    record(ledger, OURS, NOBODY)
    exchange.publish(released(OURS, seed=5))
    with pytest.warns(ExchangeWarning, match="2 different releases with the number 1"):
        assert make_release(exchange, OURS, ledger, KEYS)[0].sequence == 3
    with pytest.raises(BudgetSpent), pytest.warns(ExchangeWarning):
        make_release(exchange, OURS, ledger, KEYS)


# Many processes, and kills

SPENDING = """
from contracts.releases import private, record
from fedbo.privacy import Plan
agreed = private(plan=Plan(epsilon=2.0, delta=1e-3, releases=int(sys.argv[2])))
agreed.fingerprint, Shared.of(agreed).cells
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
while True:
    try:
        made = record(ledger, agreed, [None] * 3)
    except ValueError as error:
        assert "all planned releases were made" in str(error)
        break
    print(made.sequence, flush=True)
"""


def planned(releases: int) -> Federation:
    return private(plan=Plan(epsilon=2.0, delta=1e-3, releases=releases))


@pytest.mark.slow
def test_processes_that_spend_at_once_share_one_budget(path: Path) -> None:
    path.parent.mkdir()
    processes = [child(SPENDING, path, 20) for _ in range(3)]
    together(processes)
    made = [int(line) for process in processes for line in ended(process).split()]
    assert sorted(made) == list(range(1, 21))
    assert [one.sequence for one in Ledger(path).releases(planned(20))] == list(range(1, 21))


KILLED = """
import os, random, signal, time
from fedbo.testing.keys import keys_of
from contracts.releases import private, record
from fedbo.privacy import Plan
agreed = private(plan=Plan(epsilon=2.0, delta=1e-3, releases=10_000))
agreed.fingerprint, Shared.of(agreed).cells, keys_of("hub")
Ledger(sys.argv[1]).releases(agreed)
rng = random.Random(int(sys.argv[2]))
for number in range(int(sys.argv[3])):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        ledger = Ledger(sys.argv[1])
        while True:
            made = record(ledger, agreed, [None] * 3)
            os.write(writer, f"{made.sequence}\\n".encode())
    os.close(writer)
    time.sleep(rng.uniform(0.0, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        printed = [int(line) for line in pipe]
    recorded = [one.sequence for one in Ledger(sys.argv[1]).releases(agreed)]
    assert recorded == list(range(1, len(recorded) + 1)), recorded
    assert not printed or printed[-1] <= len(recorded) <= printed[-1] + 1, (printed, recorded[-3:])
    print(len(printed), flush=True)
"""


@pytest.mark.slow
def test_a_kill_never_loses_a_release(path: Path) -> None:
    """100 kills at random moments: what was printed is recorded, and numbers have no gaps."""
    path.parent.mkdir()
    printed = [int(line) for line in ended(child(KILLED, path, 0, 100)).split()]
    assert len(printed) == 100
    assert sum(printed) > 50  # some were killed at work, not before it
    recorded = Ledger(path).releases(planned(10_000))
    assert sum(printed) <= len(recorded) <= sum(printed) + 100
