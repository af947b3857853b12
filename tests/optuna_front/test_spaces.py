"""Studies without a federation file: what happens when their trials no longer share a parameter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from fedbo.exchange import ExchangeWarning, FolderExchange
from fedbo.message import Fingerprint
from fedbo.optuna import FederatedSampler, record
from fedbo.optuna.study_agent import StudyAgent

pytestmark = pytest.mark.usefixtures("patient")

Objective = Callable[[optuna.Trial], float]


@pytest.fixture
def exchange(tmp_path: Path) -> FolderExchange:
    return FolderExchange(tmp_path / "exchange")


def with_range(high: float | None) -> Objective:
    """An objective with x and y; the range of y ends here, or there is no y."""

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        return x if high is None else x + trial.suggest_float("y", 0, high)

    return objective


def sampler(exchange: Any, **options: Any) -> FederatedSampler:
    return FederatedSampler(exchange=exchange, name="site", every=1, **options)


def run(study: optuna.Study, objective: Objective, n: int) -> None:
    study.optimize(objective, n_trials=n)
    study.sampler.flush()  # type: ignore[attr-defined]


def federations(exchange: FolderExchange) -> list[str]:
    held = [one.message for one in exchange.holdings() if one.fault is None]
    return [str(Fingerprint(message.fingerprint))[:8] for message in held if message is not None]


@pytest.mark.parametrize(
    ("high", "change"),
    [
        (2.0, "parameter 'y' was float 0.0 to 1.0, but trial 3 has float 0.0 to 2.0."),
        (None, "parameter 'y' was float 0.0 to 1.0, but trial 3 does not suggest it."),
    ],
)
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_study_that_leaves_its_federation_says_so_once_and_withdraws_its_message(
    exchange: FolderExchange, high: float | None, change: str, is_resumed: bool
) -> None:
    study = optuna.create_study(sampler=sampler(exchange))
    run(study, with_range(1.0), 3)
    [left] = federations(exchange)
    study.sampler = sampler(exchange)
    run(study, with_range(high), 1)  # the trial that differs
    if is_resumed:
        study.sampler = sampler(exchange)
    with pytest.warns(ExchangeWarning) as caught:
        run(study, with_range(high), 3)
    texts = [str(one.message) for one in caught if "of another federation" not in str(one.message)]
    [text] = texts
    [joined] = federations(exchange)
    assert change in text
    assert f"takes part in another federation, {joined} instead of {left}, with other peers" in text
    assert f"Its message in the former federation, {left}, is withdrawn." in text
    study.sampler = sampler(exchange)
    run(study, with_range(high), 2)  # warnings are errors here
    assert federations(exchange) == [joined]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_study_whose_only_parameter_changes_takes_part_in_no_federation(
    exchange: FolderExchange, is_resumed: bool
) -> None:
    def objective(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", 0, 1 if trial.number < 3 else 2)

    study = optuna.create_study(sampler=sampler(exchange))
    run(study, objective, 4)
    assert len(federations(exchange)) == 1
    if is_resumed:
        study.sampler = sampler(exchange)
    with pytest.warns(ExchangeWarning, match="takes part in no federation, and neither") as caught:
        run(study, objective, 4)
    assert len(caught) == 1
    assert federations(exchange) == []
    study.sampler = sampler(exchange)
    run(study, objective, 2)
    assert federations(exchange) == []


def test_messages_of_other_studies_in_the_former_federation_stay(exchange: FolderExchange) -> None:
    other = optuna.create_study(sampler=FederatedSampler(exchange=exchange, name="other", every=1))
    run(other, with_range(1.0), 3)
    study = optuna.create_study(sampler=sampler(exchange))
    run(study, with_range(1.0), 3)
    assert len(federations(exchange)) == 2
    with pytest.warns(ExchangeWarning):
        run(study, with_range(2.0), 3)
    held = [one.message for one in exchange.holdings() if one.fault is None]
    assert sorted(message.sender for message in held if message is not None) == ["other", "site"]
    assert len({*federations(exchange)}) == 2


def test_without_an_exchange_nothing_is_said_and_nothing_is_stored() -> None:
    study = optuna.create_study(sampler=sampler(None))
    study.optimize(with_range(1.0), n_trials=3)
    study.optimize(with_range(2.0), n_trials=3)
    assert record.spaces(study) == []


def test_choices_that_only_a_storage_in_memory_holds_cost_no_trial(
    exchange: FolderExchange,
) -> None:
    choices: Any = [len, max]

    def objective(trial: optuna.Trial) -> float:
        kind: Any = trial.suggest_categorical("kind", choices)
        return trial.suggest_float("x", 0, 1) + (kind is max)

    study = optuna.create_study(sampler=sampler(exchange))
    with pytest.warns(UserWarning, match="persistent storage"):
        run(study, objective, 3)
    assert len(federations(exchange)) == 1


def test_a_worker_that_is_behind_withdraws_nothing_of_one_that_is_ahead(
    exchange: FolderExchange,
) -> None:
    study = optuna.create_study(sampler=sampler(exchange))
    run(study, with_range(1.0), 3)
    behind = StudyAgent(study, sampler(exchange)._recipe, exchange.keyring)
    both = behind.common_space(cached=False)
    with pytest.warns(ExchangeWarning):
        run(study, with_range(2.0), 2)
    behind.note_space(both)
    assert behind.left == []
    behind.note_space({"x": both["x"]})
    assert len(behind.left) == 1
