"""Studies in a private federation: contributions leave, and releases are heard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from contracts.releases import contribution, released
from msgspec.structs import replace

from fedbo import Federation, Float, Space
from fedbo.exchange import ExchangeWarning, FolderExchange, Ledger
from fedbo.exchange.contributions import make_release
from fedbo.optuna import FederatedSampler
from fedbo.privacy import Plan
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair

pytestmark = pytest.mark.usefixtures("patient")

PLAN = Plan(epsilon=50.0, delta=1e-2, releases=3)
OURS = Federation(Space({"x": Float(0, 1)}, direction="minimize"), privacy=PLAN)


def objective(trial: optuna.Trial) -> float:
    return abs(trial.suggest_float("x", 0, 1) - 0.3)


def run(folder: Path, name: str = "site-a", trials: int = 3, **given: object) -> FederatedSampler:
    options: dict[str, Any] = {"seed": 0, **given}
    sampler = FederatedSampler(OURS, folder, name=name, **options)
    study = optuna.create_study(sampler=sampler)
    for _ in range(trials):
        study.optimize(objective, n_trials=1)
        sampler.flush(60.0)
    return sampler


def go_on(sampler: FederatedSampler, study: optuna.Study, trials: int = 1) -> None:
    for _ in range(trials):
        study.optimize(objective, n_trials=1)
        sampler.flush(60.0)


def actions(ledger: Ledger, kind: str) -> list[str]:
    return [entry.action for entry in ledger.read() if entry.kind == kind]


def test_a_study_contributes_and_hears_the_release(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    for i in range(5):
        exchange.publish(contribution(OURS, f"other-{i}", cell=4))
    sampler = FederatedSampler(OURS, tmp_path / "exchange", name="site-a", seed=0)
    study = optuna.create_study(sampler=sampler)
    go_on(sampler, study, 3)
    [ours] = [one for one in exchange.contributions(OURS) if one.sender == "site-a"]
    assert ours.kind == "contribution" and ours.t_n >= 1
    assert exchange.fetch(OURS) == []
    assert sampler.agent is not None and len(sampler.agent.inbox) == 0
    assert "sent" in actions(Ledger(), "contribution")
    made, _ = make_release(exchange, OURS, Ledger(tmp_path / "trustee"), keys_of("hub"))
    assert made.members == 6
    go_on(sampler, study, 2)
    assert len(sampler.agent.inbox) == 64
    assert sampler.agent.inbox.senders[0] == "hub/release-00"
    assert Ledger().releases(OURS) == [made]
    assert actions(Ledger(), "release") == ["received"]
    go_on(sampler, study, 2)
    assert actions(Ledger(), "release") == ["received"]  # once
    later, _ = make_release(exchange, OURS, Ledger(tmp_path / "trustee"), keys_of("hub"))
    go_on(sampler, study, 2)
    assert Ledger().releases(OURS) == [made, later]


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_release_with_other_noise_than_planned_is_neither_heard_nor_recorded(
    factor: float, tmp_path: Path
) -> None:
    one = released(OURS)
    exchange = FolderExchange(tmp_path / "exchange")
    exchange.publish(keys_of("hub").sign(replace(one, votes_scale=factor * one.votes_scale)))
    sampler = FederatedSampler(OURS, tmp_path / "exchange", name="site-a", seed=0)
    study = optuna.create_study(sampler=sampler)
    with pytest.warns(ExchangeWarning, match="noise than the plan asks for"):
        go_on(sampler, study, 2)
    assert sampler.agent is not None and len(sampler.agent.inbox) == 0
    assert Ledger().releases(OURS) == []


def test_no_more_is_contributed_when_a_promise_was_broken(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    sampler = FederatedSampler(OURS, tmp_path / "exchange", name="site-a", seed=0, every=1)
    study = optuna.create_study(sampler=sampler)
    go_on(sampler, study, 2)
    [before] = exchange.contributions(OURS)
    ledger = Ledger()
    ledger.receive(released(OURS))
    with pytest.warns(ExchangeWarning):
        ledger.receive(released(OURS, seed=1))
    with pytest.warns(UserWarning, match="2 different releases with the number 1"):
        for _ in range(2):
            study.optimize(objective, n_trials=1)
            sampler.flush(2.0)
    assert exchange.contributions(OURS) == [before]


def test_a_study_that_is_run_again_is_told_that_it_is_not_heard(tmp_path: Path) -> None:
    run(tmp_path / "exchange", trials=2, seed=None)
    with pytest.warns(ExchangeWarning, match="does not take contribution"):
        run(tmp_path / "exchange", trials=1, seed=None)


def test_whoever_makes_releases_may_run_a_study_too(tmp_path: Path) -> None:
    """A release under the name of the study is no message of a namesake."""
    exchange = FolderExchange(tmp_path / "exchange")
    one = KeyPair.load().sign(released(OURS, sequence=3))  # more than the study has scores
    exchange.publish(one)
    sampler = run(tmp_path / "exchange", "hub", trials=2)  # a warning would be an error
    assert sampler.agent is not None and len(sampler.agent.inbox) == 64
    assert [one.sender for one in exchange.contributions(OURS)] == ["hub"]
