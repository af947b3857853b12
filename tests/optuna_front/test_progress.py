"""Progress that a study reports, if it is asked to."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from fedbo import Agent, Federation, Float, Message, Space
from fedbo.exchange import ExchangeError, ExchangeWarning, Ledger, MemoryExchange, Progress
from fedbo.optuna import FederatedSampler
from fedbo.optuna.progress import Reporter
from fedbo.privacy import Plan

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(Space({"x": Float(0, 1)}, direction="minimize"), features=20)


class Hub(MemoryExchange):
    """An exchange that shows progress."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[Progress] = []
        self.is_down = False

    def report(self, progress: Progress) -> None:
        if self.is_down:
            raise ExchangeError("the page is not there; start the hub")
        self.reported.append(progress)


def objective(trial: optuna.Trial) -> float:
    return 3.0 + (trial.suggest_float("x", 0, 1) - 0.3) ** 2


def peer(name: str) -> Message:
    agent = Agent(FEDERATION, name=name, seed=0)
    for i in range(9):
        agent.tell({"x": i / 9}, (i / 9 - 0.3) ** 2)
    return agent.message()


def run(study: optuna.Study, n: int = 1) -> None:
    for _ in range(n):
        study.optimize(objective, n_trials=1)
        study.sampler.flush()  # type: ignore[attr-defined]


def sampler(hub: Any, **options: Any) -> FederatedSampler:
    return FederatedSampler(FEDERATION, hub, name="site", every=2, **options)


def test_nothing_is_reported_by_default(tmp_path: Path) -> None:
    hub, ledger = Hub(), Ledger(tmp_path / "log.jsonl")
    run(optuna.create_study(sampler=sampler(hub, ledger=ledger)), 4)
    assert hub.reported == []
    assert {entry.kind for entry in ledger.read()} == {"compact"}


def test_a_private_federation_hears_no_best_score(tmp_path: Path) -> None:
    """A hub would refuse it, but would have seen it."""
    hub, ledger = Hub(), Ledger(tmp_path / "log.jsonl")
    agreed = Federation(FEDERATION.space, privacy=Plan(epsilon=2.0, delta=1e-3))
    given = {"name": "site", "every": 1, "ledger": ledger, "progress": True}
    study = optuna.create_study(sampler=FederatedSampler(agreed, hub, **given))  # type: ignore[arg-type]
    with pytest.warns(ExchangeWarning, match="does not cover progress"):
        run(study, 2)
    assert hub.reported == []
    assert {entry.kind for entry in ledger.read()} == {"contribution"}


def test_progress_follows_each_message_and_is_recorded_first(tmp_path: Path) -> None:
    hub, ledger = Hub(), Ledger(tmp_path / "log.jsonl")
    recorded: list[int] = []
    usual = hub.report

    def report(progress: Progress) -> None:
        recorded.append(sum(entry.kind == "progress" for entry in ledger.read()))
        usual(progress)

    hub.report = report  # type: ignore[method-assign]
    hub.publish(peer("peer"))
    study = optuna.create_study(sampler=sampler(hub, ledger=ledger, progress=True))
    run(study, 12)
    assert recorded == [1, 2, 3, 4, 5, 6]
    assert [one.trials for one in hub.reported] == [2, 4, 6, 8, 10, 12]
    last = hub.reported[-1]
    assert (last.sender, last.best) == ("site", study.best_value)
    assert last.fingerprint == FEDERATION.fingerprint
    assert hub.reported[0].saved is None  # too early to say
    assert last.saved is not None
    entry = [entry for entry in ledger.read() if entry.kind == "progress"][-1]
    assert entry.decoded() == last
    assert entry.study


def test_progress_of_an_exchange_that_cannot_show_it_is_one_warning() -> None:
    exchange = MemoryExchange()
    study = optuna.create_study(sampler=sampler(exchange, progress=True))
    with pytest.warns(ExchangeWarning) as caught:
        run(study, 6)
    [text] = [str(warning.message) for warning in caught]
    assert text.startswith("memory cannot show the progress of a study")
    assert len(exchange.fetch(FEDERATION)) == 1
    assert {entry.kind for entry in Ledger().read()} == {"compact"}


def test_a_report_that_fails_costs_a_warning_and_no_message() -> None:
    hub = Hub()
    study = optuna.create_study(sampler=sampler(hub, progress=True))
    hub.is_down = True
    with pytest.warns(
        ExchangeWarning, match="progress was not reported: the page is not"
    ) as caught:
        run(study, 4)
    assert len(caught) == 1
    assert [message.sequence for message in hub.fetch(FEDERATION)] == [4]
    hub.is_down = False
    run(study, 2)
    assert [one.trials for one in hub.reported] == [6]


def test_no_trial_waits_for_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, reached, opened = Hub(), threading.Event(), threading.Event()

    def slowly(self: Reporter, *_: Any) -> None:
        reached.set()
        assert opened.wait(60.0)

    monkeypatch.setattr(Reporter, "_estimate", slowly)
    study = optuna.create_study(sampler=sampler(hub, progress=True))
    study.optimize(objective, n_trials=2)
    assert reached.wait(60.0)
    study.optimize(objective, n_trials=3)
    assert hub.reported == []
    opened.set()
    study.sampler.flush()  # type: ignore[attr-defined]
    assert hub.reported


def test_what_is_reported_as_the_best_is_a_score_that_was_measured() -> None:
    hub = Hub()
    study = optuna.create_study(sampler=sampler(hub, progress=True))
    run(study, 1)
    ranges: Any = {"x": optuna.distributions.FloatDistribution(0, 1)}
    for value, state in [(float("-inf"), TrialState.COMPLETE), (0.5, TrialState.PRUNED)]:
        study.add_trial(
            create_trial(value=value, params={"x": 0.5}, distributions=ranges, state=state)
        )
    run(study, 3)
    complete = study.get_trials(states=[TrialState.COMPLETE])
    assert hub.reported[-1].best == sorted(trial.value for trial in complete)[1]


def test_estimates_are_made_anew_when_there_is_more_to_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub, made = Hub(), []
    usual = Agent.explain

    def explain(self: Agent, draws: int = 32) -> Any:
        made.append(sum(trial.score is not None for trial in self.trials))
        return usual(self, draws)

    monkeypatch.setattr(Agent, "explain", explain)
    study = optuna.create_study(
        sampler=FederatedSampler(FEDERATION, hub, every=1, progress=True, name="site")
    )
    run(study, 10)
    assert made == [1, 2, 3, 4, 5, 7, 9]
    assert len(hub.reported) == 10
