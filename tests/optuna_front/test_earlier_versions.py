"""Studies that version 0.1.0 wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from fedbo import Federation
from fedbo.optuna import FederatedSampler, private, record

WRITTEN = Path(__file__).parents[1] / "fixtures" / "v0.1"
EXPECTED = json.loads((WRITTEN / "expected.json").read_text(encoding="utf-8"))["study"]


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    journal = shutil.copy(WRITTEN / "study.journal", tmp_path / "study.journal")
    storage = JournalStorage(JournalFileBackend(str(journal)))
    return optuna.load_study(study_name="site", storage=storage)


def test_its_queries_are_read(study: optuna.Study) -> None:
    every = [record.read_asked(trial) for trial in study.trials]
    assert [asked.origin.source for asked in every if asked] == EXPECTED["sources"]
    written = [trial.system_attrs["fedbo:query"] for trial in study.trials]
    for asked, attribute in zip(every, written, strict=True):
        assert asked is not None
        assert (asked.params, asked.t) == (attribute["params"], attribute.get("t"))
        assert asked.origin.trust == attribute.get("weights", {})
        assert asked.origin.credit == attribute.get("credit", {})


def test_its_next_message_is_the_same(study: optuna.Study) -> None:
    federation = Federation.load(WRITTEN / "federation.toml")
    message = FederatedSampler(federation, seed=5).preview(study)
    assert message is not None
    assert message.encode().hex() == EXPECTED["preview"]


def test_it_goes_on_and_writes_the_same_form(study: optuna.Study) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    before = private.study_attributes(study)
    study.sampler = FederatedSampler(WRITTEN / "federation.toml")

    def objective(trial: optuna.Trial) -> float:
        C = trial.suggest_float("C", 1e-4, 10, log=True)
        return -C - trial.suggest_float("gamma", 1e-2, 10, log=True)

    study.optimize(objective, n_trials=2)
    assert private.study_attributes(study) == before  # the same agent
    query = study.trials[-1].system_attrs["fedbo:query"]
    assert query.keys() <= {"source", "t", "peer", "credit", "weights", "params"}
    assert query["t"] == EXPECTED["sources"].count("own") + EXPECTED["sources"].count("pool") + 2
    assert query["params"] == study.trials[-1].params
