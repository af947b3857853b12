"""The courier, and studies whose exchange fails, hangs or comes late."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from fedbo import Agent, Federation, Float, Message, Space
from fedbo.exchange import (
    Exchange,
    ExchangeError,
    ExchangeWarning,
    FolderExchange,
    Ledger,
    MemoryExchange,
)
from fedbo.optuna import FederatedSampler
from fedbo.optuna.mail import Courier, Letter

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(Space({"x": Float(0, 1)}, direction="minimize"), features=20)
PATIENCE = 60.0  # seconds, for what takes none on a machine that is not busy


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


class Place(MemoryExchange):
    """An exchange where what happens on an errand can be chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.on_publish: Callable[[], None] = lambda: None
        self.on_fetch: Callable[[], None] = lambda: None
        self.published: list[int] = []

    def publish(self, message: Message) -> bool:
        self.on_publish()
        self.published.append(message.sequence)
        return super().publish(message)

    def fetch(self, federation: Federation) -> list[Message]:
        self.on_fetch()
        return super().fetch(federation)


def down() -> None:
    raise ExchangeError("the drive is not there; mount it")


def message(n: int, name: str = "site") -> Message:
    agent = Agent(FEDERATION, name=name, seed=0)
    for i in range(n):
        agent.tell({"x": i / (n + 1)}, float(i))
    return agent.message()


def ready(n: int, name: str = "site") -> Callable[[], Letter]:
    """What a courier is given to send: here the message is made already."""
    made = Letter(message(n, name))
    return lambda: made


def until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def all_done(courier: Courier) -> None:
    """Wait for all errands, while `Courier.flush` waits for what is sent.

    What is asked for by now is fetched with the first of two more errands, if not before, and the
    second begins when that is done.
    """
    assert courier.flush(PATIENCE)
    for _ in range(2):
        courier.send(lambda: None)
        assert courier.flush(PATIENCE)


class Clock:
    """A clock for the courier, which goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("fedbo.optuna.mail.time", clock)
    return clock


class Gate:
    """Where an errand is held up until it is opened."""

    def __init__(self) -> None:
        self._open, self._reached = threading.Event(), threading.Event()
        self.passed = 0

    def hold(self) -> None:
        self._reached.set()
        assert self._open.wait(PATIENCE)
        self.passed += 1

    def reached(self) -> None:
        """Wait until somebody is held up."""
        assert self._reached.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._open.clear()
        self._reached.clear()


def study_at(place: Exchange, ledger: Ledger, n: int) -> optuna.Study:
    sampler = FederatedSampler(FEDERATION, place, every=1, seed=0, ledger=ledger)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=n)
    return study


def test_what_could_not_be_sent_is_tried_again(ledger: Ledger) -> None:
    place = Place()
    place.on_publish = down
    courier = Courier(place, ledger, FEDERATION)
    courier.send(ready(1))
    complaints: list[str] = []
    until(lambda: complaints.extend(courier.complaints()) or complaints)  # flush() might try again
    [complaint] = complaints
    assert "message was not published: the drive is not there; mount it. The study" in complaint
    place.on_publish = lambda: None
    courier.fetch()  # the next errand, of whatever kind
    until(lambda: place.published)
    assert place.published == [1]
    assert [line.action for line in ledger.read()] == ["sent", "undelivered", "sent"]
    assert courier.complaints() == []


def test_pauses_in_an_outage_grow_and_keep_the_ledger_short(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, place = Clock(), Place()
    monkeypatch.setattr("fedbo.optuna.mail.time", clock)
    monkeypatch.setattr("fedbo.optuna.mail._FIRST_DELAY", 1.0)
    place.on_publish = down
    courier, tried = Courier(place, ledger, FEDERATION), []
    for i in range(300):  # two trials a second
        clock.now = 100.0 + i / 2
        before = len(ledger.read()) if i else 0
        courier.send(ready(1 + i // 100))
        until(lambda: not courier._is_running)
        if len(ledger.read()) > before:
            tried.append(i / 2)
    assert tried == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0]
    assert {one.sequence for one in ledger.read()[-2:]} == {3}
    courier.send(ready(4))
    until(lambda: not courier._is_running)
    place.on_publish = lambda: None
    assert place.published == [] and courier.flush(PATIENCE)  # which does not wait for the pause
    assert place.published == [4]
    courier.send(ready(5))  # and the outage is over
    assert courier.flush(PATIENCE)
    assert [one.action for one in ledger.read()[-2:]] == ["sent", "sent"]


def test_each_outage_is_told_of_once(ledger: Ledger) -> None:
    place = Place()
    courier = Courier(place, ledger, FEDERATION)
    for n in (1, 5):
        place.on_publish = place.on_fetch = down
        said = []
        for i in range(3):
            courier.send(ready(n + i))
            courier.fetch()
            all_done(courier)
            said += courier.complaints()
        [complaint] = said
        assert complaint.endswith("given once until then")
        place.on_publish = place.on_fetch = lambda: None
        courier.fetch()
        all_done(courier)
        assert courier.complaints() == []
        assert place.published[-1] == n + 2


def test_messages_are_made_in_the_couriers_thread_and_only_if_they_are_sent(
    ledger: Ledger,
) -> None:
    place, gate = Place(), Gate()
    made: list[tuple[int, str]] = []

    def make(n: int) -> Callable[[], Letter]:
        def slowly() -> Letter:
            made.append((n, threading.current_thread().name))
            gate.hold()
            return Letter(message(n))

        return slowly

    courier = Courier(place, ledger, FEDERATION)
    courier.send(make(1))
    gate.reached()
    for n in (2, 3, 4):
        courier.send(make(n))
    assert not courier.flush(0.1)
    assert gate.passed == 0  # and nobody waited for it
    gate.open()
    assert courier.flush(PATIENCE)
    assert made == [(1, "fedbo courier"), (4, "fedbo courier")]
    assert place.published == [1, 4]


@pytest.mark.parametrize("makes", [lambda: None, lambda: 1 / 0])
def test_what_could_not_be_sent_is_not_lost_when_nothing_newer_is_made(
    ledger: Ledger, makes: Callable[[], None]
) -> None:
    place = Place()
    place.on_publish = down
    courier = Courier(place, ledger, FEDERATION)
    courier.send(ready(1))
    assert courier.flush(PATIENCE)
    place.on_publish = lambda: None
    courier.send(makes)
    assert courier.flush(PATIENCE)
    assert place.published == [1]
    assert courier.flush(PATIENCE)
    assert place.published == [1]


@pytest.mark.parametrize("errand", ["publish", "fetch"])
def test_a_place_that_does_not_answer_is_told_of_once_until_it_does(
    ledger: Ledger, clock: Clock, errand: str
) -> None:
    place, gate = Place(), Gate()
    setattr(place, f"on_{errand}", gate.hold)
    courier = Courier(place, ledger, FEDERATION)
    for n in (1, 2):
        gate.close()
        courier.send(ready(n))
        courier.fetch()
        gate.reached()
        clock.now += 29.0
        assert courier.complaints() == []
        clock.now += 2.0
        [complaint] = courier.complaints()
        assert complaint.startswith("memory has not answered for more than 30 seconds. The study")
        clock.now += 1000.0
        assert courier.complaints() == []
        gate.open()
        all_done(courier)
    assert place.published == [1, 2]
    assert gate.passed == 2 and courier.complaints() == []


def test_a_broken_exchange_costs_one_warning_and_no_trial(ledger: Ledger) -> None:
    place = Place()
    place.on_publish = place.on_fetch = down
    with pytest.warns(ExchangeWarning, match="the drive is not there; mount it") as caught:
        study = study_at(place, ledger, 8)
        assert study.sampler._courier.flush(PATIENCE)  # type: ignore[attr-defined]
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert len(caught) == 1
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 10


def test_a_log_that_cannot_be_written_keeps_messages_at_home(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = Place()
    with pytest.warns(ExchangeWarning, match="message was not published"):
        study = study_at(place, Ledger(tmp_path / "file" / "ledger.jsonl"), 4)
        assert study.sampler._courier.flush(PATIENCE)  # type: ignore[attr-defined]
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    assert place.published == []


def test_an_exchange_that_hangs_keeps_no_trial_waiting(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, gate = Place(), Gate()
    place.on_publish = place.on_fetch = gate.hold
    waits: list[float] = []

    def wait_for_first(self: Courier, seconds: float) -> None:
        waits.append(seconds)
        usual(self, seconds)

    usual = Courier.wait_for_first
    monkeypatch.setattr(Courier, "wait_for_first", wait_for_first)
    monkeypatch.setattr("fedbo.optuna.mail._FIRST_NEWS", 0.5)
    study = study_at(place, ledger, 8)
    assert waits == [0.5]  # the first query waited for news, once
    assert not study.sampler._courier.flush(0.2)  # type: ignore[attr-defined]
    assert gate.passed == 0  # and nobody waited until it answered
    gate.open()
    assert study.sampler._courier.flush(PATIENCE)  # type: ignore[attr-defined]


def test_news_that_come_late_are_heard_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, gate = Place(), Gate()
    MemoryExchange.publish(place, message(5, "peer"))
    place.on_fetch = gate.hold
    monkeypatch.setattr("fedbo.optuna.mail._FIRST_NEWS", 0.1)
    study = study_at(place, ledger, 2)
    assert len(study.sampler.agent.inbox) == 0  # type: ignore[attr-defined]
    gate.open()
    all_done(study.sampler._courier)  # type: ignore[attr-defined]
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    assert len(study.sampler.agent.inbox) == 1  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which this system lacks")
def test_a_forked_child_has_errands_of_its_own(ledger: Ledger, tmp_path: Path) -> None:
    courier = Courier(FolderExchange(tmp_path / "exchange"), ledger, FEDERATION)
    gate = Gate()
    place = courier.exchange
    publish = place.publish

    def slowly(m: Message) -> bool:
        gate.hold()
        return publish(m)

    place.publish = slowly  # type: ignore[method-assign]
    courier.send(ready(1))
    gate.reached()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks in programs with threads
        child = os.fork()
    if not child:
        place.publish = publish  # type: ignore[method-assign]
        courier.send(ready(2, "child"))
        os._exit(0 if courier.flush(PATIENCE) else 1)
    assert os.waitpid(child, 0)[1] == 0
    gate.open()
    assert courier.flush(PATIENCE)
    assert {m.sender for m in place.fetch(FEDERATION)} == {"site", "child"}


def test_at_the_exit_a_lost_message_is_told_of(ledger: Ledger) -> None:
    place = Place()
    place.on_publish = down
    with pytest.warns(ExchangeWarning, match="the drive is not there"):
        study = study_at(place, ledger, 3)
        study.sampler.flush()  # type: ignore[attr-defined]
    courier = study.sampler._courier  # type: ignore[attr-defined]
    [text] = courier.leave(PATIENCE)
    assert "was not delivered" in text and "fedbo study publish" in text
    place.on_publish = lambda: None
    assert courier.leave(PATIENCE) == []


SCRIPT = """
    import sys, time
    import optuna
    from fedbo import Federation
    from fedbo.exchange import FolderExchange
    from fedbo.optuna import FederatedSampler, mail

    class Slow(FolderExchange):
        def publish(self, message):
            time.sleep(float(sys.argv[3]))
            return super().publish(message)

    mail._LEAVING *= float(sys.argv[4])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = FederatedSampler(sys.argv[1], Slow(sys.argv[2]), name="site", every=1, seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=4)
    print(time.time())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "patience", "arrives"), [(0.7, 10, True), (10 * PATIENCE, 1, False)]
)
def test_what_is_left_is_sent_at_the_exit_but_not_for_ever(
    tmp_path: Path, seconds: float, patience: int, arrives: bool
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
    sequences = [m.sequence for m in FolderExchange(folder).fetch(FEDERATION)]
    assert sequences == ([4] if arrives else [])
    assert ("did not answer in time" in ended.stderr) != arrives
