"""When a study publishes a message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from contracts.exchange import heard
from contracts.studies import FEDERATION, run
from optuna.trial import FrozenTrial, TrialState, create_trial

from fedbo import Federation, Float
from fedbo.errors import NotSent
from fedbo.exchange import ExchangeWarning, FolderExchange, Ledger, MemoryExchange
from fedbo.exchange.latest import Content
from fedbo.optuna import FederatedSampler
from fedbo.optuna.mail import due

pytestmark = pytest.mark.usefixtures("patient")


def scored(*values: float | None) -> list[FrozenTrial]:
    """Complete trials with these values, and pruned ones for None."""
    return [
        create_trial(value=value, state=TrialState.PRUNED if value is None else TrialState.COMPLETE)
        for value in values
    ]


def giving(*values: float) -> Callable[[optuna.Trial], float]:
    """An objective with these values, by the number of the trial."""

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        return values[trial.number]

    return objective


def sequences(ledger: Ledger) -> list[int]:
    return [entry.sequence for entry in ledger.read() if entry.action == "sent"]


# The rule


def test_a_message_is_due_for_a_new_best_and_for_twice_as_many_scores() -> None:
    assert due(scored(5, 4, 9, 9, 9, 9, 9, 9, 9), None, "minimize") == [1, 2, 4, 8]
    assert due(scored(5, 4, 9, 9, 9, 9, 9, 9, 9), None, "maximize") == [1, 2, 3, 6]
    assert due(scored(5, 9, 9, 3, 3, 9, 2), None, "minimize") == [1, 2, 4, 7]
    assert due(scored(None, None, 7, None, 8, None), None, "minimize") == [1, 2, 3, 6]
    assert due([], None, "minimize") == []


# Studies


def test_workers_agree_on_what_is_worth_it(tmp_path: Path) -> None:
    ledger, exchange = Ledger(tmp_path / "log.jsonl"), MemoryExchange()
    storage = optuna.storages.InMemoryStorage()
    optuna.create_study(study_name="s", storage=storage)
    workers = [
        optuna.load_study(
            study_name="s",
            storage=storage,
            sampler=FederatedSampler(FEDERATION, exchange, ledger=ledger),
        )
        for _ in range(3)
    ]
    for i in range(9):
        run(workers[i % 3], 1, giving(5, 6, 6, 6, 6, 4, 6, 6, 3))
    assert sequences(ledger) == [1, 2, 4, 6, 9]


@pytest.mark.parametrize(("every", "expected", "after"), [(None, [1, 2, 4, 6], 12), (3, [3, 6], 9)])
def test_what_was_withdrawn_stays_withdrawn_until_another_message_is_due(
    tmp_path: Path, every: int | None, expected: list[int], after: int
) -> None:
    ledger, exchange = Ledger(tmp_path / "log.jsonl"), MemoryExchange()
    sampler = FederatedSampler(FEDERATION, exchange, every=every, ledger=ledger)
    study = optuna.create_study(sampler=sampler)
    objective = giving(5, 6, 6, 6, 6, 4, *[6] * 9)
    run(study, 6, objective)
    assert sequences(ledger) == expected
    assert sampler.withdraw(study)
    run(study, after - 7, objective)
    assert exchange.fetch(FEDERATION) == []
    assert sequences(ledger) == expected
    run(study, 1, objective)
    assert [message.sequence for message in heard(exchange, FEDERATION)] == [after]


def test_whoever_deletes_messages_gets_no_fresh_noise(tmp_path: Path) -> None:
    """A study that published anew whenever its message was gone sent one after each trial."""
    exchange = FolderExchange(tmp_path / "exchange")
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, exchange))
    objective, seen = giving(5, 6, 4, *[6] * 20), set()
    for _ in range(16):
        run(study, 1, objective)
        for file in exchange.folder.rglob("*.fedbo"):
            seen.add(file.read_bytes())
            file.unlink()
    assert len(seen) == len([1, 2, 3, 6, 12])


def test_a_message_counts_trials_that_lack_a_parameter_which_a_later_one_has() -> None:
    """The message was made without the name of the parameter, and so without these trials."""
    federation = Federation({"a": Float(0, 1), "b": Float(0, 1)}, features=20)
    exchange = MemoryExchange()
    sampler = FederatedSampler(federation, exchange)
    study = optuna.create_study(sampler=sampler, direction="maximize")

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("a", 0, 1)
        if trial.number >= 3:
            trial.suggest_float("b", 0, 1)
        return -trial.number

    with pytest.warns(UserWarning, match="does not suggest 'b'"):
        run(study, 5, objective)
    [message] = heard(exchange, federation)
    assert (message.sequence, message.t_n) == (4, 4)


def test_the_last_message_has_all_that_the_study_knows() -> None:
    exchange = MemoryExchange()
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, exchange))
    run(study, 3, giving(5, 6, 6))
    assert [message.sequence for message in heard(exchange, FEDERATION)] == [2]
    study.sampler.flush()  # type: ignore[attr-defined]
    [last] = heard(exchange, FEDERATION)
    assert last.sequence == 3
    study.sampler = FederatedSampler(FEDERATION, exchange)  # another worker, which knows no more
    preview = study.sampler.preview(study)
    assert preview is not None and preview.content == last.content


def test_what_was_withdrawn_is_not_sent_at_the_end() -> None:
    exchange = MemoryExchange()
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, exchange))
    run(study, 3, giving(5, 6, 6))
    courier = study.sampler._mail.courier  # type: ignore[attr-defined]
    assert courier.has_something
    assert study.sampler.withdraw(study)  # type: ignore[attr-defined]
    assert not courier.has_something
    study.sampler.flush()  # type: ignore[attr-defined]
    assert exchange.fetch(FEDERATION) == []


def test_a_message_that_did_not_arrive_is_sent_again_as_it_is(tmp_path: Path) -> None:
    """A place that says that it failed gets no fresh noise for that."""

    class Down(MemoryExchange):
        is_down = False

        def publish(self, content: Content) -> bool:
            if self.is_down:
                raise NotSent("the drive is not there; mount it")
            return super().publish(content)

    exchange, ledger = Down(), Ledger(tmp_path / "log.jsonl")
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, exchange, ledger=ledger))
    objective = giving(5, 6, 4, *[6] * 9)
    run(study, 2, objective)
    exchange.is_down = True
    with pytest.warns(ExchangeWarning, match="the drive is not there"):
        run(study, 3, objective)
    exchange.is_down = False
    run(study, 1, objective)
    assert sequences(ledger) == [1, 2, 3, 3, 3, 6]
