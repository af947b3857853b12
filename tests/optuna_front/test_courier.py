"""Studies whose exchange fails, hangs or comes late; and what is left when a program ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from contracts.exchange import sequences
from contracts.studies import FEDERATION, PATIENCE, inbox, peer, settle

from fedbo import Federation
from fedbo.errors import NotSent
from fedbo.exchange import (
    Exchange,
    ExchangeWarning,
    FolderExchange,
    Ledger,
    MemoryExchange,
)
from fedbo.exchange.latest import Content
from fedbo.optuna import FederatedSampler
from fedbo.optuna.mail import Courier, Letter, Letters
from fedbo.trust import Trusted

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


class Place(MemoryExchange):
    """An exchange where what happens when it is asked can be chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.on_publish: Callable[[], None] = lambda: None
        self.on_fetch: Callable[[], None] = lambda: None
        self.published: list[int] = []

    def publish(self, content: Content) -> bool:
        self.on_publish()
        self.published.append(content.sequence)
        return super().publish(content)

    def fetch(self, federation: Federation) -> list[Trusted]:
        self.on_fetch()
        return super().fetch(federation)


def down() -> None:
    raise NotSent("the drive is not there; mount it")


def due(n: int) -> Callable[[], Letters]:
    """An errand that brings a letter to send at once."""
    letters = Letters(due=Letter(peer("site", n)))
    return lambda: letters


class Gate:
    """Where a thread is held up until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.passed = 0

    def hold(self) -> None:
        assert self._open.wait(PATIENCE)
        self.passed += 1

    def open(self) -> None:
        self._open.set()


def study_at(place: Exchange, ledger: Ledger) -> optuna.Study:
    return optuna.create_study(sampler=FederatedSampler(FEDERATION, place, every=1, ledger=ledger))


def run(study: optuna.Study, n: int) -> None:
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=n)


def test_each_outage_is_told_of_once_and_costs_no_trial(ledger: Ledger) -> None:
    place = Place()
    study = study_at(place, ledger)
    for trials in (4, 8):
        place.on_publish = place.on_fetch = down
        with pytest.warns(ExchangeWarning, match="the drive is not there; mount it") as caught:
            run(study, 3)
            settle(study)
        assert len(caught) == 1
        place.on_publish = place.on_fetch = lambda: None
        run(study, 1)
        settle(study)
        assert place.published[-1] == trials
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 8


def test_after_a_failure_there_is_a_pause_that_keeps_the_ledger_short(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock, place = Clock(), Place()
    monkeypatch.setattr("fedbo.optuna.mail.time", clock)
    monkeypatch.setattr("fedbo.optuna.mail._PAUSE", 10.0)
    place.on_publish = down
    courier = Courier(place, ledger)
    for second in range(30):
        clock.now = float(second)
        courier.go(due(1))
        assert courier.wait(PATIENCE)
    assert [entry.action for entry in ledger.read()] == ["sent", "undelivered"] * 3
    place.on_publish = lambda: None
    courier.flush(Letters, PATIENCE)  # which does not wait for the pause
    assert place.published == [1]
    courier.go(due(2))
    assert courier.wait(PATIENCE) and place.published == [1, 2]


def test_a_log_that_cannot_be_written_keeps_messages_at_home(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = Place()
    study = study_at(place, Ledger(tmp_path / "file" / "ledger.jsonl"))
    with pytest.warns(ExchangeWarning, match="do not arrive"):
        run(study, 4)
        settle(study)
    assert place.published == []


def test_an_exchange_that_hangs_keeps_no_trial_waiting(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, gate = Place(), Gate()
    MemoryExchange.publish(place, peer("peer"))
    place.on_publish = place.on_fetch = gate.hold
    monkeypatch.setattr("fedbo.optuna.mail._FIRST_NEWS", 0.1)
    study = study_at(place, ledger)
    run(study, 8)
    with pytest.warns(ExchangeWarning, match="did not answer in time"):
        study.sampler.flush(0.1)  # type: ignore[attr-defined]
    assert gate.passed == 0  # and nobody waited until it answered
    assert inbox(study) == []
    gate.open()
    settle(study)
    run(study, 1)
    assert inbox(study) == ["peer"]


SCRIPT = """
    import multiprocessing, sys, time
    import optuna
    from fedbo import Federation
    from fedbo.exchange import FolderExchange
    from fedbo.optuna import FederatedSampler, mail

    class Slow(FolderExchange):
        def publish(self, content):
            time.sleep(float(sys.argv[3]))
            return super().publish(content)

    mail._LEAVING *= float(sys.argv[4])
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def run(name):
        sampler = FederatedSampler(sys.argv[1], Slow(sys.argv[2]), name=name)
        study = optuna.create_study(sampler=sampler)
        values = [1, 2, 3, 4, 5]  # so that messages are due after 1, 2 and 4 scores
        study.optimize(lambda trial: values[trial.number] + trial.suggest_float("x", 0, 1), 5)

    run("a")  # which is forgotten when the program ends
    run("b")
    if sys.argv[4] != "1":  # a process that ends in its own way
        child = multiprocessing.get_context("fork").Process(target=run, args=("c",))
        child.start()
        child.join()
    print(time.time())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "patience", "expected"),
    [(0.2, 10, {"a": 5, "b": 5, "c": 5}), (10 * PATIENCE, 1, {})],
)
def test_what_is_left_is_sent_at_the_end_but_not_for_ever(
    tmp_path: Path, seconds: float, patience: int, expected: dict[str, int]
) -> None:
    federation, folder = tmp_path / "federation.toml", tmp_path / "exchange"
    FEDERATION.save(federation)
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    ended = subprocess.run(
        [sys.executable, tmp_path / "script.py", federation, folder, str(seconds), str(patience)],
        env=os.environ | {"FEDBO_STATE": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=True,
    )
    leaving = time.time() - float(ended.stdout)
    assert leaving < PATIENCE  # 5 seconds, on a machine that is not busy
    assert sequences(FolderExchange(folder), FEDERATION) == expected
    assert ("did not take the last message" in ended.stderr) == (not expected), ended.stderr
    assert "threading.py" not in ended.stderr  # a warning is no crash
