"""`fedbo publish`: what it says, and what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from typer.testing import CliRunner

from fedbo import Categorical, Federation, Float, Space
from fedbo.cli import app as cli
from fedbo.exchange import FolderExchange, Ledger
from fedbo.optuna import FederatedSampler, record

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(
    Space({"x": Float(0, 1), "k": Categorical(["a", "b"])}, direction="minimize"), features=20
)
STORAGE = "sqlite:///site.db"


def objective(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1) + (trial.suggest_categorical("k", ["a", "b"]) == "b")


@pytest.fixture(autouse=True)
def _a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with a federation, a log of its own, and a study of a usual sampler."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    FEDERATION.save("federation.toml")
    yield
    optuna.logging.set_verbosity(verbosity)


@pytest.fixture
def study() -> optuna.Study:
    made = optuna.create_study(
        study_name="old", storage=STORAGE, sampler=optuna.samplers.RandomSampler(seed=0)
    )
    made.optimize(objective, n_trials=3)
    return made


def publish(*args: str, study: str = "old", to: str = "shared", code: int = 0) -> str:
    """What it says, in this process."""
    wide = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    command = ["publish", "--storage", STORAGE, "--study", study, "--to", to, *args]
    result = CliRunner().invoke(cli.app, command, env=wide)
    assert result.exit_code == code, result.output
    return " ".join(result.output.replace("│", " ").split())


FILE = ("--federation", "federation.toml")


def test_a_study_leaves_its_message_once(study: optuna.Study) -> None:
    said = publish(*FILE, "--name", "site-a")
    [message] = FolderExchange("shared").fetch(FEDERATION)
    assert f"The message of site-a was published at {Path('shared').absolute()}." in said
    assert f"federation {FEDERATION.fingerprint}, epoch 0" in said
    size = f"{message.numbers} numbers (compact), {message.nbytes} bytes"
    assert f"about 3 trials size {size}" in said
    assert f"signature with the key {message.signer}" in said
    assert "fedbo ledger --agent site-a lists everything that it sent; the log is" in said
    said = publish(*FILE)
    assert "already has this message of site-a: no trial has finished since it was sent." in said
    assert "Nothing was changed." in said
    assert len(Ledger().read()) == 1
    study.optimize(objective, n_trials=1)
    assert "was published at" in publish(*FILE)
    [message] = FolderExchange("shared").fetch(FEDERATION)
    assert (message.sender, message.sequence) == ("site-a", 4)


def test_fedbo_join_goes_on_as_the_same_agent(study: optuna.Study) -> None:
    publish(*FILE)
    Path("train_later.py").write_text("def score(x, k):\n    return x\n")
    command = ["join", "shared", "--storage", STORAGE, "--study", "old", "--trials", "4"]
    result = CliRunner().invoke(
        cli.app, [*command, "--objective", "train_later:score", "--every", "1"]
    )
    assert result.exit_code == 0, result.output
    [message] = FolderExchange("shared").fetch(FEDERATION)
    known = record.identity(study)
    assert known is not None
    assert (message.sender, message.sequence) == (known.name, 4)


def test_without_a_file_the_parameters_of_the_study_make_the_federation(
    study: optuna.Study,
) -> None:
    publish("--unsigned")
    [held] = FolderExchange("shared").holdings()
    agent = FederatedSampler().preview(study)
    assert held.message is not None and agent is not None
    assert held.message.fingerprint == agent.fingerprint
    assert not held.message.key


@pytest.mark.filterwarnings("always")
def test_trials_that_do_not_count_are_told_of(study: optuna.Study) -> None:
    study.optimize(lambda trial: trial.suggest_float("other", 0, 1), n_trials=2)
    said = publish(*FILE)
    assert "about 3 trials of 5 that are finished" in said
    assert said.count("Warning: in trial 3, the objective does not suggest 'k' and 'x'") == 1


def test_a_preview_sends_nothing(study: optuna.Study) -> None:
    said = publish(*FILE, "--preview")
    assert "The message that would be published at" in said
    assert "agent a random name, drawn when it is sent" in said
    assert "Nothing was sent. The noise is drawn when it is sent" in said
    assert not Path("shared").exists() and Ledger().read() == []
    assert record.identity(study) is None
    publish(*FILE)
    assert publish(*FILE, "--preview").endswith("Nothing was sent.")


def test_what_cannot_be_published_is_an_error(study: optuna.Study) -> None:
    assert "there is no study 'new' in sqlite:///site.db; its studies are 'old'" in publish(
        study="new", code=1
    )
    assert "the folder" in publish(to="nowhere/shared", code=2)
    assert "cannot be read" in publish("--federation", "absent.toml", code=2)
    assert "cannot carry scalars, only a hub can: leave out --scalars" in publish(
        "--scalars", code=1
    )
    optuna.create_study(study_name="empty", storage=STORAGE)
    assert "study 'empty' has no finished trial" in publish(study="empty", code=1)
    maximised = Federation({"x": Float(0, 1), "k": Categorical(["a", "b"])})
    maximised.save("maximise.toml")
    assert "has direction minimize, but the federation has maximize" in publish(
        "--federation", "maximise.toml", code=1
    )
    several = Space({"x": Float(0.5, 9), "K": Categorical(["a", "b"])}, direction="minimize")
    Federation(several).save("several.toml")
    said = publish("--federation", "several.toml", code=1)
    assert "parameter 'K' is not in the study; it has 'k' (misspelt?)" in said
    assert "parameter 'x': low is 0.0 in the study and 0.5 in the federation" in said
    assert Ledger().read() == [] and record.identity(study) is None


def test_a_study_with_several_objectives_is_an_error() -> None:
    study = optuna.create_study(
        study_name="two", storage=STORAGE, directions=["minimize", "maximize"]
    )
    study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), n_trials=1)
    assert "study 'two' has 2 objectives" in publish(*FILE, study="two", code=1)


def test_an_exchange_that_cannot_be_reached_is_an_error(study: optuna.Study) -> None:
    Path("shared").write_text("")
    assert "is a file, expected a folder" in publish(*FILE, code=2)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str, *_: Any) -> None:
        return None

    monkeypatch.setattr("fedbo.cli.checks.find_spec", find_spec)
    assert "pip install 'fedbo[optuna]'" in publish(code=1)
