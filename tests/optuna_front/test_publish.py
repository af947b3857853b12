"""A study that exists leaves its message, whichever sampler made it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import optuna
import pytest
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from fedbo import Categorical, Federation, Float, Int, Message, Space
from fedbo.exchange import (
    Exchange,
    ExchangeError,
    ExchangeWarning,
    FolderExchange,
    Ledger,
    MemoryExchange,
)
from fedbo.federation.scalars import Scalars
from fedbo.message import Kind
from fedbo.optuna import FederatedSampler, record
from fedbo.optuna.publish import Publication, PublishRefused

pytestmark = pytest.mark.usefixtures("patient")

SPACE = Space(
    {"x": Float(0, 1), "n": Int(1, 4), "k": Categorical(["a", "b"])}, direction="minimize"
)
FEDERATION = Federation(SPACE, features=20)


class Hub(MemoryExchange):
    """An exchange with one member, which carries scalars."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Scalars] = []

    def member(self, federation: Federation) -> str:
        return "clinic"

    def share(self, scalars: Scalars) -> None:
        self.given.append(scalars)


def objective(trial: optuna.Trial) -> float:
    """One with pruned and failed trials, an infinite score, a constraint, and a parameter of its
    own that only some trials have."""
    x, n = trial.suggest_float("x", 0, 1), trial.suggest_int("n", 1, 4)
    k = trial.suggest_categorical("k", ["a", "b"])
    if k == "b":
        trial.suggest_float("only_b", 0, 1)
    score = (x - 0.3) ** 2 + n + (k == "b")
    trial.report(score + 1, 0)
    if trial.number % 5 == 3:
        raise optuna.TrialPruned
    if trial.number % 7 == 4:
        raise RuntimeError("no data")
    trial.set_constraint("small", x - 0.5)
    return score if trial.number % 9 < 8 else float("inf")


GRID = {"x": [0.1, 0.5, 0.9], "n": [1, 3], "k": ["a", "b"], "only_b": [0.5]}
SAMPLERS: dict[str, Callable[[], BaseSampler]] = {
    "random": lambda: RandomSampler(seed=0),
    "TPE": lambda: TPESampler(seed=0, n_startup_trials=4),
    "grid": lambda: GridSampler(GRID, seed=0),
}


def a_study(sampler: BaseSampler | None = None, trials: int = 12) -> optuna.Study:
    study = optuna.create_study(sampler=sampler or RandomSampler(seed=0))
    study.optimize(objective, n_trials=trials, catch=RuntimeError)
    return study


def publish(
    study: optuna.Study,
    exchange: Exchange,
    federation: Federation | None = FEDERATION,
    *,
    scalars: bool = False,
    **options: Any,
) -> Any:
    return Publication(study, exchange, federation, **options).publish(scalars=scalars)


def only(exchange: Exchange, federation: Federation = FEDERATION) -> Message:
    [message] = exchange.fetch(federation)
    return message


def attributes(study: optuna.Study) -> dict[str, Any]:
    return study._storage.get_study_system_attrs(study._study_id)


# The message


@pytest.mark.parametrize("federation", [FEDERATION, None])
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_message_is_the_one_that_a_federated_sampler_publishes(
    name: str, federation: Federation | None, tmp_path: Path
) -> None:
    study = a_study(SAMPLERS[name]())
    here, there = (FolderExchange(tmp_path / place) for place in ("here", "there"))
    first = publish(study, here, federation).message
    preview = FederatedSampler(federation).preview(study)
    assert preview is not None and preview.content == first.content
    scored = study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))
    assert first.sequence == first.t_n <= len(scored)
    study.sampler = FederatedSampler(federation, there, every=1)
    study.optimize(objective, n_trials=1, catch=RuntimeError)
    study.sampler.flush()
    done = publish(study, here, federation)
    [sent] = there.fetch(study.sampler.agent.federation)  # type: ignore[union-attr]
    assert done.is_new and done.message == sent
    assert done.message.sequence > first.sequence


@pytest.mark.parametrize("kind", get_args(Kind))
def test_any_kind_of_message_can_be_published(kind: Any) -> None:
    federation = Federation(SPACE, features=10, kind=kind)
    exchange = MemoryExchange()
    publish(a_study(), exchange, federation)
    assert only(exchange, federation).kind == kind


def test_a_study_goes_on_as_the_same_agent_later() -> None:
    exchange, study = MemoryExchange(), a_study()
    sent = publish(study, exchange, name="site").message
    known = record.identity(study)
    study.sampler = FederatedSampler(FEDERATION, exchange, every=1)
    study.optimize(objective, n_trials=1, catch=RuntimeError)
    study.sampler.flush()
    later = only(exchange)
    assert (later.sender, later.key) == (sent.sender, sent.key) == ("site", later.key)
    assert record.identity(study) == known


def test_without_new_trials_nothing_changes(tmp_path: Path) -> None:
    exchange, study = FolderExchange(tmp_path / "exchange"), a_study()
    assert publish(study, exchange).is_new
    stored, lines = attributes(study), Ledger().read()
    [file] = [path for path in exchange.folder.rglob("*.fedbo")]
    written = file.stat().st_mtime_ns
    again = publish(study, exchange)
    assert not again.is_new
    assert (attributes(study), Ledger().read()) == (stored, lines)
    assert file.stat().st_mtime_ns == written
    study.optimize(objective, n_trials=1)
    assert publish(study, exchange).is_new
    assert only(exchange).sequence == again.message.sequence + 1


def test_only_trials_of_the_federations_space_count() -> None:
    study = a_study(trials=3)
    study.optimize(lambda trial: trial.suggest_float("other", 0, 1), n_trials=2)
    with pytest.warns(UserWarning, match="does not suggest 'k', 'n' and 'x'"):
        done = publish(study, MemoryExchange())
    assert (done.message.t_n, done.trials) == (3, 5)


def test_a_narrower_range_fits() -> None:
    study = optuna.create_study()

    def narrow(trial: optuna.Trial) -> float:
        trial.suggest_categorical("k", ["b", "a"])
        return trial.suggest_float("x", 0.2, 0.4) + trial.suggest_int("n", 2, 2)

    study.optimize(narrow, n_trials=3)
    assert publish(study, MemoryExchange()).message.t_n == 3


def test_a_running_trial_is_not_in_the_message() -> None:
    study = a_study(trials=3)
    study.ask().suggest_float("x", 0, 1)
    assert publish(study, MemoryExchange()).message.t_n == 3


# Names, keys and the ledger


def test_at_a_hub_each_study_is_an_agent_of_the_member() -> None:
    hub = Hub()
    publish(a_study(), hub, name="liver")
    publish(a_study(), hub)
    first, second = (message.sender for message in hub.fetch(FEDERATION))
    assert first.startswith("clinic/agent-") and second == "clinic/liver"


def test_what_leaves_is_recorded_with_its_study(tmp_path: Path) -> None:
    study, ledger = a_study(), Ledger(tmp_path / "log.jsonl")
    done = publish(study, MemoryExchange(), ledger=ledger)
    [entry] = ledger.read()
    known = record.identity(study)
    assert known is not None
    assert (entry.action, entry.study, entry.message()) == ("sent", known.study, done.message)


@pytest.mark.parametrize("signed", [None, False])
def test_messages_are_signed_unless_they_should_not_be(signed: bool | None) -> None:
    exchange = MemoryExchange()
    publish(a_study(), exchange, signed=signed)
    assert bool(only(exchange).key) == (signed is None)


def test_another_name_withdraws_the_message_under_the_old_one() -> None:
    exchange, study = MemoryExchange(), a_study()
    publish(study, exchange, name="a")
    with pytest.warns(UserWarning, match="it is now 'b'"):
        publish(study, exchange, name="b")
    assert only(exchange).sender == "b"


def test_a_study_without_a_file_that_lost_a_parameter_leaves_its_former_federation() -> None:
    exchange, study = MemoryExchange(), a_study(trials=3)
    former = publish(study, exchange, None).message
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.warns(ExchangeWarning, match="takes part in another federation"):
        now = publish(study, exchange, None).message
    assert former.fingerprint != now.fingerprint
    assert [held.message for held in exchange.holdings()] == [now]


def test_a_message_that_was_withdrawn_is_not_put_back() -> None:
    exchange, study = MemoryExchange(), a_study()
    publish(study, exchange)
    assert FederatedSampler(FEDERATION, exchange).withdraw(study)
    with pytest.raises(PublishRefused, match=r"withdrawn\. Run another trial"):
        publish(study, exchange)
    study.optimize(objective, n_trials=1)
    assert publish(study, exchange).is_new


def test_scalars_are_shared_once() -> None:
    hub, study = Hub(), a_study(trials=14)
    done = publish(study, hub, scalars=True)
    assert done.are_scalars_new and hub.given == [done.scalars]
    assert done.scalars.sender == done.message.sender
    assert [entry.kind for entry in Ledger().read()] == ["compact", "scalars"]
    again = publish(study, hub, scalars=True)
    assert not (again.is_new or again.are_scalars_new) and len(hub.given) == 1
    study.optimize(objective, n_trials=1)
    assert publish(study, hub, scalars=True).are_scalars_new


# A preview


def test_a_preview_changes_nothing() -> None:
    exchange, study = Hub(), a_study()
    message, hindrance = Publication(study, exchange, FEDERATION, name="liver").preview()
    assert (message.sender, hindrance) == ("clinic/liver", "")
    assert attributes(study) == {} and not Ledger().path.exists()
    assert exchange.fetch(FEDERATION) == []
    sent = publish(study, exchange, name="liver").message
    shown, _ = Publication(study, exchange, FEDERATION).preview()
    assert shown.content == sent.content


# What is refused


def refused(study: optuna.Study, exchange: Exchange | None = None, **options: Any) -> str:
    """Publish; return why that was refused. The study is not changed, and nothing has left."""
    before = attributes(study)
    with pytest.raises((PublishRefused, ExchangeError)) as error:
        publish(study, exchange or MemoryExchange(), **options)
    assert attributes(study) == before
    assert not any(entry.action == "sent" for entry in Ledger().read())
    return str(error.value)


def test_a_study_with_several_objectives_is_refused() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"])
    study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), n_trials=1)
    for federation in (FEDERATION, None):
        assert "has 2 objectives" in refused(study, federation=federation)


def test_another_direction_is_refused() -> None:
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=2)
    assert "has direction maximize, but the federation has minimize" in refused(study)


@pytest.mark.parametrize("federation", [FEDERATION, None])
def test_a_study_without_a_finished_trial_is_refused(federation: Federation | None) -> None:
    study = optuna.create_study()
    study.ask().suggest_float("x", 0, 1)
    assert "has no finished trial" in refused(study, federation=federation)


def test_each_parameter_that_does_not_match_is_named() -> None:
    study = optuna.create_study()

    def other(trial: optuna.Trial) -> float:
        trial.suggest_categorical("k", ["a", "c"])
        trial.suggest_int("N", 1, 4)
        return trial.suggest_float("x", 0, 2)

    study.optimize(other, n_trials=2)
    lines = refused(study).splitlines()
    assert lines[0].endswith("does not have the parameters of the federation:")
    assert sorted(line.strip() for line in lines[1:]) == [
        "parameter 'k': choices are ['a', 'c'] in the study and ['a', 'b'] in the federation",
        "parameter 'n' is not in the study; it has 'N' (misspelt?)",
        "parameter 'x': high is 2.0 in the study and 1.0 in the federation",
    ]


def test_a_study_that_shares_no_parameter_is_refused() -> None:
    study = optuna.create_study()
    study.optimize(lambda trial: trial.suggest_float(f"x{trial.number}", 0, 1), n_trials=2)
    assert "has no parameter that all trials share" in refused(study, federation=None)


def test_a_study_of_another_federation_is_refused() -> None:
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION))
    study.optimize(objective, n_trials=2)
    other = Federation(SPACE, features=30)
    assert "began in federation" in refused(study, federation=other)
    assert "give its file with --federation" in refused(study, federation=None)


def test_a_user_who_is_not_a_member_is_told_how_to_join() -> None:
    class Strange(Hub):
        def member(self, federation: Federation) -> str:
            raise ExchangeError("you are not a member: run fedbo join ADDRESS --invite INVITATION")

    assert "run fedbo join ADDRESS --invite" in refused(a_study(), Strange())


def test_an_exchange_that_is_down_is_an_error_and_the_next_run_publishes() -> None:
    class Down(MemoryExchange):
        is_down = True

        def publish(self, message: Message) -> bool:
            if self.is_down:
                raise ExchangeError("the hub does not answer; try again later")
            return super().publish(message)

    exchange, study = Down(), a_study()
    with pytest.raises(ExchangeError, match="does not answer"):
        publish(study, exchange)
    exchange.is_down = False
    assert publish(study, exchange).is_new
    assert [entry.action for entry in Ledger().read()] == ["sent", "undelivered", "sent"]


def test_scalars_need_a_hub_and_enough_scores() -> None:
    study = a_study(trials=3)
    assert "only a hub can: leave out --scalars" in refused(study, scalars=True)
    text = refused(study, Hub(), scalars=True)
    assert "has 3 scores, too few for scalars" in text and "or leave out --scalars" in text


def test_the_name_of_another_study_is_refused() -> None:
    exchange = MemoryExchange()
    publish(a_study(), exchange, name="site")
    second = a_study()
    publish(second, exchange, name="other")
    with pytest.raises(PublishRefused, match="another study of this user publishes under the name"):
        publish(second, exchange, name="site")
    assert [message.sender for message in exchange.fetch(FEDERATION)] == ["other", "site"]
