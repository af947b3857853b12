"""A study that exists leaves its message, whichever sampler made it, and explains itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from contracts.exchange import heard
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from fedbo import Categorical, Federation, Float, Int, Message, Space
from fedbo.errors import StorageRefused, StudyRefused
from fedbo.exchange import (
    Exchange,
    ExchangeError,
    FolderExchange,
    Identity,
    Ledger,
    MemoryExchange,
)
from fedbo.optuna import FederatedSampler
from fedbo.optuna.stored import StoredStudy
from fedbo.optuna.studies import existing, space_of
from fedbo.trust import KeyPair

pytestmark = pytest.mark.usefixtures("patient")

SPACE = Space(
    {"x": Float(0, 1), "n": Int(1, 4), "k": Categorical(["a", "b"])}, direction="minimize"
)
FEDERATION = Federation(SPACE, features=20)


class Hub(MemoryExchange):
    """An exchange with one member."""

    def identity(self, federation: Federation) -> Identity | None:
        return Identity("clinic", str(KeyPair.load()))


def objective(trial: optuna.Trial) -> float:
    """One with pruned and failed trials, an infinite score, and a parameter of its own that only
    some trials have."""
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
    return score if trial.number % 9 < 8 else float("inf")


def a_study(trials: int = 12) -> optuna.Study:
    study = optuna.create_study(sampler=RandomSampler(seed=0))
    study.optimize(objective, n_trials=trials, catch=RuntimeError)
    return study


def publish(
    study: optuna.Study,
    exchange: Exchange,
    federation: Federation = FEDERATION,
    *,
    name: str | None = None,
    **options: Any,
) -> Any:
    return StoredStudy(study, federation, name=name).publish(exchange, **options)


def only(exchange: Exchange, federation: Federation = FEDERATION) -> Message:
    [message] = heard(exchange, federation)
    return message  # type: ignore[return-value]


def attributes(study: optuna.Study) -> dict[str, Any]:
    return study._storage.get_study_system_attrs(study._study_id)


# Publishing


def test_the_message_is_the_one_that_a_federated_sampler_publishes(tmp_path: Path) -> None:
    study = a_study()
    exchange, other = (FolderExchange(tmp_path / place) for place in ("one", "other"))
    first = publish(study, exchange).message
    preview = FederatedSampler(FEDERATION).preview(study)
    assert preview is not None and preview.content == first.content
    scored = study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))
    assert first.sequence == first.t_n <= len(scored)
    study.sampler = FederatedSampler(FEDERATION, other, every=1)
    study.optimize(objective, n_trials=1, catch=RuntimeError)
    study.sampler.flush()
    published = publish(study, exchange)
    assert published.is_new and published.message == only(other)
    assert published.message.sequence > first.sequence


def test_what_was_withdrawn_is_not_put_back() -> None:
    exchange, study = MemoryExchange(), a_study()
    publish(study, exchange)
    stored = StoredStudy(study, FEDERATION)
    assert stored.withdraw(exchange) and not stored.withdraw(exchange)
    assert exchange.fetch(FEDERATION) == []
    with pytest.raises(StudyRefused, match=r"withdrawn\. Run another trial"):
        publish(study, exchange)
    study.optimize(objective, n_trials=1)
    assert publish(study, exchange).is_new


def test_a_preview_changes_nothing() -> None:
    exchange, study = Hub(), a_study()
    message = StoredStudy(study, FEDERATION, name="liver").message(exchange)
    assert message.sender == "clinic/liver"
    assert attributes(study) == {} and not Ledger().path.exists()
    assert exchange.fetch(FEDERATION) == []
    sent = publish(study, exchange, name="liver").message
    shown = StoredStudy(study, FEDERATION).message(exchange)
    assert shown.content == sent.content


# What is refused


def refused(study: optuna.Study, exchange: Exchange | None = None, **options: Any) -> str:
    """Publish; return why that was refused. The study is not changed, and nothing has left."""
    before = attributes(study)
    with pytest.raises((StudyRefused, ExchangeError)) as error:
        publish(study, exchange or MemoryExchange(), **options)
    assert attributes(study) == before
    assert not any(entry.action == "sent" for entry in Ledger().read())
    return str(error.value)


def test_a_study_of_another_federation_is_refused() -> None:
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION))
    study.optimize(objective, n_trials=2)
    assert "takes part in" in refused(study, federation=Federation(SPACE, features=30))


# Explaining


def test_an_agent_is_rebuilt_to_be_explained() -> None:
    for federation in (FEDERATION, None):
        study = optuna.create_study(sampler=FederatedSampler(federation, seed=0))
        study.optimize(objective, n_trials=6, catch=RuntimeError)
        agent, before = StoredStudy(study, federation).agent(), attributes(study)
        live = study.sampler.agent_of(study)  # type: ignore[attr-defined]
        assert [t.score for t in agent.trials] == [t.score for t in live.trials]
        assert agent.message().content == live.message().content
        assert attributes(study) == before


# Storages


def test_a_study_is_found_in_any_storage(tmp_path: Path) -> None:
    journal = tmp_path / "site.log"
    url = f"sqlite:///{tmp_path}/site.db"
    for storage in (url, JournalStorage(JournalFileBackend(str(journal)))):
        study = optuna.create_study(study_name="s", storage=storage)
        study.optimize(objective, n_trials=3)
    for address in (url, str(journal), f"journal:{journal}"):
        assert len(existing(address, "s").trials) == 3
        space, _ = space_of(address, "s")
        assert {"k", "n", "x"} <= {*space.names}
        with pytest.raises(StorageRefused, match="its studies are 's'"):
            existing(address, "t")


def test_nothing_is_created_by_looking(tmp_path: Path) -> None:
    (tmp_path / "not.db").write_bytes(b"")
    for address in ("sqlite:///{}/no.db", "{}/no.log", "journal:{}/no.log", "sqlite:///{}/not.db"):
        with pytest.raises(StorageRefused):
            existing(address.format(tmp_path), "s")
    optuna.create_study(study_name="s", storage=f"sqlite:///{tmp_path}/site.db")
    with pytest.raises(StorageRefused, match="is an SQLite database: give sqlite:///"):
        existing(f"{tmp_path}/site.db", "s")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["not.db", "site.db"]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:secret@server/trials",
        "postgresql//me:secret@server/trials",
        "mysql+pymysql://me:se@cret@server:port/trials",
        "postgresql://server/trials?password=secret",
    ],
)
def test_no_password_is_ever_printed(address: str) -> None:
    with pytest.raises(StorageRefused) as error:
        existing(address, "s")
    assert "cret" not in str(error.value)
