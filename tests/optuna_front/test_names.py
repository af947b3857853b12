"""The name of a study among peers: how it changes, and two studies that share one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from fedbo import Federation, Float, Message, Space
from fedbo.exchange import (
    ExchangeError,
    ExchangeWarning,
    FolderExchange,
    Ledger,
    MemoryExchange,
)
from fedbo.optuna import FederatedSampler, record

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(Space({"x": Float(0, 1)}, direction="minimize"), features=20)


def objective(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1)


def run(study: optuna.Study, n: int = 1) -> None:
    study.optimize(objective, n_trials=n)
    study.sampler.flush()  # type: ignore[attr-defined]


def sampler(exchange: Any, name: str | None = None, **options: Any) -> FederatedSampler:
    return FederatedSampler(FEDERATION, exchange, name=name, every=1, **options)


def senders(exchange: Any) -> list[str]:
    return [message.sender for message in exchange.fetch(FEDERATION)]


def identity(study: optuna.Study) -> record.Identity:
    known = record.identity(study)
    assert known is not None
    return known


# Another name


@pytest.mark.parametrize("signed", [None, False])
def test_a_study_is_renamed_and_its_message_under_the_old_name_is_withdrawn(
    tmp_path: Path, signed: bool | None
) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    study = optuna.create_study(sampler=sampler(exchange, "a", signed=signed))
    run(study, 2)
    before = identity(study)
    expected = study.sampler.preview(study)  # type: ignore[attr-defined]
    message = FederatedSampler(FEDERATION, name="b").preview(study)
    assert message is not None and expected is not None
    assert message.body == expected.body  # the noise does not depend on the name
    study.sampler = sampler(exchange, "b", signed=signed)
    with pytest.warns(UserWarning, match="peers knew this study as 'a'; it is now 'b'") as caught:
        run(study)
    assert len(caught) == 1
    assert senders(exchange) == ["b"]
    assert identity(study).name == "b" and identity(study).former == ("a",)
    assert identity(study).entropy == before.entropy
    study.sampler = sampler(exchange)  # which gives no name
    run(study)
    assert senders(exchange) == ["b"]


def test_to_look_at_a_study_under_another_name_does_not_rename_it() -> None:
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, name="a"))
    study.optimize(objective, n_trials=2)
    before = study._storage.get_study_system_attrs(study._study_id)
    message = FederatedSampler(FEDERATION, name="b").preview(study)
    assert message is not None and message.sender == "b"
    assert study._storage.get_study_system_attrs(study._study_id) == before


def test_a_running_worker_picks_the_new_name_up() -> None:
    exchange, storage = MemoryExchange(), optuna.storages.InMemoryStorage()
    optuna.create_study(study_name="s", storage=storage)
    first, second = (
        optuna.load_study(study_name="s", storage=storage, sampler=sampler(exchange, name))
        for name in ("a", "b")
    )
    run(first, 2)
    with pytest.warns(UserWarning, match="it is now 'b'"):
        run(second)
    run(first)
    assert senders(exchange) == ["b"]
    assert first.sampler.agent.name == "b"  # type: ignore[attr-defined]
    run(first)
    assert [message.sequence for message in exchange.fetch(FEDERATION)] == [5]


def test_of_two_names_given_at_once_the_last_counts_and_none_is_forgotten() -> None:
    study = optuna.create_study()
    record.introduce(study, record.Identity(name="a", entropy="1"))
    record.rename(study, "b")
    record.rename(study, "c")
    assert (identity(study).name, identity(study).former) == ("c", ("a", "b"))
    record.introduce(study, record.Identity(name="d", entropy="2", federation="f", epoch=1))
    assert (identity(study).name, identity(study).epoch) == ("c", 1)
    assert record.rename(study, "a").former == ("b", "c")


class Flaky(MemoryExchange):
    """An exchange that can be out of reach."""

    is_down = False

    def _check(self) -> None:
        if self.is_down:
            raise ExchangeError("the drive is not there; mount it")

    def publish(self, message: Message) -> bool:
        self._check()
        return super().publish(message)

    def withdraw(self, *args: Any, **options: Any) -> bool:
        self._check()
        return super().withdraw(*args, **options)


def test_a_message_that_could_not_be_withdrawn_is_withdrawn_by_the_next_process() -> None:
    exchange = Flaky()
    study = optuna.create_study(sampler=sampler(exchange, "a"))
    run(study)
    study.sampler, exchange.is_down = sampler(exchange, "b"), True
    with pytest.warns(UserWarning) as caught:
        run(study)
    assert any("A former message of this study was not withdrawn" in str(w.message) for w in caught)
    assert senders(exchange) == ["a"]
    assert study.sampler.agent is not None
    assert len(study.sampler.agent.inbox) == 0  # its own message is not a peer's
    study.sampler, exchange.is_down = sampler(exchange), False
    run(study)
    assert senders(exchange) == ["b"]


def test_a_message_that_was_not_sent_under_the_old_name_never_is() -> None:
    exchange, storage = Flaky(), optuna.storages.InMemoryStorage()
    optuna.create_study(study_name="s", storage=storage)
    first = optuna.load_study(study_name="s", storage=storage, sampler=sampler(exchange, "a"))
    exchange.is_down = True
    with pytest.warns(ExchangeWarning, match="the drive is not there"):
        run(first)
    exchange.is_down = False
    second = optuna.load_study(study_name="s", storage=storage, sampler=sampler(exchange, "b"))
    with pytest.warns(UserWarning, match="it is now 'b'"):
        run(second)
    run(first)
    assert senders(exchange) == ["b"]


# One name, two studies


@pytest.mark.parametrize("signed", [None, False])
def test_a_study_withdraws_only_its_own_message(tmp_path: Path, signed: bool | None) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    first = optuna.create_study(sampler=sampler(exchange, "site", signed=signed))
    run(first, 4)
    second = optuna.create_study(sampler=sampler(exchange, "site", signed=signed))
    with pytest.warns(ExchangeWarning, match="another study of this user publishes under"):
        run(second)
    with pytest.raises(ExchangeError, match="is not this study's"):
        second.sampler.withdraw(second)  # type: ignore[attr-defined]
    assert senders(exchange) == ["site"]
    second.sampler = sampler(exchange, "other", signed=signed)  # as the warning says
    with pytest.warns(UserWarning, match="it is now 'other'"):
        run(second)
    assert senders(exchange) == ["other", "site"]
    assert first.sampler.withdraw(first)  # type: ignore[attr-defined]
    assert senders(exchange) == ["other"]


def test_two_sites_with_one_name_and_two_keys_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = []
    for user in ("one", "two"):
        monkeypatch.setenv("FEDBO_STATE", str(tmp_path / user))
        exchange = FolderExchange(tmp_path / "exchange")
        study = optuna.create_study(sampler=sampler(exchange, "site"))
        studies.append(study)
        if user == "one":
            run(study)
    with pytest.warns(ExchangeWarning) as caught:
        run(studies[1], 2)
    texts = [str(warning.message) for warning in caught]
    [text] = [text for text in texts if "another site uses this name too" in text]
    assert identity(studies[0]).key in text and "--name" in text
    studies[1].sampler = sampler(FolderExchange(tmp_path / "exchange"), "other")
    with pytest.warns(UserWarning, match="it is now 'other'") as caught:
        run(studies[1])
    assert len(caught) == 1
    assert len(studies[1].sampler.agent.inbox) == 1  # type: ignore[attr-defined]  # the other site
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "three"))
    assert senders(FolderExchange(tmp_path / "exchange")) == ["other", "site"]
    assert {entry.study for entry in Ledger(tmp_path / "one" / "releases.jsonl").read()} == {
        identity(studies[0]).study
    }


def inbox(study: optuna.Study) -> list[str]:
    return study.sampler.agent.inbox.senders  # type: ignore[attr-defined]


@pytest.mark.parametrize("signed", [None, False])
def test_a_renamed_study_hears_the_one_that_keeps_the_name(
    tmp_path: Path, signed: bool | None
) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    first, second = (optuna.create_study() for _ in range(2))
    second.sampler = sampler(exchange, "twin", signed=signed)
    run(second)
    assert second.sampler.withdraw(second)
    first.sampler = sampler(exchange, "twin", signed=signed)
    run(first, 2)
    second.sampler = sampler(exchange, "other", signed=signed)
    with pytest.warns(UserWarning, match="it is now 'other'"):
        run(second, 2)
    assert inbox(second) == ["twin"]
    assert senders(exchange) == ["other", "twin"]


@pytest.mark.parametrize("signed", [None, False])
def test_the_second_study_with_a_name_publishes_nothing_and_says_so_in_each_run(
    tmp_path: Path, signed: bool | None
) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    first = optuna.create_study(sampler=sampler(exchange, "twin", signed=signed))
    run(first, 2)
    [before] = exchange.fetch(FEDERATION)
    second = optuna.create_study()
    reason = (
        "another study of this user publishes under the name 'twin': give this one another name "
        "(name=..., or fedbo join --name NEW). If that study no longer exists, withdraw its "
        "message (fedbo join --withdraw)"
    )
    for _ in range(2):
        second.sampler = sampler(exchange, "twin", signed=signed)
        with pytest.warns(ExchangeWarning) as caught:
            run(second, 4)
        [text] = [str(warning.message) for warning in caught]
        assert reason in text
        assert second.sampler.silence == reason
    assert exchange.fetch(FEDERATION) == [before]
    run(first)  # without a warning
    assert [message.t_n for message in exchange.fetch(FEDERATION)] == [3]


def test_a_message_of_another_worker_that_the_ledger_does_not_know_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    study = optuna.create_study(sampler=sampler(exchange, "site"))
    run(study, 2)
    there = sampler(exchange, ledger=Ledger(tmp_path / "elsewhere.jsonl"))
    study.sampler = there
    run(study)
    assert [message.t_n for message in exchange.fetch(FEDERATION)] == [3]


def test_the_exchange_of_a_name_that_is_taken_is_shown_by_its_address(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    run(optuna.create_study(sampler=sampler(exchange, "site", signed=False)), 3)
    other = sampler(exchange, "site", signed=False, ledger=Ledger(tmp_path / "elsewhere.jsonl"))
    with pytest.warns(ExchangeWarning, match="'site' that this study did not make") as caught:
        run(optuna.create_study(sampler=other))
    assert str(caught[0].message).startswith(f"{tmp_path / 'exchange'} has a message of 'site'")
